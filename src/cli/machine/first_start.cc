#include "cli/machine/first_start.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <optional>

#include "base/ascii.h"
#include "base/error.h"
#include "base/system.h"
#include "cli/machine/checks.h"
#include "cli/options/hub.h"
#include "cli/terminal/line_reader.h"
#include "cli/terminal/terminal.h"
#include "io/hub/list.h"

namespace ingot {
namespace {

struct StarterModel {
  std::string name;
  uint64_t n_bytes = 0;
  std::string note;
  bool on_disk = false;
};

std::vector<StarterModel> starter_models() {
  return {
#define STARTER_MODEL(name, bytes, licence, use) {name, bytes, licence ", " use, false},
#include "cli/machine/starter_models.def"
#undef STARTER_MODEL
  };
}

// Room for the context and the program beside the weights.
bool fits(const StarterModel& model, uint64_t memory, uint64_t disk) {
  return model.n_bytes + model.n_bytes / 8 + (512u << 20) <= memory && model.n_bytes <= disk;
}

// What can be offered now: the models on the disk, and, if the Hub answers, those of the list that fit.
std::vector<StarterModel> offered_models() {
  const HubOptions hub = hub_options({});
  const uint64_t memory = available_memory_bytes(), disk = free_disk_bytes(hub.cache);
  std::vector<StarterModel> models;
  for (const HubEntry& e : list_cache(hub.cache))
    if (e.label != "partial")
      models.push_back({e.repo + (e.label == "safetensors" ? "" : ":" + e.label), e.n_bytes, "on the disk", true});
  if (const std::string why = why_no_hub(hub); !why.empty()) {
    say("The Hugging Face Hub does not answer, so nothing can be downloaded now: {}\n", why);
    return models;
  }
  const size_t n_on_disk = models.size();
  for (const StarterModel& model : starter_models()) {
    bool known = false;
    for (size_t i = 0; i < n_on_disk; ++i) known |= lower(models[i].name) == lower(model.name);
    if (!known && fits(model, memory, disk)) models.push_back(model);
  }
  say("{} of memory and {} of disk are free; the list has what fits.\n", human_bytes(memory), human_bytes(disk));
  return models;
}

std::optional<std::string> ask(LineReader& reader, const std::string& prompt) {
  std::fflush(stdout);
  const std::optional<std::string> line = reader.read(prompt);
  if (!line || reader.interrupted()) return std::nullopt;
  return std::string(trim(*line));
}

// The name of a model; nullopt: the user leaves.
std::optional<std::string> ask_model(LineReader& reader) {
  const std::vector<StarterModel> models = offered_models();
  for (size_t i = 0; i < models.size(); ++i)
    say("  {}  {:<34} {:>5} {:>8}  {}\n", i + 1, printable(models[i].name), models[i].on_disk ? "" : "about",
               human_bytes(models[i].n_bytes), models[i].note);
  say("A number, or a file, a folder, or ORG/REPO[:QUANT] of the Hub:\n");
  while (true) {
    const std::optional<std::string> answer = ask(reader, "model> ");
    if (!answer || answer->empty() || *answer == "q") return std::nullopt;
    size_t number = 0;
    const auto [end, fault] = std::from_chars(answer->data(), answer->data() + answer->size(), number);
    if (fault != std::errc() || end != answer->data() + answer->size()) return answer;
    if (number >= 1 && number <= models.size()) return models[number - 1].name;
    say("There is no model {}.\n", number);
  }
}

}  // namespace

std::vector<std::string> ask_first_command() {
  say(
      "ingot runs open language models. `ingot --help` lists the commands, `ingot doctor` checks this machine.\n"
      "  1  chat with the demo model, which is in the program\n"
      "  2  choose a model, and chat with it\n"
      "  3  serve the demo model to programs and browsers at http://127.0.0.1:8080\n"
      "  q  leave\n");
  LineReader reader;
  while (true) {
    const std::optional<std::string> choice = ask(reader, "1> ");
    if (!choice || *choice == "q") return {};
    std::vector<std::string> arguments;
    if (choice->empty() || *choice == "1") arguments = {"chat"};
    if (*choice == "3") arguments = {"serve"};
    if (*choice == "2") {
      const std::optional<std::string> model = ask_model(reader);
      if (!model) return {};
      arguments = {"chat", *model};
    }
    if (arguments.empty()) {
      say("Type 1, 2, 3 or q.\n");
      continue;
    }
    say("This is: ingot {}\n", printable(fmt::format("{}", fmt::join(arguments, " "))));
    std::fflush(stdout);
    return arguments;
  }
}

}  // namespace ingot
