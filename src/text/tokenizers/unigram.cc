#include "text/tokenizers/unigram.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

constexpr double kUnknownPenalty = 10;

// Whether U+2581 follows another character.
bool has_inner_mark(std::string_view piece) {
  while (piece.starts_with(kSpaceMark)) piece.remove_prefix(kSpaceMark.size());
  return piece.find(kSpaceMark) != piece.npos;
}

}  // namespace

Unigram::Unigram(const Vocab& vocab, const TokenizerSpec& spec, bool add_space_prefix)
    : vocab_(vocab),
      pretokenizer_(spec.cuts),
      add_space_prefix_(add_space_prefix),
      split_words_(spec.split_words),
      prefix_rule_(spec.prefix_rule) {
  if (spec.scores.empty())
    throw Error("{}: the tokenizer has no scores; '{}' tokenizers need them", printable(spec.source), spec.model);
  if (!vocab.unk)
    throw Error("{}: the tokenizer names no unknown token; '{}' tokenizers need one", printable(spec.source),
                spec.model);
  std::vector<std::pair<std::string_view, int32_t>> pieces;
  bool inner_marks = false;
  for (int32_t id = 0; id < vocab.size(); ++id) {
    unknown_score_ = std::min(unknown_score_, double{vocab.score(id)});
    if (vocab.is_added(id) || vocab.type(id) == TokenType::kByte || vocab.type(id) == TokenType::kUnused) continue;
    pieces.emplace_back(vocab.text(id), id);
    inner_marks |= has_inner_mark(vocab.text(id));
  }
  unknown_score_ -= kUnknownPenalty;
  // Words that cannot influence each other are encoded separately.
  if (!inner_marks && vocab.find(kSpaceMark)) split_words_ = true;
  trie_ = Trie(std::move(pieces));
}

void Unigram::encode(std::string_view text, bool at_start, std::vector<int32_t>& ids) const {
  pretokenizer_.split(text, [&](std::string_view piece) {
    const bool in_place = prefix_rule_ != PrefixRule::kFirstUnlessSpace || (at_start && piece.data() == text.data());
    const bool has_space = piece.starts_with(' ') || piece.starts_with(kSpaceMark);
    encode_piece(piece, add_space_prefix_ && in_place && !(has_space && prefix_rule_ != PrefixRule::kEveryPart), ids);
  });
}

void Unigram::encode_piece(std::string_view piece, bool prefix, std::vector<int32_t>& ids) const {
  std::string marked(prefix ? kSpaceMark : "");
  for (const char c : piece) {
    if (c == ' ') {
      marked += kSpaceMark;
    } else {
      marked += c;
    }
  }
  std::vector<Best> best;
  std::string_view rest = marked;
  while (!rest.empty()) {
    size_t end = split_words_ ? rest.find(kSpaceMark, 1) : rest.npos;
    end = std::min(end, rest.size());
    encode_marked(rest.substr(0, end), best, ids);
    rest.remove_prefix(end);
  }
}

void Unigram::encode_marked(std::string_view text, std::vector<Best>& best, std::vector<int32_t>& ids) const {
  best.assign(text.size() + 1, {0, 0, -1});
  for (size_t begin = 0; begin < text.size();) {
    const size_t character = std::max<size_t>(1, utf8_length(text.substr(begin)));
    const double so_far = best[begin].score;
    bool known = false;
    auto offer = [&](size_t length, int32_t id, double score) {
      Best& end = best[begin + length];
      if (end.length == 0 || score > end.score) end = {score, static_cast<uint32_t>(length), id};
      known |= length == character;
    };
    trie_.for_each_prefix(text.substr(begin),
                          [&](size_t length, int32_t id) { offer(length, id, so_far + double{vocab_.score(id)}); });
    if (!known) offer(character, -1, so_far + unknown_score_);
    begin += character;
  }
  // Follows the best path backwards, to list the ends of its pieces.
  std::vector<size_t> ends;
  for (size_t end = text.size(); end > 0; end -= best[end].length) ends.push_back(end);
  std::reverse(ends.begin(), ends.end());
  size_t unknown_from = text.npos;
  for (size_t i = 0; i < ends.size(); ++i) {
    const Best& piece = best[ends[i]];
    if (piece.id < 0) {
      unknown_from = std::min(unknown_from, ends[i] - piece.length);
      const bool goes_on = i + 1 < ends.size() && best[ends[i + 1]].id < 0;
      if (goes_on) continue;
      append_unknown(text.substr(unknown_from, ends[i] - unknown_from), ids);
      unknown_from = text.npos;
    } else {
      ids.push_back(piece.id);
    }
  }
}

void Unigram::append_unknown(std::string_view text, std::vector<int32_t>& ids) const {
  if (vocab_.byte_token(0) < 0) {
    ids.push_back(*vocab_.unk);
    return;
  }
  for (const char c : text) ids.push_back(vocab_.byte_token(static_cast<unsigned char>(c)));
}

}  // namespace ingot
