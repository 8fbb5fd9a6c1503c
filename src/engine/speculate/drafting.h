// What a model speculates with besides itself: a draft model, or an EAGLE-3 head. The command line and the C API open,
// check and load it here.
#pragma once
#include <memory>

#include "engine/speculate/modes.h"
#include "model/loader.h"

namespace ingot {

// Throws Error if the checkpoint `draft` is of no use: a head where a model is wanted, a model where a head is wanted,
// or a model whose tokens are not those of `tokens`.
void check_draft(const Checkpoint& draft, Speculate how, const Tokenizer& tokens);

// Lets a runner load the draft head that `how` asks for. draft: null or checked.
void choose_draft_head(Speculate how, const std::shared_ptr<const Checkpoint>& draft, RunnerOptions& runner);

// The draft model on the model's device; null if there is none, or if `draft` is a head. runner: the model's options.
std::shared_ptr<DraftModel> load_draft(const std::shared_ptr<const Checkpoint>& draft, const RunnerOptions& runner);

}  // namespace ingot
