// Infill: builds the prompt that makes a model write the text between two given texts. The model must have infill
// tokens (Bavarian et al. 2022, "Efficient Training of Language Models to Fill in the Middle"), which are found in the
// vocabulary by their spelling.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "text/tokenizers/tokenizer.h"

namespace ingot {

// The two texts in the format of the model's training. Begins with BOS if the model needs BOS and add_special is set.
// Returns nothing if the model has no infill tokens.
std::optional<std::vector<int32_t>> infill_prompt(const Tokenizer& tokenizer, std::span<const int32_t> before,
                                                  std::span<const int32_t> after, bool add_special);

}  // namespace ingot
