// Turns plain text (without added tokens) into ids: byte-level BPE (bpe.h), SentencePiece BPE (spm.h), WordPiece
// (wordpiece.h), Unigram (unigram.h) or the longest tokens (world.h).
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace ingot {

class Subword {
 public:
  virtual ~Subword() = default;
  // Appends the tokens of text, which may be any bytes. at_start: the text is at the start, or follows an added token.
  virtual void encode(std::string_view text, bool at_start, std::vector<int32_t>& ids) const = 0;
};

}  // namespace ingot
