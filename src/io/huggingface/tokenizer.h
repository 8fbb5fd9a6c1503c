// Reads the tokenizer of a Hugging Face directory (tokenizer.json, tokenizer_config.json and special_tokens_map.json)
// as a TokenizerSpec for Tokenizer::create. Four kinds are supported: byte-level BPE, SentencePiece BPE with byte
// fallback, WordPiece and Unigram. For any other feature, the Error names the feature. Without a tokenizer.json, lists
// of tokens are read: tekken.h, rwkv_vocab.h.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "io/huggingface/directory.h"
#include "text/tokenizers/tokenizer_spec.h"

namespace ingot {

// A specification, with the documents and strings that its views refer to.
struct HfTokenizerSpec {
  TokenizerSpec spec;
  std::vector<JsonDocument> documents;
  std::deque<std::string> strings;  // strings that the documents lack in the required form
};

// `ends`: ids that end an answer, from config.json and generation_config.json. Throws Error naming the file, the path
// of the value and the fault. Tokenizer::create checks whether the values are consistent. adds_around: false if the
// caller itself adds all tokens around a text, so those of the file (post_processor) do not matter.
std::unique_ptr<HfTokenizerSpec> read_hf_tokenizer(const HfDirectory& directory, const std::vector<int64_t>& ends,
                                                   bool adds_around = true);

}  // namespace ingot
