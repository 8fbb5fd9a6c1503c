#include "model/loader.h"

#include <chrono>

#include "base/error.h"
#include "io/gguf_tokenizer.h"

namespace ingot {
namespace {

std::string text_of(const Tokenizer& tokenizer, std::optional<int32_t> id) {
  return id ? std::string(tokenizer.token_text(*id)) : std::string();
}

void check_vocabulary(const Gguf& file, const Tokenizer& tokenizer, const Config& config) {
  if (tokenizer.n_vocab() > config.n_vocab)
    throw file.metadata().error("tokenizer.ggml.tokens", "{} tokens, and the embedding has {} rows", tokenizer.n_vocab(),
                                config.n_vocab);
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const Gguf& file) { return Tokenizer::create(tokenizer_spec(file)); }

std::optional<ChatTemplate> load_chat_template(const Gguf& file, const Tokenizer& tokenizer) {
  const auto source = file.metadata().find_string("tokenizer.chat_template");
  if (!source) return std::nullopt;
  return ChatTemplate(std::string(*source), text_of(tokenizer, tokenizer.bos()), text_of(tokenizer, tokenizer.eos()));
}

LoadedModel load_model(std::shared_ptr<const Gguf> file, const RunnerOptions& options, const LoadProgress& progress) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  LoadedModel model;
  model.file = std::move(file);
  const Config config = config_from_gguf(*model.file);
  model.tokenizer = load_tokenizer(*model.file);
  check_vocabulary(*model.file, *model.tokenizer, config);
  model.chat = load_chat_template(*model.file, *model.tokenizer);
  model.runner = std::make_unique<Ranks>(config, gguf_source(model.file), options, progress);
  model.load_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  return model;
}

}  // namespace ingot
