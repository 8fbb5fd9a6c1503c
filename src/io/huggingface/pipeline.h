// The steps of tokenizer.json around its vocabulary: normalizer, pre_tokenizer, post_processor, decoder. For
// io/huggingface/tokenizer.
#pragma once
#include "io/json.h"
#include "text/tokenizers/tokenizer_spec.h"

namespace ingot {

// Fills in what kind of tokenizer it is, how it cuts text into words, where it adds a space, BOS or EOS. `root` is the
// whole document; spec has the tokens. Throws Error naming the step that is not supported.
void read_hf_pipeline(const Json& root, TokenizerSpec& spec);

}  // namespace ingot
