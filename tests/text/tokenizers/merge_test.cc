// The work of the merge loop and of the trie, counted rather than timed. The work is proportional to the length of the
// text, even if the text repeats a unit (bad-input row T10).
#include "text/tokenizers/merge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "test_seed.h"
#include "text/tokenizers/trie.h"

namespace ingot {
namespace {

// The id of a symbol is its length in characters: two "a" become "aa", two of those become "aaaa", up to `longest`.
size_t look_ups(uint32_t n, int32_t longest) {
  std::vector<Symbol> symbols;
  for (uint32_t i = 0; i < n; ++i) symbols.push_back({i, 1, 1});
  size_t count = 0;
  MergeQueue queue;
  queue.merge_all(symbols, [&](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
    ++count;
    if (left.id != right.id || 2 * left.id > longest) return std::nullopt;
    return Merge{static_cast<uint32_t>(longest / left.id), 2 * left.id};
  });
  return count;
}

TEST(MergeQueue, LookUpsGrowWithTheText) {
  for (const int32_t longest : {1, 2, 16, 1 << 20}) {
    for (const uint32_t n : {1u << 10, 1u << 14, 1u << 17}) {
      // One look-up for each initial pair, and two more for each of at most n - 1 merges.
      EXPECT_LE(look_ups(n, longest), 3u * n) << longest << " " << n;
      EXPECT_GE(look_ups(n, longest), n - 1);
    }
  }
}

TEST(Trie, FindsWhatASetFinds) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  auto random_text = [&](size_t longest) {
    std::string text(rng() % (longest + 1), '\0');
    for (char& c : text) c = "ab\xFF\0c"[rng() % 5];
    return text;
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> keys(rng() % 60);
    for (std::string& key : keys) key = random_text(6);
    std::vector<std::pair<std::string_view, int32_t>> numbered;
    for (size_t i = 0; i < keys.size(); ++i) numbered.emplace_back(keys[i], static_cast<int32_t>(i));
    const Trie trie(numbered);
    for (int t = 0; t < 20; ++t) {
      const std::string text = random_text(12);
      std::vector<std::pair<size_t, int32_t>> found, expected;
      trie.for_each_prefix(text, [&](size_t length, int32_t number) { found.emplace_back(length, number); });
      for (size_t length = 1; length <= text.size(); ++length) {
        const auto first = std::find(keys.begin(), keys.end(), text.substr(0, length));
        if (first != keys.end()) expected.emplace_back(length, static_cast<int32_t>(first - keys.begin()));
      }
      ASSERT_EQ(found, expected);
    }
  }
}

TEST(Trie, MayBeEmpty) {
  Trie().for_each_prefix("abc", [](size_t, int32_t) { FAIL(); });
  Trie({{"", 0}}).for_each_prefix("abc", [](size_t, int32_t) { FAIL(); });
}

}  // namespace
}  // namespace ingot
