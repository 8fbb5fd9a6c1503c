// Reads rwkv_vocab_v20230424.txt, the tokenizer of RWKV's World models: lines of a token's id, the token as a literal
// of Python ('...' of characters or b'...' of bytes), and its number of bytes. Token 0 ends a text and is not listed.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "io/huggingface/directory.h"
#include "io/huggingface/tokenizer.h"

namespace ingot {

inline constexpr const char* kRwkvVocabFile = "rwkv_vocab_v20230424.txt";

// Throws Error naming the file, the line and the fault.
std::unique_ptr<HfTokenizerSpec> read_rwkv_vocab(const HfDirectory& directory, const std::vector<int64_t>& ends);
// The same, of a document in memory; `source` is for messages.
std::unique_ptr<HfTokenizerSpec> parse_rwkv_vocab(std::string_view text, std::string source);

}  // namespace ingot
