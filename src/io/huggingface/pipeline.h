// The steps of tokenizer.json besides its vocabulary: normalizer, pre_tokenizer, post_processor, decoder. For
// io/huggingface/tokenizer.
#pragma once
#include "io/json.h"
#include "text/tokenizers/tokenizer_spec.h"

namespace ingot {

// Sets the tokenizer's kind, the rules that split text into words, and the rules that add a space, BOS or EOS. `root`
// is the whole document; `spec` already has the tokens. adds_around: as in read_hf_tokenizer. Throws Error naming a
// step that is not supported.
void read_hf_pipeline(const Json& root, TokenizerSpec& spec, bool adds_around);

}  // namespace ingot
