// Loading: a checkpoint becomes a tokenizer, a chat template and a runner. The program's verbs and the server start
// here.
#pragma once
#include <memory>
#include <optional>

#include "model/checkpoint.h"
#include "model/ranks.h"
#include "text/chat.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {

struct LoadedModel {
  std::shared_ptr<const Checkpoint> checkpoint;
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat;  // none when the checkpoint has none
  std::unique_ptr<Ranks> runner;
  double load_ms = 0;
};

// The chat template of the checkpoint, if it has one.
std::optional<ChatTemplate> load_chat_template(const Checkpoint& checkpoint, const Tokenizer& tokenizer);

// Everything. Throws Error with the file's name for whatever is wrong with it.
LoadedModel load_model(std::shared_ptr<const Checkpoint> checkpoint, const RunnerOptions& options,
                       const LoadProgress& progress);

}  // namespace ingot
