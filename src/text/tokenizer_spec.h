// What a checkpoint says about its tokenizer, free of any file format. The readers of src/io fill it in;
// Tokenizer::create checks it and copies what it keeps, so the views need to live only until then.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

// GGUF's numbers for tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  kUndefined = 0,  // treated as kNormal
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // <|im_start|>: made by templates only, never by a user's text
  kUserDefined = 4,  // recognised in any text, before everything else
  kUnused = 5,
  kByte = 6,  // <0x41>: one byte, SentencePiece's fallback
};

// An added token that takes the white space on its sides with it (Hugging Face's lstrip and rstrip).
struct StripRule {
  int32_t id;
  bool left;
  bool right;
};

struct TokenizerSpec {
  std::string source;  // the file's name, for messages
  std::string model;   // "gpt2" (byte-level BPE) or "llama" (SentencePiece BPE)
  std::string pre;     // which pre-tokenizer, for "gpt2" (text/pretokenizer_table.h)
  std::vector<std::string_view> tokens;
  std::vector<float> scores;             // for "llama": higher merges first
  std::vector<int32_t> token_types;      // TokenType; may be absent
  std::vector<std::string_view> merges;  // for "gpt2": "left right", best first
  std::vector<StripRule> strips;
  std::optional<int64_t> bos, eos, eot, eom, unk, pad;
  std::optional<bool> add_bos, add_eos, add_space_prefix;
};

}  // namespace ingot
