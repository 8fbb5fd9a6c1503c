// The tokenizer of a Hugging Face directory (tokenizer.json, completed by tokenizer_config.json and
// special_tokens_map.json), in the form that Tokenizer::create takes. Four kinds are supported: byte-level BPE,
// SentencePiece BPE with byte fallback as Hugging Face writes it, WordPiece and Unigram. Any other feature of such a
// file is refused by name.
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
  std::deque<std::string> strings;  // strings that the documents do not have in the needed form
};

// `ends`: ids that end an answer, from config.json and generation_config.json. Throws Error naming the file, the path
// of the value and the fault. Tokenizer::create checks whether the values fit together.
std::unique_ptr<HfTokenizerSpec> read_hf_tokenizer(const HfDirectory& directory, const std::vector<int64_t>& ends);

}  // namespace ingot
