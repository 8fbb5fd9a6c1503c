// The tokenizer of RWKV's "World" models: at each place of the text, the longest token that the bytes begin with.
// Tokens are any bytes. GGUF files spell them as Python does: \n, \xff.
#pragma once
#include <optional>
#include <string>

#include "text/tokenizers/subword.h"
#include "text/tokenizers/trie.h"
#include "text/tokenizers/vocab.h"

namespace ingot {

// Longer tokens are refused, so that encoding a text takes at most this many steps for each byte.
inline constexpr size_t kMaxWorldTokenBytes = 1024;

class World : public Subword {
 public:
  // Throws Error if a token is too long, or if a byte has no token and there is no unknown token. Keeps a reference to
  // vocab.
  World(const Vocab& vocab, const TokenizerSpec& spec);

  void encode(std::string_view text, bool at_start, std::vector<int32_t>& ids) const override;

 private:
  const Vocab& vocab_;
  Trie tokens_;
};

// The bytes of a token in Python's spelling; nothing if an escape is not complete.
std::optional<std::string> unescape_token(std::string_view spelled);
// Python's spelling of bytes, without quotes: repr() of a bytes object.
std::string escape_token(std::string_view bytes);

}  // namespace ingot
