#include "server/api/partial_text.h"

#include <utf8proc.h>

#include <algorithm>

namespace ingot {
namespace {

constexpr size_t kDrift = 3;  // words by which a result may be shifted against the one before

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

// The first word that was not sent: behind the word that was sent last, or the nearest one that is equal, if there is
// one.
std::optional<size_t> PartialText::next_word(const std::vector<Word>& words) const {
  if (n_sent_ == 0) return 0;
  for (size_t drift = 0; drift <= kDrift; ++drift)
    for (const size_t next : {n_sent_ + drift, n_sent_ - std::min(drift, n_sent_ - 1)})
      if (next <= words.size() && same_word(words[next - 1].letters, last_sent_)) return next;
  return std::nullopt;
}

std::string PartialText::add(const std::string& result) {
  const std::vector<Word> now = words_of(result), before = words_of(last_);
  const std::optional<size_t> first = next_word(now), first_before = next_word(before);
  std::string sent;
  size_t n = 0;
  while (first && first_before && *first + n < now.size() && *first_before + n < before.size() &&
         same_word(now[*first + n].letters, before[*first_before + n].letters)) {
    const Word& word = now[*first + n++];
    if (n_sent_ > 0 || n > 1) sent += word.signs;  // no space before the first word
    sent += word.letters;
  }
  if (n > 0) n_sent_ = *first + n, last_sent_ = now[n_sent_ - 1].letters;
  last_ = result;
  return sent;
}

std::string PartialText::add_certain(const std::string& text) {
  const std::vector<Word> words = words_of(text);
  const std::optional<size_t> next = next_word(words);
  const size_t begin = std::max(certain_.size(), !next ? text.size() : *next == 0 ? 0 : words[*next - 1].end);
  certain_ = text;
  return begin < text.size() ? text.substr(begin) : "";
}

}  // namespace ingot
