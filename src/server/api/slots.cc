// POST /slots/ID?action=save|restore|erase: llama.cpp's route to save a conversation's KV cache to a file.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <future>

#include "base/error.h"
#include "base/json.h"
#include "server/api/api.h"
#include "server/requests/fields.h"

namespace ingot {
namespace {

int read_slot(const std::string& path, int n_slots) {
  const std::string_view text = std::string_view(path).substr(std::string_view("/slots/").size());
  int slot = -1;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), slot);
  if (failure != std::errc() || end != text.data() + text.size() || slot < 0 || slot >= n_slots)
    throw ApiError(400, fmt::format("there is no slot '{}': slots go from 0 to {}", printable(text, 32), n_slots - 1),
                   "id_slot");
  return slot;
}

std::string read_action(std::string_view query) {
  for (const char* action : {"save", "restore", "erase"})
    for (size_t begin = 0; begin <= query.size();) {
      const size_t end = std::min(query.find('&', begin), query.size());
      if (query.substr(begin, end - begin) == std::string("action=") + action) return action;
      begin = end + 1;
    }
  throw ApiError(400, "the query must be action=save, action=restore or action=erase", "action");
}

// A file name without folders, from characters that all file systems treat alike.
std::string read_name(const Fields& fields) {
  const std::string name = fields.string("filename", 255).value_or("");
  const auto is_plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::string_view("._-").find(c) != std::string_view::npos;
  };
  if (name.empty()) fields.refuse("filename", "is missing");
  if (name.front() == '.' || !std::ranges::all_of(name, is_plain))
    fields.refuse("filename", "may have only letters, digits, '.', '_' and '-', and must not begin with '.'");
  return name;
}

}  // namespace

void answer_slot(const ApiCall& call) {
  ServedModel& model = *call.model;
  const Fields fields(call.body);
  const std::string action = read_action(call.request.query);
  const int slot = read_slot(call.request.path, model.slots().size());
  const std::string name = action != "erase" || fields.find("filename") ? read_name(fields) : "";
  if (model.slot_files().folder.empty())
    throw ApiError(501, "this server saves no slots: start it with --slot-save-path and a folder");
  const auto begin = Clock::now();
  const auto answer = [&](JsonValue json, const std::string& time) {
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    if (!time.empty()) json["timings"] = {{time, ms}};
    call.responder->respond({.body = dump_json(json)});
  };
  try {
    if (action == "erase")
      return answer({{"id_slot", slot}, {"n_erased", erase_slot(model.engine(), model.slots(), slot)}}, "");
    const bool saves = action == "save";
    const auto copy = (saves ? save_slot : restore_slot)(model.engine(), model.slots(), slot, model.slot_files(), name);
    answer({{"id_slot", slot},
            {"filename", name},
            {saves ? "n_saved" : "n_restored", copy.n_tokens},
            {saves ? "n_written" : "n_read", copy.n_bytes}},
           saves ? "save_ms" : "restore_ms");
  } catch (const std::future_error&) {
    throw ApiError(503, "the model's engine has ended");
  }
}

}  // namespace ingot
