#include "model/loader.h"

#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "io/gguf/projector.h"
#include "model/files/load_quantizer.h"
#include "model/vectors/embedder.h"
#include "text/jinja/template.h"

namespace ingot {
namespace {

std::string token_text(const Tokenizer& tokenizer, std::optional<int32_t> id) {
  return id ? std::string(tokenizer.token_text(*id)) : std::string();
}

void check_vocabulary(const Checkpoint& checkpoint, const Tokenizer& tokenizer, const Config& config) {
  if (tokenizer.n_vocab() > config.n_vocab)
    throw Error("{}: the tokenizer has {} tokens, but the embedding has only {} rows", printable(checkpoint.path()),
                tokenizer.n_vocab(), config.n_vocab);
}

// Before the text model, whose program depends on the tower.
void load_tower(LoadedModel& model, Config& config, const VisionOptions& options) {
  try {
    model.vision = open_vision(*model.checkpoint, config, *model.tokenizer, options);
    Config adapted = config;  // a tower that does not fit must change nothing
    if (model.vision) model.vision->adapt(adapted);
    config = std::move(adapted);
  } catch (const Error& error) {
    if (options.is_needed) throw;
    model.vision = nullptr;
    log_warn("the model reads text only, because its vision tower cannot be loaded: {}", error.what());
  }
}

}  // namespace

// What GGUF files of RWKV name instead of a template.
constexpr const char* kRwkvWorldTemplate =
    "{% for m in messages %}{{ m['role'] | capitalize }}: {{ m['content'] | trim }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}";

std::optional<ChatTemplate> load_chat_template(const Checkpoint& checkpoint, const Tokenizer& tokenizer) {
  auto source = checkpoint.chat_template();
  if (!source) return std::nullopt;
  if (*source == "rwkv-world") source = kRwkvWorldTemplate;
  return ChatTemplate(*std::move(source), token_text(tokenizer, tokenizer.bos()),
                      token_text(tokenizer, tokenizer.eos()));
}

void use_chat_template(LoadedModel& model, const std::string& source) {
  if (source == "chatml") {
    model.chat = ChatTemplate::chatml_default();
    return;
  }
  if (source.find('{') == std::string::npos)
    throw Error("the chat template '{}' is no Jinja: give a template's text, or the name chatml",
                printable(source, 64));
  Template::parse(source);  // throws here; ChatTemplate would use ChatML instead
  const Tokenizer& tokenizer = *model.tokenizer;
  model.chat = ChatTemplate(source, token_text(tokenizer, tokenizer.bos()), token_text(tokenizer, tokenizer.eos()));
}

VisionOptions vision_options(const Checkpoint& checkpoint, const RunnerOptions& runner, const std::string& mmproj) {
  VisionOptions options{.backend = runner.backend,
                        .mmproj = mmproj.empty() ? find_projector(checkpoint.path()) : mmproj,
                        .check_tensors = runner.check_tensors,
                        .is_needed = !mmproj.empty()};
  options.backend.device = chosen_device(options.backend.device.substr(0, options.backend.device.find(',')));
  return options;
}

LoadedModel load_model(std::shared_ptr<const Checkpoint> checkpoint, const RunnerOptions& options,
                       const LoadProgress& progress, const std::optional<VisionOptions>& vision) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  LoadedModel model;
  model.checkpoint = std::move(checkpoint);
  Config config = model.checkpoint->config();
  if (config.bidirectional) {
    const bool ranks = read_embed_facts(*model.checkpoint).pooling == "rank";
    throw Error("{}: this model {} and cannot write text: use `ingot {}`", printable(model.checkpoint->path()),
                ranks ? "ranks documents" : "makes vectors of texts", ranks ? "rerank" : "embed");
  }
  model.tokenizer = model.checkpoint->tokenizer();
  check_vocabulary(*model.checkpoint, *model.tokenizer, config);
  model.chat = load_chat_template(*model.checkpoint, *model.tokenizer);
  if (vision) load_tower(model, config, *vision);
  model.runner = start_ranks(config, quantized_source(model.checkpoint->weights(), config, options.quantize), options,
                             progress);
  model.load_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  return model;
}

}  // namespace ingot
