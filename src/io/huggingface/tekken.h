// Reads tekken.json, the tokenizer of Mistral's checkpoints (mistral-common's Tekkenizer), as a TokenizerSpec: byte-level
// BPE whose vocabulary is a list of byte strings by rank. Special tokens have the first ids.
#pragma once
#include <memory>

#include "io/huggingface/directory.h"
#include "io/huggingface/tokenizer.h"

namespace ingot {

inline constexpr const char* kTekkenFile = "tekken.json";

// Throws Error naming the file, the path of the value and the fault.
std::unique_ptr<HfTokenizerSpec> read_tekken(const HfDirectory& directory);

}  // namespace ingot
