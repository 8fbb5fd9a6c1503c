#include "text/tokenizers/added_tokens.h"

#include <algorithm>

namespace ingot {

AddedTokens::AddedTokens(std::vector<std::pair<std::string_view, int32_t>> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end());
  auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  tokens_.erase(std::unique(tokens_.begin(), tokens_.end(), same), tokens_.end());
  std::erase_if(tokens_, [](const auto& token) { return token.first.size() > kMaxBytes; });
  for (const auto& [text, id] : tokens_) ++first_byte_[static_cast<unsigned char>(text[0]) + 1];
  for (size_t i = 1; i < first_byte_.size(); ++i) first_byte_[i] += first_byte_[i - 1];
}

AddedTokens::Match AddedTokens::find(std::string_view text, size_t from) const {
  for (size_t i = from; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (first_byte_[byte] == first_byte_[byte + 1]) continue;
    if (const Match match = longest_at(text, i); match.id >= 0) return match;
  }
  return {text.size(), text.size(), -1};
}

AddedTokens::Match AddedTokens::longest_at(std::string_view text, size_t begin) const {
  Match best{text.size(), text.size(), -1};
  const auto first = static_cast<unsigned char>(text[begin]);
  auto low = tokens_.begin() + first_byte_[first], high = tokens_.begin() + first_byte_[first + 1];
  // [low, high) are the tokens that share `depth` bytes with the text. If a token has exactly `depth` bytes, it comes
  // first.
  for (size_t depth = 1; low != high; ++depth) {
    if (low->first.size() == depth) {
      best = {begin, begin + depth, low->second};
      ++low;
    }
    if (begin + depth == text.size()) break;
    const auto byte = static_cast<unsigned char>(text[begin + depth]);
    auto at = [&](const auto& token) { return static_cast<unsigned char>(token.first[depth]); };
    low = std::partition_point(low, high, [&](const auto& token) { return at(token) < byte; });
    high = std::partition_point(low, high, [&](const auto& token) { return at(token) == byte; });
  }
  return best;
}

}  // namespace ingot
