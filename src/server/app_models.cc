// The App's answers about its models, in the forms of OpenAI's, llama.cpp's and Ollama's APIs.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "backend/device_name.h"
#include "base/error.h"
#include "base/json.h"
#include "server/app.h"
#include "server/fields/ollama_fields.h"
#include "server/requests/fields.h"

namespace ingot {
namespace {

constexpr const char* kStates[] = {"unloaded", "loading", "loaded", "failed"};  // indexed by ModelState

// The shortest number that is the same float: 0.8, not 0.800000011920929.
double short_number(float value) { return std::strtod(fmt::format("{}", value).c_str(), nullptr); }

// The sampling of requests that say nothing about it, with llama.cpp's names.
JsonValue default_sampling(const ServedModel& model) {
  const SamplingParams p;
  const GenerationConfig& own = model.defaults();
  return {{"temperature", short_number(own.temperature.value_or(p.temperature))},
          {"top_k", own.top_k.value_or(p.top_k)},
          {"top_p", short_number(own.top_p.value_or(p.top_p))},
          {"min_p", short_number(own.min_p.value_or(p.min_p))},
          {"typical_p", short_number(own.typical_p.value_or(p.typical_p))},
          {"repeat_penalty", short_number(own.repetition_penalty.value_or(p.repetition_penalty))},
          {"repeat_last_n", own.penalty_window.value_or(p.penalty_window)}};
}

JsonValue image_facts(const ServedModel& model) {
  const BoxUnit boxes = model.vision().box_unit();
  JsonValue unit = {{"unit", "thousandths"}};
  if (boxes.multiple > 0)
    unit = {{"unit", "pixels"},
            {"multiple", boxes.multiple},
            {"min_pixels", boxes.min_pixels},
            {"max_pixels", boxes.max_pixels}};
  const ImageLimits& limits = model.media()->limits().images;
  return {{"max_bytes", limits.max_bytes}, {"max_pixels", limits.max_pixels}, {"boxes", std::move(unit)}};
}

JsonValue recording_facts(const AudioLimits& limits) {
  return {{"max_bytes", limits.max_bytes}, {"max_seconds", limits.max_seconds}};
}

JsonValue model_json(const ModelPool::Row& row) {
  JsonValue json = {{"id", row.id},           {"object", "model"},
                    {"created", 0},           {"owned_by", "ingot"},
                    {"aliases", row.aliases}, {"status", {{"value", kStates[static_cast<int>(row.state)]}}}};
  if (!row.model) return json;
  const ServedModel& m = *row.model;
  json["created"] = m.created();
  json["max_model_len"] = m.n_ctx();
  JsonValue inputs = JsonValue::array({"text"});
  if (m.reads(MediaKind::kImage)) inputs.push_back("image");
  if (m.reads(MediaKind::kSound)) inputs.push_back("audio");
  if (m.hears()) inputs = JsonValue::array({"audio"});
  json["architecture"] = {{"input_modalities", std::move(inputs)},
                          {"output_modalities",
                           {m.writes() || m.hears() ? "text"
                            : m.ranks()             ? "scores"
                                                    : "embeddings"}}};
  if (m.reads(MediaKind::kImage)) json["images"] = image_facts(m);
  if (m.reads(MediaKind::kSound)) json["recordings"] = recording_facts(m.media()->limits().sounds);
  json["meta"] = {{"n_vocab", m.info().n_vocab},           {"n_ctx", m.n_ctx()},
                  {"n_ctx_train", m.facts().n_ctx_train},  {"n_embd", m.facts().dim},
                  {"n_params", m.facts().n_parameters},    {"size", m.facts().n_bytes},
                  {"architecture", m.facts().architecture}};
  if (!m.writes()) return json;
  const ThinkingControls& thinking = m.thinking();
  json["thinking"] = {{"switch", thinking.switch_name.empty() ? JsonValue() : JsonValue(thinking.switch_name)},
                      {"efforts", thinking.efforts}};
  json["default_sampling"] = default_sampling(m);
  return json;
}

}  // namespace

HttpResponse App::list_models(const HttpRequest&) const {
  JsonValue data = JsonValue::array();
  for (const ModelPool::Row& row : models_.rows()) data.push_back(model_json(row));
  return {.body = dump_json({{"object", "list"}, {"data", std::move(data)}})};
}

HttpResponse App::show_model(const HttpRequest& request) const {
  const std::string name = request.path.substr(std::string_view("/v1/models/").size());
  for (const ModelPool::Row& row : models_.rows())
    if (row.id == name || std::ranges::find(row.aliases, name) != row.aliases.end())
      return {.body = dump_json(model_json(row))};
  throw ApiError(404, fmt::format("there is no model '{}'", printable(name, 128)), "model", "model_not_found");
}

HttpResponse App::props(const HttpRequest&) const {
  const auto loaded = models();
  if (loaded.empty()) throw ApiError(503, "no model is loaded");
  const auto& model = loaded.front();
  const Tokenizer& tokenizer = model->tokenizer();
  const auto text = [&](std::optional<int32_t> id) {
    return id ? JsonValue(std::string(tokenizer.token_text(*id))) : JsonValue();
  };
  return {.body = dump_json(
              {{"default_generation_settings", {{"n_ctx", model->n_ctx()}, {"params", default_sampling(*model)}}},
               {"total_slots", model->info().max_seqs},
               {"model_alias", model->id()},
               {"chat_template", model->writes() ? JsonValue(model->chat().source()) : JsonValue()},
               {"bos_token", text(tokenizer.bos())},
               {"eos_token", text(tokenizer.eos())},
               {"modalities",
                {{"vision", model->reads(MediaKind::kImage)},
                 {"audio", model->hears() || model->reads(MediaKind::kSound)}}},
               {"build_info", "ingot " + options_.version},
               {"is_sleeping", false}})};
}

// ---- llama.cpp's ----

// A slot for each sequence that can run at once.
HttpResponse App::slots(const HttpRequest& request) const {
  const auto loaded = models();
  if (loaded.empty()) throw ApiError(503, "no model is loaded");
  ServedModel& model = *loaded.front();
  const std::vector<bool> busy = model.writes() ? model.slots().busy() : std::vector<bool>();
  if (std::ranges::all_of(busy, std::identity()) && request.query.find("fail_on_no_slot=1") != std::string::npos)
    throw ApiError(503, "no slot available");
  JsonValue list = JsonValue::array();
  for (size_t i = 0; i < busy.size(); ++i)
    list.push_back({{"id", i},
                    {"n_ctx", model.n_ctx()},
                    {"speculative", model.speculate() != Speculate::kOff},
                    {"is_processing", static_cast<bool>(busy[i])}});
  return {.body = dump_json(list)};
}

HttpResponse App::version(const HttpRequest&) const { return {.body = dump_json({{"version", options_.version}})}; }

void answer_load(const ApiCall& call) { call.responder->respond({.body = R"({"success":true})"}); }

HttpResponse App::unload(const std::string& name) {
  switch (models_.unload(name)) {
    case ModelPool::Unload::kDone: return {.body = R"({"success":true})"};
    case ModelPool::Unload::kNotLoaded: throw ApiError(400, "the model is not loaded", "model");
    case ModelPool::Unload::kPinned: throw ApiError(409, "the model is pinned, so it stays loaded", "model");
    default: throw ApiError(409, "the model is being loaded or answers a request: try again soon", "model");
  }
}

// ---- Ollama's ----

namespace {

// {"name", "model", "size", "digest", "details"}; the digest is of the name, because clients only compare it.
JsonValue ollama_model(const ModelPool::Row& row) {
  const std::string name = ollama_name(row.id);
  std::string digest;
  for (int i = 0; i < 4; ++i) digest += fmt::format("{:016x}", std::hash<std::string>()(fmt::format("{} {}", i, name)));
  JsonValue details = row.model ? ollama_details(*row.model) : JsonValue{{"format", ""}, {"family", ""}};
  return {{"name", name},
          {"model", name},
          {"size", row.model ? row.model->facts().n_bytes : 0},
          {"digest", digest},
          {"details", std::move(details)}};
}

}  // namespace

HttpResponse App::ollama_tags(const HttpRequest&) const {
  JsonValue list = JsonValue::array();
  for (const ModelPool::Row& row : models_.rows()) {
    JsonValue model = ollama_model(row);
    model["modified_at"] =
        ollama_time(std::chrono::system_clock::from_time_t(row.model ? row.model->created() : started_));
    list.push_back(std::move(model));
  }
  return {.body = dump_json({{"models", std::move(list)}})};
}

HttpResponse App::ollama_ps(const HttpRequest&) const {
  constexpr std::chrono::hours kNever{24 * 365 * 100};
  JsonValue list = JsonValue::array();
  for (const ModelPool::Row& row : models_.rows()) {
    if (!row.model) continue;
    JsonValue model = ollama_model(row);
    const auto left = std::chrono::duration_cast<std::chrono::system_clock::duration>(row.left.value_or(kNever));
    model["expires_at"] = ollama_time(std::chrono::system_clock::now() + left);
    model["size"] = row.model->facts().taken_bytes;
    size_t on_gpus = 0;
    for (const DeviceBytes& taken : row.model->facts().devices) on_gpus += is_cuda(taken.device) ? taken.bytes : 0;
    model["size_vram"] = on_gpus;
    model["context_length"] = row.model->n_ctx();
    list.push_back(std::move(model));
  }
  return {.body = dump_json({{"models", std::move(list)}})};
}

HttpResponse App::ollama_version(const HttpRequest&) const {
  return {.body = dump_json({{"version", kOllamaVersion}, {"ingot", options_.version}})};
}

}  // namespace ingot
