// Infill: the prompt with which a model writes the text between two given texts, for models that have tokens for this
// (Bavarian et al. 2022, "Efficient Training of Language Models to Fill in the Middle"). These tokens are recognised by
// their spelling in the vocabulary.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "text/tokenizers/tokenizer.h"

namespace ingot {

// The two texts in the format of the model's training. A BOS goes in front if the model needs it and add_special is
// set. Returns nothing if the model has no infill tokens.
std::optional<std::vector<int32_t>> infill_prompt(const Tokenizer& tokenizer, std::span<const int32_t> before,
                                                  std::span<const int32_t> after, bool add_special);

}  // namespace ingot
