#include "io/rank_merges.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <unordered_map>

#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

using Ranks = std::unordered_map<std::string_view, int64_t>;

// Where the token divides into the two tokens whose merge it is. 0: a vocabulary of other merges, in which the token
// cannot be made.
size_t split_of(std::string_view token, int64_t rank, const Ranks& ranks) {
  std::vector<size_t> begins(token.size() + 1);  // of the parts, and the end
  std::iota(begins.begin(), begins.end(), size_t{0});
  const auto rank_at = [&](size_t i) {  // of parts i and i + 1 together
    const auto found = ranks.find(token.substr(begins[i], begins[i + 2] - begins[i]));
    return found == ranks.end() ? rank : std::min(found->second, rank);
  };
  std::vector<int64_t> joined(token.size() - 1);
  for (size_t i = 0; i < joined.size(); ++i) joined[i] = rank_at(i);
  while (joined.size() > 1) {
    const auto best = std::ranges::min_element(joined) - joined.begin();
    if (joined[static_cast<size_t>(best)] == rank) return 0;
    begins.erase(begins.begin() + best + 1);
    joined.erase(joined.begin() + best);
    for (const auto i : {best - 1, best})
      if (i >= 0 && i < std::ssize(joined)) joined[static_cast<size_t>(i)] = rank_at(static_cast<size_t>(i));
  }
  return begins[1];
}

}  // namespace

std::vector<std::string> rank_merges(std::span<const std::string_view> tokens) {
  Ranks ranks;
  for (const std::string_view token : tokens) ranks.emplace(token, static_cast<int64_t>(ranks.size()));
  std::vector<std::string> merges;
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const std::string_view token = tokens[rank];
    if (token.size() < 2) continue;
    if (const size_t at = split_of(token, static_cast<int64_t>(rank), ranks); at > 0)
      merges.push_back(gpt2_from_bytes(token.substr(0, at)) + " " + gpt2_from_bytes(token.substr(at)));
  }
  return merges;
}

}  // namespace ingot
