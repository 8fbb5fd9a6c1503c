// /api/show and /api/pull: requests of Ollama's clients before they use a model.
#include <fmt/format.h>

#include "base/error.h"
#include "server/fields/ollama_fields.h"
#include "text/infill.h"

namespace ingot {
namespace {

JsonValue capabilities(const ServedModel& model) {
  if (model.ranks() || model.hears()) return JsonValue::array();
  if (!model.writes()) return {"embedding"};
  JsonValue names = {"completion", "tools"};
  if (can_think(model)) names.push_back("thinking");
  if (model.reads(MediaKind::kImage)) names.push_back("vision");
  if (model.reads(MediaKind::kSound)) names.push_back("audio");
  if (infill_prompt(model.tokenizer(), {}, {}, false)) names.push_back("insert");
  return names;
}

// Lines with a name and a value, as in a Modelfile.
std::string parameters(const ServedModel& model) {
  const GenerationConfig& own = model.defaults();
  std::string lines = fmt::format("num_ctx {}", model.n_ctx());
  const auto add = [&](const char* name, const auto& value) {
    if (value) lines += fmt::format("\n{} {}", name, *value);
  };
  add("temperature", own.temperature);
  add("top_k", own.top_k);
  add("top_p", own.top_p);
  add("min_p", own.min_p);
  add("repeat_penalty", own.repetition_penalty);
  return lines;
}

}  // namespace

void answer_ollama_show(const ApiCall& call) {
  const ServedModel& model = *call.model;
  const ModelFacts& facts = model.facts();
  const std::string arch = facts.architecture;
  const std::string text = model.writes() ? model.chat().source() : "";
  const JsonValue info = {{"general.architecture", arch},
                          {"general.parameter_count", facts.n_parameters},
                          {arch + ".context_length", facts.n_ctx_train},
                          {arch + ".embedding_length", facts.dim}};
  const std::string own = parameters(model);
  call.responder->respond(
      {.body = dump_json({{"modelfile", "FROM " + model.id()},
                          {"parameters", own},
                          {"template", text},
                          {"details", ollama_details(model)},
                          {"model_info", info},
                          {"capabilities", capabilities(model)},
                          {"modified_at", ollama_time(std::chrono::system_clock::from_time_t(model.created()))}})});
}

// Downloads nothing: the call has already loaded the model, and other models are refused.
void answer_ollama_pull(const ApiCall& call) {
  const Fields fields(call.body);
  const std::string name = fields.string("model", 1024).value_or("");
  if (name.empty()) fields.refuse("model", "is missing");
  if (!call.models.knows(name))
    throw ApiError(404, fmt::format("model '{}' not found: this server has the models that it was started with; start "
                                    "it with this one too (ingot serve MODEL ...)",
                                    printable(name, 128)));
  const bool stream = fields.boolean("stream").value_or(true);
  const char* kDone = R"({"status":"success"})";
  if (!stream) return call.responder->respond({.body = kDone});
  call.responder->respond({.content_type = "application/x-ndjson",
                           .body = fmt::format("{}\n{}\n", R"({"status":"pulling manifest"})", kDone)});
}

}  // namespace ingot
