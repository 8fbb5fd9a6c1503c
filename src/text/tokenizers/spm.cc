#include "text/tokenizers/spm.h"

#include "base/error.h"
#include "base/half.h"
#include "base/utf8.h"
#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

// Whether a space follows another character.
bool has_inner_space(std::string_view piece) {
  while (piece.substr(0, kSpaceMark.size()) == kSpaceMark) piece.remove_prefix(kSpaceMark.size());
  return piece.find(kSpaceMark) != piece.npos;
}

// A U+2581 in the text counts as a space, too.
std::string with_spaces(std::string_view text) {
  std::string out;
  for (size_t at; (at = text.find(kSpaceMark)) != text.npos; text.remove_prefix(at + kSpaceMark.size()))
    out.append(text.substr(0, at)) += ' ';
  return out.append(text);
}

// Orders floats as integers, the largest float first; -0 and 0 are equal.
uint32_t rank_of_score(float score) {
  const uint32_t bits = bits_from_float(score + 0.0f);
  return bits >> 31 ? bits : ~(bits | 0x80000000u);
}

}  // namespace

Spm::Spm(const Vocab& vocab, const TokenizerSpec& spec, bool add_space_prefix)
    : vocab_(vocab), add_space_prefix_(add_space_prefix), prefix_rule_(spec.prefix_rule) {
  if (!spec.merges.empty()) merges_ = read_merges(vocab, spec);
  if (spec.scores.empty() && !merges_)
    throw Error("{}: the tokenizer has no scores and no merges; '{}' tokenizers need them", printable(spec.source),
                spec.model);
  if (vocab.byte_token(0) < 0 && !vocab.unk)
    throw Error("{}: the tokenizer has neither byte tokens nor an unknown token", printable(spec.source));
  pieces_.reserve(vocab.size());
  ranks_.resize(vocab.size());
  for (int32_t id = 0; id < vocab.size(); ++id) {
    ranks_[id] = rank_of_score(vocab.score(id));
    if (vocab.is_special(id) || vocab.type(id) == TokenType::kByte) continue;
    pieces_.try_emplace(vocab.text(id), id);
    longest_piece_ = std::max(longest_piece_, vocab.text(id).size());
    if (has_inner_space(vocab.text(id))) cut_at_spaces_ = false;
  }
}

int32_t Spm::piece(std::string_view text) const {
  const auto it = pieces_.find(text);
  return it == pieces_.end() ? -1 : it->second;
}

void Spm::encode(std::string_view text, bool at_start, std::vector<int32_t>& ids) const {
  Scratch scratch;
  std::string spaced;
  if (text.find(kSpaceMark) != text.npos) text = spaced = with_spaces(text);
  const bool prefix =
      add_space_prefix_ && at_start && !(text.starts_with(' ') && prefix_rule_ != PrefixRule::kEveryPart);
  for (size_t done = 0; done < text.size();) {
    const size_t cut = next_cut(text, done);
    encode_part(text.substr(done, cut - done), prefix && done == 0, scratch, ids);
    done = cut;
  }
}

// Where the next word begins, if the words of this vocabulary are independent. Cutting there keeps the queue short.
size_t Spm::next_cut(std::string_view text, size_t from) const {
  if (!cut_at_spaces_) return text.size();
  size_t end = text.find_first_not_of(' ', from);
  if (end != text.npos) end = text.find(' ', end);
  return std::min(end, text.size());
}

void Spm::encode_part(std::string_view text, bool space_prefix, Scratch& scratch, std::vector<int32_t>& ids) const {
  std::string& escaped = scratch.escaped;
  std::vector<Symbol>& symbols = scratch.symbols;
  escaped.clear();
  symbols.clear();
  if (space_prefix) append_symbol(" ", scratch);
  while (!text.empty()) {
    const size_t length = std::max<size_t>(1, utf8_length(text));  // a byte that is not UTF-8 is a separate symbol
    append_symbol(text.substr(0, length), scratch);
    text.remove_prefix(length);
  }
  scratch.queue.merge_all(symbols,
                          [&](const Symbol& left, const Symbol& right) { return find_merge(escaped, left, right); });
  for (uint32_t i = 0; i != Symbol::kNone; i = symbols[i].next) {
    if (symbols[i].id >= 0) {
      ids.push_back(symbols[i].id);
    } else {
      append_bytes(std::string_view(escaped).substr(symbols[i].begin, symbols[i].size), ids);
    }
  }
}

// Appends the character in the vocabulary's spelling: a space as U+2581.
void Spm::append_symbol(std::string_view character, Scratch& scratch) const {
  const auto begin = static_cast<uint32_t>(scratch.escaped.size());
  if (character == " ") character = kSpaceMark;
  scratch.escaped += character;
  scratch.symbols.push_back({begin, static_cast<uint32_t>(character.size()), piece(character)});
}

std::optional<Merge> Spm::find_merge(std::string_view escaped, const Symbol& left, const Symbol& right) const {
  if (merges_) return left.id < 0 || right.id < 0 ? std::nullopt : merges_->find(left.id, right.id);
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
  for (char c : bytes) ids.push_back(vocab_.byte_token(static_cast<unsigned char>(c)));
}

}  // namespace ingot
