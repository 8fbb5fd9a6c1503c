// The tokenizer that a Hugging Face directory describes (tokenizer.json, with what tokenizer_config.json and
// special_tokens_map.json add), as Tokenizer::create wants it. Four kinds are understood: byte-level BPE, SentencePiece
// BPE with byte fallback as Hugging Face writes it, WordPiece and Unigram. Whatever else such a file can ask for is
// refused by name.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "io/huggingface/directory.h"
#include "text/tokenizers/tokenizer_spec.h"

namespace ingot {

// A specification with what its views look at.
struct HfTokenizerSpec {
  TokenizerSpec spec;
  std::vector<JsonDocument> documents;
  std::deque<std::string> strings;  // what they do not hold as it is needed
};

// `ends`: ids that end an answer, from config.json and generation_config.json. Throws Error naming the file, the path
// of the value and what is wrong; whether the values make sense together is for Tokenizer::create to say.
std::unique_ptr<HfTokenizerSpec> read_hf_tokenizer(const HfDirectory& directory, const std::vector<int64_t>& ends);

}  // namespace ingot
