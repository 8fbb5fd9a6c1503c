#include "server/fields/speech_fields.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/json.h"
#include "io/multipart.h"
#include "server/requests/fields.h"

namespace ingot {
namespace {

constexpr size_t kMaxFieldBytes = 64 << 10;
constexpr const char* kFileField = "file";
constexpr std::string_view kSpeechFormats[] = {"json", "text", "srt", "vtt", "verbose_json"};

std::optional<double> number_of(const Fields& fields, const char* name, double low, double high) {
  const auto text = fields.string(name, 64);
  if (!text || text->empty()) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || !(value >= low && value <= high))
    fields.refuse(name, fmt::format("must be a number from {} to {}", low, high));
  return value;
}

bool flag_of(const Fields& fields, const char* name) {
  const std::string text = fields.string(name, 64).value_or("false");
  if (text == "true" || text == "True" || text == "1") return true;
  if (!text.empty() && text != "false" && text != "False" && text != "0") fields.refuse(name, "must be true or false");
  return false;
}

// OpenAI's chunking_strategy: "auto", or an object of the type server_vad, whose numbers are checked and have no
// effect. With one, windows end at pauses.
bool wants_chunks(const Fields& fields) {
  const std::string text = fields.string("chunking_strategy", kMaxFieldBytes).value_or("");
  if (text.empty() || text == "auto") return text == "auto";
  const JsonValue json = JsonValue::parse(text, nullptr, false);
  if (!json.is_object() || json.value("type", JsonValue()) != "server_vad")
    fields.refuse("chunking_strategy", "must be auto, or an object of the type server_vad");
  for (const auto& [name, value] : json.items())
    if (name != "type" && !value.is_number())
      fields.refuse("chunking_strategy", fmt::format("has a {} that is no number", printable(name, 64)));
  return true;
}

}  // namespace

JsonValue form_as_json(const HttpRequest& request, std::string_view body, std::string_view& file) {
  const std::string* type = request.header("content-type");
  std::vector<FormPart> parts;
  try {
    parts = read_form_data(type == nullptr ? "" : *type, body);
  } catch (const Error& error) {
    throw ApiError(400, error.what());
  }
  JsonValue json = JsonValue::object();
  for (const FormPart& part : parts) {
    std::string name = part.name;
    if (name.ends_with("[]")) name.resize(name.size() - 2);  // a list
    if (name == kFileField) {
      if (json.contains(name)) throw ApiError(400, "the form has several files: send one in each request", name);
      file = part.data;
      json[name] = part.filename;
      continue;
    }
    if (part.data.size() > kMaxFieldBytes)
      throw ApiError(
          400, fmt::format("{} has {} bytes; the limit is {}", printable(name, 64), part.data.size(), kMaxFieldBytes),
          printable(name, 64));
    std::string text(part.data);
    if (json.contains(name)) text = json[name].get<std::string>() + "," + text;  // of a list
    json[name] = std::move(text);
  }
  return json;
}

SpeechRequest read_speech_request(const ApiCall& call, bool translates) {
  const Fields fields(call.body);
  SpeechRequest request;
  SpeechOptions& options = request.options;
  fields.at(kFileField);
  options.translates = translates || flag_of(fields, "translate");
  options.language = fields.string("language", 64).value_or("");
  if (options.language == "auto") options.language.clear();
  options.prompt = fields.string("prompt", kMaxFieldBytes).value_or("");
  options.hotwords = fields.string("hotwords", kMaxFieldBytes).value_or("");
  if (const auto temperature = number_of(fields, "temperature", 0, 2); temperature && *temperature > 0)
    options.temperatures = {static_cast<float>(*temperature)};
  request.format = fields.string("response_format", 64).value_or("json");
  if (std::ranges::find(kSpeechFormats, request.format) == std::end(kSpeechFormats))
    fields.refuse("response_format", "must be json, text, srt, vtt or verbose_json");
  request.streams = flag_of(fields, "stream");
  if (request.streams && request.format != "json" && request.format != "text")
    fields.refuse("stream", "is possible with the formats json and text only");
  const std::string times = fields.string("timestamp_granularities", 256).value_or("segment");
  options.word_times = times.find("word") != times.npos;
  if (options.word_times && request.format != "verbose_json")
    fields.refuse("timestamp_granularities", "with word needs the response_format verbose_json");
  if (wants_chunks(fields)) options.n_parallel = call.model->speech().limits().n_parallel;
  try {
    call.model->speech().check(options);
  } catch (const Error& error) {
    throw ApiError(400, error.what());
  }
  return request;
}

}  // namespace ingot
