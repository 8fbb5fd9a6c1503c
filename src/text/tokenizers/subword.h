// What turns plain text (no added tokens in it) into ids: byte-level BPE (bpe.h) or SentencePiece BPE (spm.h).
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace ingot {

class Subword {
 public:
  virtual ~Subword() = default;
  // Appends the tokens of text, any bytes at all. at_start: it begins the whole text, or follows an added token.
  virtual void encode(std::string_view text, bool at_start, std::vector<int32_t>& ids) const = 0;
};

}  // namespace ingot
