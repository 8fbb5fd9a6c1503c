// Finds the tokens that contain given texts, for the breakers of the DRY sampler.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizers/tokenizer.h"

namespace ingot {

// llama.cpp's breakers: a new line, a colon, a quotation mark and a star.
std::vector<std::string> dry_default_breakers();

// A bit set: bit i is 1 if token i contains one of the texts. Null if there are no texts.
std::shared_ptr<const std::vector<uint32_t>> tokens_with(const Tokenizer& tokenizer,
                                                         const std::vector<std::string>& texts, int n_vocab);

}  // namespace ingot
