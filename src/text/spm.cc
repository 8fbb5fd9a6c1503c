#include "text/spm.h"

#include "base/error.h"
#include "base/half.h"
#include "base/utf8.h"

namespace ingot {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

// Orders floats as integers, the largest first; -0 and 0 are equal.
uint32_t rank_of_score(float score) {
  const uint32_t bits = bits_from_float(score + 0.0f);
  return bits >> 31 ? bits : ~(bits | 0x80000000u);
}

}  // namespace

Spm::Spm(const Vocab& vocab, const TokenizerSpec& spec, bool add_space_prefix)
    : vocab_(vocab), add_space_prefix_(add_space_prefix) {
  if (spec.scores.empty()) throw Error("{}: the tokenizer has no scores; 'llama' tokenizers need them", printable(spec.source));
  if (vocab.byte_token(0) < 0 && !vocab.unk)
    throw Error("{}: the tokenizer has neither byte tokens nor an unknown token", printable(spec.source));
  pieces_.reserve(vocab.size());
  ranks_.resize(vocab.size());
  for (int32_t id = 0; id < vocab.size(); ++id) {
    ranks_[id] = rank_of_score(vocab.score(id));
    if (vocab.is_special(id) || vocab.type(id) == TokenType::kByte) continue;
    pieces_.try_emplace(vocab.text(id), id);
    longest_piece_ = std::max(longest_piece_, vocab.text(id).size());
  }
}

int32_t Spm::piece(std::string_view text) const {
  const auto it = pieces_.find(text);
  return it == pieces_.end() ? -1 : it->second;
}

void Spm::encode(std::string_view text, bool at_start, std::vector<int32_t>& ids) const {
  if (text.empty()) return;
  std::string escaped;
  std::vector<Symbol> symbols;
  if (at_start && add_space_prefix_) {
    symbols = symbols_of(std::string(1, ' ').append(text), escaped);
  } else {
    symbols = symbols_of(text, escaped);
  }
  MergeQueue queue;
  queue.merge_all(symbols, [&](const Symbol& left, const Symbol& right) { return find_merge(escaped, left, right); });
  for (uint32_t i = 0; i != Symbol::kNone; i = symbols[i].next) {
    if (symbols[i].id >= 0) {
      ids.push_back(symbols[i].id);
    } else {
      append_bytes(std::string_view(escaped).substr(symbols[i].begin, symbols[i].size), ids);
    }
  }
}

// One symbol a character; one a byte where the text is not UTF-8. escaped is the text as the vocabulary would spell it, but
// that a literal U+2581 has its last byte replaced (by 0xFF, which no token can have): it merges with nothing.
std::vector<Symbol> Spm::symbols_of(std::string_view text, std::string& escaped) const {
  std::vector<Symbol> symbols;
  symbols.reserve(text.size());
  escaped.reserve(text.size() + text.size() / 2);
  while (!text.empty()) {
    const size_t length = std::max<size_t>(1, utf8_length(text));
    const auto begin = static_cast<uint32_t>(escaped.size());
    const std::string_view character = text.substr(0, length);
    if (character == " ") {
      escaped += kSpaceMark;
    } else if (character == kSpaceMark) {
      escaped += "\xE2\x96\xFF";
    } else {
      escaped += character;
    }
    const auto size = static_cast<uint32_t>(escaped.size() - begin);
    symbols.push_back({begin, size, piece(std::string_view(escaped).substr(begin))});
    text.remove_prefix(length);
  }
  return symbols;
}

std::optional<Merge> Spm::find_merge(std::string_view escaped, const Symbol& left, const Symbol& right) const {
  const size_t size = left.size + right.size;
  if (size > longest_piece_) return std::nullopt;
  const int32_t id = piece(escaped.substr(left.begin, size));
  if (id < 0) return std::nullopt;
  return Merge{ranks_[id], id};
}

void Spm::append_bytes(std::string_view bytes, std::vector<int32_t>& ids) const {
  if (vocab_.byte_token(0) < 0) {
    ids.push_back(*vocab_.unk);
    return;
  }
  if (bytes == kSpaceMark) bytes = " ";
  if (bytes == "\xE2\x96\xFF") bytes = kSpaceMark;
  for (char c : bytes) ids.push_back(vocab_.byte_token(static_cast<unsigned char>(c)));
}

}  // namespace ingot
