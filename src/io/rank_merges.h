// The merges of a byte-level vocabulary that only lists its tokens by rank, as tiktoken's do: a token of rank r is made
// of the two tokens that BPE makes of its bytes with the tokens of lower ranks.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

inline constexpr size_t kMaxRankedBytes = 512;  // of a token, whose merges are found in quadratic time

// tokens: distinct byte strings of 1 to kMaxRankedBytes bytes, by rank. The result: "left right" in GPT-2's spelling,
// best first. Tokens that no merge makes have none.
std::vector<std::string> rank_merges(std::span<const std::string_view> tokens);

}  // namespace ingot
