#include "text/tokenizers/wordpiece.h"

#include <algorithm>

#include "base/error.h"
#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

size_t n_characters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::vector<CutRule> bert_cuts() { return {{R"(\s+)", Cut::kDropMatches}, {R"([\p{P}$+<=>^`|~])", Cut::kIsolate}}; }

std::vector<NormalizerStep> bert_normalizer(bool clean, bool space_cjk, std::optional<bool> strip_accents,
                                            bool lowercase) {
  using Kind = NormalizerStep::Kind;
  std::vector<NormalizerStep> steps;
  auto add = [&](Kind kind) { steps.push_back({.kind = kind}); };
  if (clean) add(Kind::kCleanText);
  if (space_cjk) add(Kind::kSpaceCjk);
  if (strip_accents.value_or(lowercase)) add(Kind::kNfd), add(Kind::kStripMarks);
  if (lowercase) add(Kind::kLowercase);
  return steps;
}

WordPiece::WordPiece(const Vocab& vocab, const TokenizerSpec& spec)
    : vocab_(vocab), pretokenizer_(spec.cuts), max_word_chars_(static_cast<size_t>(spec.max_word_chars)) {
  if (!vocab.unk)
    throw Error("{}: the tokenizer names no unknown token; '{}' tokenizers need one", printable(spec.source),
                spec.model);
  std::vector<std::pair<std::string_view, int32_t>> starts, rests;
  for (int32_t id = 0; id < vocab.size(); ++id) {
    if (vocab.is_special(id)) continue;
    const std::string_view text = vocab.text(id);
    if (text.starts_with(kSpaceMark)) {
      starts.emplace_back(text.substr(kSpaceMark.size()), id);
    } else {
      rests.emplace_back(text, id);
    }
  }
  starts_ = Trie(std::move(starts));
  rests_ = Trie(std::move(rests));
}

void WordPiece::encode(std::string_view text, bool, std::vector<int32_t>& ids) const {
  pretokenizer_.split(text, [&](std::string_view word) { encode_word(word, ids); });
}

void WordPiece::encode_word(std::string_view word, std::vector<int32_t>& ids) const {
  const size_t n_before = ids.size();
  bool known = n_characters(word) <= max_word_chars_;
  for (const Trie* trie = &starts_; known && !word.empty(); trie = &rests_) {
    size_t length = 0;
    trie->for_each_prefix(word, [&](size_t n, int32_t id) {
      if (length == 0) ids.push_back(id);
      ids.back() = id;
      length = n;
    });
    known = length > 0;
    word.remove_prefix(length);
  }
  if (known) return;
  ids.resize(n_before);
  ids.push_back(*vocab_.unk);
}

}  // namespace ingot
