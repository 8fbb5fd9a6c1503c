// Filling in: the prompt of a model that writes what goes between two texts, for the models that have tokens for it
// (Bavarian et al. 2022, "Efficient Training of Language Models to Fill in the Middle"). Which these are is told by how
// the vocabulary spells them.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "text/tokenizers/tokenizer.h"

namespace ingot {

// The two texts as the model was trained to see them, behind a BOS where it wants one and add_special says so; nothing
// where it has no tokens for that.
std::optional<std::vector<int32_t>> infill_prompt(const Tokenizer& tokenizer, std::span<const int32_t> before,
                                                  std::span<const int32_t> after, bool add_special);

}  // namespace ingot
