// 1_Pooling/config.json of a sentence-transformers directory: how the vectors of a text's tokens become one. Shown by
// `ingot inspect`.
#pragma once
#include <optional>
#include <string>

#include "io/huggingface/directory.h"

namespace ingot {

// "cls", "mean", "max", "mean_sqrt_len_tokens", "weightedmean" or "lasttoken"; nothing when the directory has no such
// file. Throws Error for none or several, or an unknown one.
std::optional<std::string> read_hf_pooling(const HfDirectory& directory);

}  // namespace ingot
