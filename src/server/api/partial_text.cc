#include "server/api/partial_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace ingot {
namespace {

// The probabilities of words that need no second result: of one that another word follows, and of the last one, which
// may go on.
constexpr float kProbable = 0.8f, kProbableLast = 0.95f;
constexpr size_t kContradiction = 3;  // words that were sent, of which a result has none

enum class SignKind { kSign, kLetter, kWholeWord };

// Letters, digits and accents make words. Where a script has no spaces, each character is a word.
SignKind kind_of(utf8proc_int32_t c) {
  const utf8proc_category_t category = utf8proc_category(c);
  const bool is_letter = (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NO);
  if (!is_letter) return SignKind::kSign;
  return category == UTF8PROC_CATEGORY_LO && c >= 0x0E00 ? SignKind::kWholeWord : SignKind::kLetter;
}

// The character at a place of a text, and its bytes. A byte that is no UTF-8 is a character.
std::pair<utf8proc_int32_t, size_t> character_at(std::string_view text, size_t at) {
  utf8proc_int32_t c = -1;
  const auto n = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                                  static_cast<utf8proc_ssize_t>(text.size() - at), &c);
  return n > 0 ? std::pair(c, static_cast<size_t>(n)) : std::pair(utf8proc_int32_t{0xFFFD}, size_t{1});
}

bool joins_letters(utf8proc_int32_t c) { return c == '\'' || c == 0x2019 || c == '-' || c == '.' || c == ','; }

// The end of the word that begins at a place. "don't", "3.5" and "well-known" are words.
size_t word_end(std::string_view text, size_t begin) {
  auto [c, n] = character_at(text, begin);
  size_t end = begin + n;
  if (kind_of(c) == SignKind::kWholeWord) return end;
  while (end < text.size()) {
    const auto [next, n_next] = character_at(text, end);
    if (kind_of(next) == SignKind::kLetter) {
      end += n_next;
      continue;
    }
    if (!joins_letters(next) || end + n_next >= text.size()) return end;
    if (kind_of(character_at(text, end + n_next).first) != SignKind::kLetter) return end;
    end += n_next;
  }
  return end;
}

bool same_word(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

}  // namespace

std::vector<PartialText::Word> PartialText::words_of(std::string_view text) {
  std::vector<Word> words;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const auto [c, n] = character_at(text, at);
    if (kind_of(c) == SignKind::kSign) {
      at += n;
      continue;
    }
    const size_t end = word_end(text, at);
    words.push_back({text.substr(begin, at - begin), text.substr(at, end - at), end});
    begin = at = end;
  }
  return words;
}

// The first word that was not sent. The words before it are those that were sent, with as few words changed, left out
// and added as possible, since a result may hear them in another way. Nothing if it has none of at least three.
std::optional<size_t> PartialText::next_word(const std::vector<Word>& words) const {
  std::vector<size_t> row(words.size() + 1);  // changes, if the words up to a place were sent
  std::iota(row.begin(), row.end(), size_t{0});
  for (const std::string& sent : sent_) {
    size_t diagonal = std::exchange(row[0], row[0] + 1);
    for (size_t i = 1; i < row.size(); ++i) {
      const size_t changed = diagonal + (same_word(words[i - 1].letters, sent) ? 0 : 1);
      diagonal = std::exchange(row[i], std::min({changed, row[i - 1] + 1, row[i] + 1}));
    }
  }
  const auto drift = [&](size_t i) { return i < sent_.size() ? sent_.size() - i : i - sent_.size(); };
  size_t best = 0;
  for (size_t i = 1; i < row.size(); ++i)
    if (std::pair(row[i], drift(i)) < std::pair(row[best], drift(best))) best = i;
  if (sent_.size() >= kContradiction && row[best] >= sent_.size()) return std::nullopt;
  return best;
}

std::string PartialText::add(std::span<const SpeechPiece> result) {
  std::string text;
  std::vector<float> probabilities;  // of the bytes
  for (const SpeechPiece& piece : result) {
    text += piece.text;
    probabilities.resize(text.size(), piece.probability);
  }
  const std::vector<Word> now = words_of(text), before = words_of(last_);
  const std::optional<size_t> first = next_word(now), first_before = next_word(before);
  const auto agree = [&](size_t n) {
    return first_before && *first_before + n < before.size() &&
           same_word(now[*first + n].letters, before[*first_before + n].letters);
  };
  const auto is_probable = [&](size_t i) {
    const auto end = probabilities.begin() + static_cast<std::ptrdiff_t>(now[i].end);
    return *std::min_element(end - static_cast<std::ptrdiff_t>(now[i].letters.size()), end) >=
           (i + 1 < now.size() ? kProbable : kProbableLast);
  };
  std::string added;
  for (size_t n = 0; first && *first + n < now.size() && (agree(n) || is_probable(*first + n)); ++n) {
    const Word& word = now[*first + n];
    if (!sent_.empty()) added += word.signs;  // no space before the first word
    added += word.letters;
    sent_.emplace_back(word.letters);
  }
  last_ = text;
  return added;
}

std::string PartialText::add_certain(const std::string& text) {
  const std::vector<Word> words = words_of(text);
  const std::optional<size_t> next = next_word(words);
  const size_t begin = std::max(certain_.size(), !next ? text.size() : *next == 0 ? 0 : words[*next - 1].end);
  certain_ = text;
  return begin < text.size() ? text.substr(begin) : "";
}

}  // namespace ingot
