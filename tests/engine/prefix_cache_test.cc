// The index of cached blocks alone. conversation_test.cc tests the scheduler's use of the index.
#include "engine/prefix_cache.h"

#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "test_seed.h"

namespace ingot {
namespace {

using testing::ElementsAre;
using Tokens = std::vector<int32_t>;

CacheMatch find(const PrefixCache& cache, const CacheKey& root, const Tokens& tokens) {
  CacheMatch match;
  cache.find(root, tokens, match);
  return match;
}

TEST(PrefixCache, FindsTheLongestChain) {
  PrefixCache cache({KvPool{8}}, 2);
  const CacheKey root = root_key("");
  const CacheKey first = cache.insert(root, Tokens{1, 2}, 5), second = cache.insert(first, Tokens{3, 4}, 6);
  cache.insert(second, Tokens{5}, 7);
  EXPECT_THAT(find(cache, root, {1, 2, 3, 4, 5, 6}).pools[0].blocks, ElementsAre(5, 6));
  EXPECT_EQ(find(cache, root, {1, 2, 3, 4, 5, 6}).pools[0].tail, 7);
  EXPECT_EQ(find(cache, root, {1, 2, 3, 4, 5, 6}).n_tokens, 5);
  EXPECT_EQ(find(cache, root, {1, 2, 3, 4, 6}).n_tokens, 4);
  EXPECT_EQ(find(cache, root, {1, 2, 3, 4, 6}).pools[0].tail, -1);
  EXPECT_EQ(find(cache, root, {1, 2, 3}).n_tokens, 2);
  EXPECT_EQ(find(cache, root, {1, 3, 3, 4}).n_tokens, 0);
  EXPECT_EQ(find(cache, root, {3, 4}).n_tokens, 0);
  EXPECT_EQ(find(cache, root, {}).n_tokens, 0);
  EXPECT_TRUE(find(cache, root, {1, 2, 3, 4}).key == second);
}

// Equal tokens with different vectors are not equal.
TEST(PrefixCache, VectorsAreComparedByTheirDigests) {
  PrefixCache cache({KvPool{8}}, 2, [](const CacheKey&, std::span<const int32_t>) { return 1; }, true);
  const CacheKey root = root_key("");
  const Tokens tokens{1, 1, 1, 1, 1};
  const std::vector<RowDigest> one{{}, {5, 6}, {5, 7}}, other{{}, {5, 6}, {5, 8}}, shorter{{}, {5, 6}},
      tail{{}, {5, 6}, {5, 7}, {}, {9, 9}};
  const auto find_rows = [&](const std::vector<RowDigest>& rows) {
    CacheMatch match;
    cache.find(root, {tokens, rows}, match);
    return match.n_tokens;
  };
  const CacheTokens all(tokens, one);
  const CacheKey first = cache.insert(root, all.first(2), 0);
  const CacheKey second = cache.insert(first, all.subspan(2, 2), 1);
  cache.insert(second, all.subspan(4), 2);
  EXPECT_EQ(find_rows(one), 5);
  EXPECT_EQ(find_rows(tail), 4);
  EXPECT_EQ(find_rows(other), 2);
  EXPECT_EQ(find_rows(shorter), 2);
  EXPECT_EQ(find_rows({}), 0);
  cache.insert(second, CacheTokens(tokens, tail).subspan(4), 3);
  EXPECT_EQ(find_rows(tail), 5);
  cache.insert(root, CacheTokens(tokens).first(2), 4);
  EXPECT_EQ(find_rows({}), 2);
  EXPECT_EQ(find_rows(one), 5);
}

TEST(PrefixCache, SaltsAreApart) {
  PrefixCache cache({KvPool{8}}, 2);
  cache.insert(root_key("a"), Tokens{1, 2}, 0);
  EXPECT_EQ(find(cache, root_key("a"), {1, 2}).n_tokens, 2);
  EXPECT_EQ(find(cache, root_key("b"), {1, 2}).n_tokens, 0);
  EXPECT_EQ(find(cache, root_key(""), {1, 2}).n_tokens, 0);
}

TEST(PrefixCache, TheSameTwiceIsIndexedOnce) {
  PrefixCache cache({KvPool{8}}, 2);
  const CacheKey root = root_key("");
  const CacheKey first = cache.insert(root, Tokens{1, 2}, 0);
  EXPECT_TRUE(cache.insert(root, Tokens{1, 2}, 1) == first);
  EXPECT_TRUE(cache.holds(0));
  EXPECT_FALSE(cache.holds(1));
  cache.insert(first, Tokens{3, 4}, 1);  // so the other chain continues from the first
  EXPECT_THAT(find(cache, root, {1, 2, 3, 4}).pools[0].blocks, ElementsAre(0, 1));
}

// A block that was evicted and reused is not the parent of its old children, although its number is the same.
TEST(PrefixCache, AnErasedParentHasNoChildren) {
  PrefixCache cache({KvPool{8}}, 2);
  const CacheKey root = root_key("");
  cache.insert(cache.insert(root, Tokens{1, 2}, 0), Tokens{3, 4}, 1);
  cache.erase(0);
  EXPECT_EQ(find(cache, root, {1, 2, 3, 4}).n_tokens, 0);
  cache.insert(root, Tokens{9, 9}, 0);
  EXPECT_EQ(find(cache, root, {9, 9, 3, 4}).n_tokens, 2);
  cache.insert(root, Tokens{1, 2}, 2);
  EXPECT_EQ(find(cache, root, {1, 2, 3, 4}).n_tokens, 2);
  cache.erase(7);  // not indexed
}

TEST(PrefixCache, TheTailThatSharesMostIsFound) {
  PrefixCache cache({KvPool{8}}, 4);
  const CacheKey root = root_key("");
  cache.insert(root, Tokens{1, 2}, 0);
  cache.insert(root, Tokens{1, 2, 3}, 1);
  cache.insert(root, Tokens{1}, 2);
  const CacheMatch match = find(cache, root, {1, 2, 3, 4, 5});
  EXPECT_EQ(match.pools[0].tail, 1);
  EXPECT_EQ(match.n_tail, 3);
  EXPECT_EQ(find(cache, root, {1, 2}).n_tokens, 2);
  EXPECT_EQ(find(cache, root, {2}).pools[0].tail, -1);
}

// Each token sees only its last four tokens. Earlier tokens are still compared, but their blocks may be gone.
TEST(PrefixCache, AWindowNeedsItsOwnBlocksOnly) {
  PrefixCache cache({{8, 4}}, 2);
  const CacheKey root = root_key("");
  const Tokens tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  CacheKey key = root;
  for (int32_t block = 0; block < 6; ++block) key = cache.insert(key, std::span(tokens).subspan(2 * block, 2), block);
  cache.lose(0);
  cache.lose(1);
  CacheMatch match = find(cache, root, tokens);
  EXPECT_EQ(match.n_tokens, 12);
  EXPECT_EQ(match.key, key);
  EXPECT_EQ(match.pools[0].blocks, Tokens({-1, -1, 2, 3, 4, 5}));
  EXPECT_EQ(find(cache, root, {1, 2, 3, 5, 5, 6, 7, 8, 9, 10, 11, 12}).n_tokens, 0);  // another history
  cache.lose(4);
  match = find(cache, root, tokens);
  EXPECT_EQ(match.n_tokens, 8);
  EXPECT_EQ(match.pools[0].blocks, Tokens({-1, -1, 2, 3}));
  cache.lose(3);
  match = find(cache, root, tokens);
  EXPECT_EQ(match.n_tokens, 0);
  EXPECT_EQ(match.key, root);
  // A new block with the content of a lost block replaces it in the chain.
  key = cache.insert(root, std::span(tokens).first(2), 7);
  cache.insert(key, std::span(tokens).subspan(2, 2), 6);
  match = find(cache, root, tokens);
  EXPECT_EQ(match.n_tokens, 6);
  EXPECT_EQ(match.pools[0].blocks, Tokens({7, 6, 2}));
  EXPECT_EQ(find(cache, root, {1, 2}).pools[0].blocks, Tokens({7}));
  cache.forget(root, tokens);
  EXPECT_EQ(find(cache, root, tokens).n_tokens, 0);
}

// A block of a further pool belongs to a block of the first one. A chain is found up to a place where each pool has the
// blocks that the next token sees.
TEST(PrefixCache, EachPoolNeedsTheBlocksOfItsWindow) {
  std::vector<int32_t> lost;
  PrefixCache cache({{8, 0}, {9, 4}}, 2, {}, false, [&](int pool, int32_t block) {
    EXPECT_EQ(pool, 1);
    lost.push_back(block);
  });
  const CacheKey root = root_key("");
  const Tokens tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
  const auto part = [&](int block) { return std::span(tokens).subspan(static_cast<size_t>(2 * block), 2); };
  std::vector<CacheKey> keys = {root};
  for (int32_t block = 0; block < 6; ++block)
    keys.push_back(cache.insert(keys.back(), part(block), std::array{block, 7 - block}));
  EXPECT_EQ(find(cache, root, tokens).n_tokens, 12);
  EXPECT_EQ(find(cache, root, tokens).pools[1].blocks, Tokens({7, 6, 5, 4, 3, 2}));
  cache.lose(7, 1), cache.lose(6, 1);
  EXPECT_EQ(find(cache, root, tokens).n_tokens, 12);
  EXPECT_EQ(find(cache, root, tokens).pools[1].blocks, Tokens({-1, -1, 5, 4, 3, 2}));
  EXPECT_EQ(find(cache, root, {1, 2, 3, 4, 5, 6}).n_tokens, 0);  // the window there is lost
  cache.lose(3, 1);
  EXPECT_EQ(find(cache, root, tokens).n_tokens, 8);
  EXPECT_EQ(find(cache, root, tokens).pools[0].blocks, Tokens({0, 1, 2, 3}));
  EXPECT_EQ(find(cache, root, tokens).n_known, 12);
  // Another sequence has computed the tokens of the fifth block again.
  EXPECT_EQ(cache.insert(keys[4], part(4), std::array{6, 1}), keys[5]);
  EXPECT_FALSE(cache.holds(6));
  EXPECT_TRUE(cache.holds(1, 1));
  EXPECT_EQ(find(cache, root, tokens).pools[0].blocks, Tokens({0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(find(cache, root, tokens).pools[1].blocks, Tokens({-1, -1, 5, 4, 1, 2}));
  // A tail needs a block of each pool.
  cache.insert(keys[6], std::span(tokens).last(1), std::array{7, 8});
  EXPECT_EQ(find(cache, root, tokens).n_tokens, 13);
  EXPECT_EQ(find(cache, root, tokens).pools[1].tail, 8);
  cache.lose(8, 1);
  EXPECT_EQ(find(cache, root, tokens).n_tokens, 12);
  EXPECT_TRUE(lost.empty());
  cache.erase(5);
  EXPECT_EQ(lost, std::vector<int32_t>({2}));
  EXPECT_FALSE(cache.holds(2, 1));
}

// Lost blocks stay in the index while there is space.
TEST(PrefixCache, ForgetsTheLongestLost) {
  PrefixCache cache({{2, 3}}, 2);
  const CacheKey root = root_key("");
  std::vector<Tokens> lost;
  for (int32_t i = 0; i < 100; ++i) {
    const CacheKey first = cache.insert(root, Tokens{i, i}, 0);
    cache.insert(first, Tokens{i, 1000}, 1);
    cache.lose(0);
    EXPECT_EQ(find(cache, root, {i, i, i, 1000}).n_tokens, 4) << i;
    cache.erase(1);
    EXPECT_EQ(find(cache, root, {i, i, i, 1000}).n_tokens, 0) << i;
  }
}

// With states, a chain is found only up to a state, and a tail is found only as a whole.
TEST(PrefixCache, AChainEndsWhereAStateIs) {
  std::vector<int32_t> lost;
  PrefixCache cache({KvPool{8}}, 2);
  cache.need_states(4, [&](int32_t state) { lost.push_back(state); });
  const CacheKey root = root_key("");
  const CacheKey first = cache.insert(root, Tokens{1, 2}, 0), second = cache.insert(first, Tokens{3, 4}, 1);
  cache.insert(second, Tokens{5}, 2);
  CacheMatch match = find(cache, root, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(match.n_tokens, 0);
  EXPECT_EQ(match.n_known, 4);
  EXPECT_EQ(match.state, -1);
  cache.keep_state(first, 3);
  match = find(cache, root, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(match.pools[0].blocks, ElementsAre(0));
  EXPECT_EQ(match.n_tokens, 2);
  EXPECT_EQ(match.n_known, 4);
  EXPECT_EQ(match.state, 3);
  EXPECT_EQ(match.key, first);
  cache.keep_state(2, 1);  // after the tail
  match = find(cache, root, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(match.n_tokens, 5);
  EXPECT_EQ(match.pools[0].tail, 2);
  EXPECT_EQ(match.state, 1);
  match = find(cache, root, {1, 2, 3, 4});  // the match ends before the tail
  EXPECT_EQ(match.state, 3);
  cache.keep_state(first, 2);  // the block has a state already
  EXPECT_FALSE(cache.holds_state(2));
  cache.drop_state(1);
  EXPECT_FALSE(cache.holds_state(1));
  EXPECT_EQ(find(cache, root, {1, 2, 3, 4, 5, 6}).state, 3);
  EXPECT_TRUE(lost.empty());
  cache.erase(0);
  EXPECT_THAT(lost, ElementsAre(3));
  EXPECT_FALSE(cache.holds_state(3));
  EXPECT_EQ(find(cache, root, {1, 2, 3, 4, 5, 6}).n_known, 0);
}

// Compares the cache with a plain map of whole histories. Hashes collide always, sometimes, or hardly ever.
TEST(PrefixCache, HashesOnlyFindCandidates) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const uint64_t modulus : {1, 5, 1 << 30}) {
    constexpr int kBlocks = 24, kSize = 3;
    const PrefixCache::Hash hash = [&](const CacheKey& parent, std::span<const int32_t> tokens) {
      uint64_t sum = parent.id * 7;
      for (const int32_t token : tokens) sum = sum * 31 + static_cast<uint64_t>(token);
      return sum % modulus;
    };
    PrefixCache cache({KvPool{kBlocks}}, kSize, hash);
    std::map<Tokens, int32_t> held;  // whole history up to the end of a block, after the salt
    std::map<int32_t, Tokens> history_of;
    int64_t n_found = 0;
    for (int i = 0; i < 3000; ++i) {
      const int salt = static_cast<int>(random() % 2);
      Tokens tokens(random() % 12);
      for (int32_t& token : tokens) token = static_cast<int32_t>(random() % 2);
      const CacheMatch match = find(cache, root_key(salt ? "x" : "y"), tokens);
      Tokens history = {salt};
      size_t n = 0;
      for (; n + kSize <= tokens.size(); n += kSize) {
        Tokens next = history;
        next.insert(next.end(), tokens.begin() + static_cast<ptrdiff_t>(n),
                    tokens.begin() + static_cast<ptrdiff_t>(n + kSize));
        if (held.find(next) == held.end()) break;
        history = next;
        ASSERT_LT(n / kSize, match.pools[0].blocks.size());
        ASSERT_EQ(match.pools[0].blocks[n / kSize], held[history]);
      }
      ASSERT_EQ(match.n_tokens, static_cast<int>(n));
      n_found += match.n_tokens;
      if (n + kSize > tokens.size()) continue;
      const auto block = static_cast<int32_t>(random() % kBlocks);
      if (history_of.count(block) > 0) {  // evict the block, and all blocks that are reached only through it
        const Tokens gone = history_of[block];
        for (auto h = held.begin(); h != held.end();) {
          const bool below = h->first.size() >= gone.size() && std::equal(gone.begin(), gone.end(), h->first.begin());
          if (below) cache.erase(h->second), history_of.erase(h->second);
          h = below ? held.erase(h) : std::next(h);
        }
        if (history.size() >= gone.size() && std::equal(gone.begin(), gone.end(), history.begin())) continue;
      }
      const std::span<const int32_t> part(tokens.data() + n, kSize);
      cache.insert(match.key, part, block);
      history.insert(history.end(), part.begin(), part.end());
      held[history] = block;
      history_of[block] = history;
    }
    EXPECT_GT(n_found, 500);
  }
}

// A listener's events as text: "1<0:5,6" is block 1 after block 0 with two tokens, "-1" its eviction.
struct Heard final : CacheListener {
  std::vector<std::string> events;
  std::map<uint64_t, int> short_ids;  // ids in order of their events
  std::string id(uint64_t block) {
    return std::to_string(block == 0 ? 0
                                     : short_ids.emplace(block, static_cast<int>(short_ids.size()) + 1).first->second);
  }
  void cached(uint64_t block, uint64_t parent, std::span<const int32_t> tokens) override {
    const std::string of_parent = id(parent);
    events.push_back(id(block) + "<" + of_parent + ":");
    for (const int32_t token : tokens) events.back() += std::to_string(token) + ",";
  }
  void evicted(uint64_t block) override { events.push_back("-" + id(block)); }
};

TEST(PrefixCache, AListenerHearsOfFullBlocks) {
  PrefixCache cache({KvPool{8}}, 2);
  Heard heard;
  cache.set_listener(&heard);
  cache.announce(root_key(""));
  const CacheKey root = root_key("");
  const CacheKey first = cache.insert(root, Tokens{1, 2}, 5), second = cache.insert(first, Tokens{3, 4}, 6);
  EXPECT_TRUE(cache.insert(root, Tokens{1, 2}, 4) == first);  // another block with the same tokens
  cache.insert(second, Tokens{5}, 7);                         // a tail
  cache.insert(cache.insert(root_key("salt"), Tokens{1, 2}, 0), Tokens{8, 9}, 1);
  EXPECT_THAT(heard.events, ElementsAre("1<0:1,2,", "2<1:3,4,"));
  for (const int32_t block : {7, 6, 5, 0, 1}) cache.lose(block);
  EXPECT_THAT(heard.events, ElementsAre("1<0:1,2,", "2<1:3,4,", "-2", "-1"));
  cache.insert(root, Tokens{1, 2}, 5);  // a new id
  cache.forget(root, Tokens{1, 2});
  EXPECT_THAT(heard.events, ElementsAre("1<0:1,2,", "2<1:3,4,", "-2", "-1", "3<0:1,2,", "-3"));
}

// Blocks with vectors cause no events. Nor do blocks after them, because the listener does not know their parent.
TEST(PrefixCache, AListenerDoesNotHearOfVectors) {
  PrefixCache cache({KvPool{8}}, 2, {}, true);
  Heard heard;
  cache.set_listener(&heard);
  cache.announce(root_key(""));
  const Tokens tokens{1, 1, 2, 3};
  const std::vector<RowDigest> rows{{}, {5, 6}};
  const CacheTokens all(tokens, rows);
  const CacheKey first = cache.insert(root_key(""), all.first(2), 0);
  cache.insert(first, all.subspan(2, 2), 1);
  EXPECT_THAT(heard.events, ElementsAre());
  cache.insert(root_key(""), Tokens{2, 3}, 2);
  EXPECT_THAT(heard.events, ElementsAre("1<0:2,3,"));
}

// With windows, the tokens of an evicted block stay in the index, but the listener is notified of the eviction.
TEST(PrefixCache, AListenerHearsOfBlocksBeforeTheWindow) {
  PrefixCache cache({{8, 2}}, 2);
  Heard heard;
  cache.set_listener(&heard);
  cache.announce(root_key(""));
  const CacheKey root = root_key("");
  const CacheKey first = cache.insert(root, Tokens{1, 2}, 0);
  cache.insert(first, Tokens{3, 4}, 1);
  cache.lose(0);
  EXPECT_THAT(heard.events, ElementsAre("1<0:1,2,", "2<1:3,4,", "-1"));
  EXPECT_TRUE(cache.insert(root, Tokens{1, 2}, 3) == first);
  EXPECT_THAT(heard.events, ElementsAre("1<0:1,2,", "2<1:3,4,", "-1", "1<0:1,2,"));
}

}  // namespace
}  // namespace ingot
