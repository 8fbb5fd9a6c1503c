// Checks and loads a separate checkpoint for speculation: a draft model or an EAGLE-3 head. The command line and the C
// API call these functions.
#pragma once
#include <memory>
#include <string>

#include "engine/speculate/modes.h"
#include "model/loader.h"

namespace ingot {

// Throws Error if the checkpoint `draft` does not fit: a head where `how` needs a model, a model where `how` needs a
// head, or a model with a different vocabulary from `tokens`.
void check_draft(const Checkpoint& draft, Speculate how, const Tokenizer& tokens);

// Sets the runner's options so that it loads the draft head that `how` needs. draft: null or checked.
void choose_draft_head(Speculate how, const std::shared_ptr<const Checkpoint>& draft, RunnerOptions& runner);

// Null if there is no draft model, or if `draft` is a head. runner: the model's options. device: of the draft model, as
// in BackendOptions; empty: the model's device, or the CPU if the draft model fits in a core's cache. A token of such a
// model takes some 20 us on the CPU, but 100 us on a GPU, most of them for launches.
std::shared_ptr<DraftModel> load_draft(const std::shared_ptr<const Checkpoint>& draft, const RunnerOptions& runner,
                                       const std::string& device = "");

}  // namespace ingot
