#include "server/fields/ollama_fields.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/ascii.h"
#include "base/base64.h"
#include "server/fields/constraint_fields.h"
#include "server/fields/media_fields.h"
#include "text/chat_messages.h"

namespace ingot {
namespace {

constexpr FieldAlias kOllamaAliases[] = {
    {"max_tokens", "options.num_predict"},
    {"temperature", "options.temperature"},
    {"top_k", "options.top_k"},
    {"top_p", "options.top_p"},
    {"min_p", "options.min_p"},
    {"typical_p", "options.typical_p"},
    {"repeat_penalty", "options.repeat_penalty"},
    {"repeat_last_n", "options.repeat_last_n"},
    {"presence_penalty", "options.presence_penalty"},
    {"frequency_penalty", "options.frequency_penalty"},
    {"seed", "options.seed"},
    {"stop", "options.stop"},
    {"mirostat", "options.mirostat"},
    {"mirostat_tau", "options.mirostat_tau"},
    {"mirostat_eta", "options.mirostat_eta"},
};

JsonValue openai_calls(const JsonValue& calls, const std::string& where) {
  if (!calls.is_array()) refuse_value(where, "must be an array");
  JsonValue own = JsonValue::array();
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string here = fmt::format("{}[{}].function", where, i);
    const JsonValue* function = calls[i].is_object() ? find_member(calls[i], "function") : nullptr;
    if (!function || !function->is_object()) refuse_value(here, "must be an object");
    const JsonValue* arguments = find_member(*function, "arguments");
    if (arguments && !arguments->is_object()) refuse_value(here + ".arguments", "must be an object");
    // Uses the spacing that models generate, so that the prefix cache finds the generated call.
    const std::string text = arguments ? spaced_json(*arguments) : "{}";
    const auto id = Fields(calls[i], fmt::format("{}[{}].", where, i)).string("id", 256);
    own.push_back({{"type", "function"},
                   {"function", {{"name", string_member(*function, "name", here)}, {"arguments", text}}}});
    if (id) own.back()["id"] = *id;
  }
  return own;
}

// A duration in Go's form, such as "5m", "1h30m" or "-1", in seconds if there is no unit. Nothing if the text is not a
// duration.
std::optional<double> seconds_of(std::string_view text) {
  constexpr std::pair<std::string_view, double> kUnits[] = {{"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9},
                                                            {"h", 3600},  {"m", 60},    {"s", 1}};
  const bool is_negative = text.starts_with('-');
  if (is_negative) text.remove_prefix(1);
  double sum = 0;
  if (text.empty()) return std::nullopt;
  while (!text.empty()) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    const auto unit = std::ranges::find_if(kUnits, [&](const auto& u) { return text.starts_with(u.first); });
    if (unit == std::end(kUnits) && !text.empty()) return std::nullopt;
    sum += number * (unit == std::end(kUnits) ? 1 : unit->second);
    if (unit != std::end(kUnits)) text.remove_prefix(unit->first.size());
  }
  return is_negative ? -sum : sum;
}

// 134515008 -> "134.5M".
std::string short_count(int64_t n) {
  for (const auto& [unit, size] : {std::pair{'B', 1e9}, std::pair{'M', 1e6}, std::pair{'K', 1e3}})
    if (static_cast<double>(n) >= size) return fmt::format("{:.1f}{}", static_cast<double>(n) / size, unit);
  return std::to_string(n);
}

}  // namespace

Fields ollama_fields(const JsonValue& body) { return Fields(body, "", kOllamaAliases); }

JsonValue openai_messages(const JsonValue& messages) {
  JsonValue own = JsonValue::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    const JsonValue& message = messages[i];
    const std::string here = fmt::format("messages[{}]", i);
    if (!message.is_object()) refuse_value(here, "must be an object");
    const Fields fields(message, here + ".");
    JsonValue one = JsonValue::object();
    const std::pair<const char*, const char*> kNames[] = {{"role", "role"},
                                                          {"content", "content"},
                                                          {"thinking", "reasoning_content"},
                                                          {"tool_name", "name"},
                                                          {"tool_call_id", "tool_call_id"}};
    for (const auto& [name, as] : kNames)
      if (const auto text = fields.string(name, 16 << 20)) one[as] = *text;
    if (const JsonValue* calls = fields.find("tool_calls"))
      one["tool_calls"] = openai_calls(*calls, here + ".tool_calls");
    if (const JsonValue* images = fields.find("images")) add_ollama_images(*images, here + ".images", one);
    own.push_back(std::move(one));
  }
  return own;
}

// Ollama's clients send recordings as images.
static bool is_recording(std::string_view base64) {
  constexpr size_t kBeginning = 512;  // a multiple of 4
  const auto bytes = from_base64(base64.substr(0, kBeginning));
  return bytes && kind_of_file(*bytes) == MediaKind::kSound;
}

void add_ollama_images(const JsonValue& images, const std::string& where, JsonValue& message) {
  if (!images.is_array()) refuse_value(where, "must be an array");
  if (images.empty()) return;
  JsonValue parts = JsonValue::array();
  for (size_t i = 0; i < images.size(); ++i) {
    const std::string here = fmt::format("{}[{}]", where, i);
    if (!images[i].is_string()) refuse_value(here, "must be Base64");
    const std::string& data = images[i].get_ref<const std::string&>();
    parts.push_back(is_recording(data) ? recording_part(data, here) : image_data_part(data, here));
  }
  if (const auto content = message.find("content"); content != message.end() && *content != "")
    parts.push_back({{"type", "text"}, {"text", *content}});
  message["content"] = std::move(parts);
}

bool can_think(const ServedModel& model) {
  if (!model.writes()) return false;
  const std::string_view mark = trim(model.answers().format().think_begin);
  return model.chat().mentions("enable_thinking") || model.chat().mentions("reasoning_effort") ||
         (!mark.empty() && model.chat().source().find(mark) != std::string::npos);
}

void read_think(const Fields& fields, const ServedModel& model, JsonValue& chat) {
  const JsonValue* think = fields.find("think");
  if (!think) return;
  const bool is_level = *think == "low" || *think == "medium" || *think == "high";
  if (!think->is_boolean() && !is_level) fields.refuse("think", "must be true, false, low, medium or high");
  const bool wanted = *think != false;
  if (wanted && !can_think(model)) fields.refuse("think", "is not supported by this model: it does not think");
  chat["chat_template_kwargs"] = {{"enable_thinking", wanted}};
  if (is_level) chat["reasoning_effort"] = *think;
}

void read_ollama_format(const Fields& fields, GenerationSpec& spec) {
  const JsonValue* format = fields.find("format");
  if (!format || *format == "") return;
  if (*format == "json") return read_format({{"type", "json_object"}}, "format", spec);
  if (!format->is_object()) fields.refuse("format", "must be \"json\" or a JSON Schema");
  read_format({{"type", "json_schema"}, {"schema", *format}}, "format", spec);
}

bool read_keep_alive(const ApiCall& call, const Fields& fields) {
  const JsonValue* given = fields.find("keep_alive");
  if (!given) return false;
  const auto seconds = given->is_number() ? std::optional(given->get<double>()) : seconds_of(given->get<std::string>());
  constexpr double kMaxSeconds = 1e9;
  if (!seconds || !std::isfinite(*seconds))
    fields.refuse("keep_alive", "must be seconds, or a time such as 5m or 1h30m");
  const double kept_seconds = std::clamp(std::ceil(*seconds), -1.0, kMaxSeconds);
  call.models.keep(call.name, std::chrono::seconds(static_cast<int64_t>(kept_seconds)));
  return *seconds == 0;
}

std::string ollama_name(const std::string& id) { return id.find(':') == std::string::npos ? id + ":latest" : id; }

std::string ollama_time(std::chrono::system_clock::time_point time) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:09}Z", fmt::gmtime(static_cast<std::time_t>(ns / 1'000'000'000)),
                     ns % 1'000'000'000);
}

JsonValue ollama_details(const ServedModel& model) {
  const ModelFacts& facts = model.facts();
  return {{"parent_model", ""},
          {"format", facts.container},
          {"family", facts.architecture},
          {"families", {facts.architecture}},
          {"parameter_size", short_count(facts.n_parameters)},
          {"quantization_level", facts.quantization}};
}

}  // namespace ingot
