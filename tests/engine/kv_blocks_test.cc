#include "engine/kv_blocks.h"

#include <gtest/gtest.h>

#include <array>
#include <list>
#include <map>
#include <random>

#include "test_seed.h"

namespace ingot {
namespace {

TEST(BlockPool, CountsHolders) {
  BlockPool pool(2);
  const int32_t a = pool.take(), b = pool.take();
  EXPECT_NE(a, b);
  EXPECT_EQ(pool.take(), -1);
  pool.share(a);
  pool.release(a);
  EXPECT_EQ(pool.n_free(), 0);
  pool.release(a);
  EXPECT_EQ(pool.n_free(), 1);
  EXPECT_EQ(pool.take(), a);
}

TEST(BlockPool, KeptBlocksGoOldestFirst) {
  std::vector<int32_t> evicted;
  BlockPool pool(3, [&](int32_t block) { evicted.push_back(block); });
  const int32_t a = pool.take(), b = pool.take(), c = pool.take();
  pool.release(b, BlockPool::Keep::kLong);
  pool.release(a, BlockPool::Keep::kLong);
  pool.release(c);
  EXPECT_EQ(pool.n_free(), 3);
  EXPECT_EQ(pool.n_cached(), 2);
  EXPECT_EQ(pool.take(), c);  // free blocks first
  pool.share(b);              // used again
  EXPECT_EQ(pool.n_cached(), 1);
  pool.release(b, BlockPool::Keep::kLong);
  EXPECT_EQ(pool.take(), a);
  EXPECT_EQ(pool.take(), b);
  EXPECT_EQ(pool.take(), -1);
  EXPECT_EQ(evicted, (std::vector<int32_t>{a, b}));
}

TEST(BlockPool, WhatIsKeptMayTurnBlank) {
  BlockPool pool(2, [](int32_t block) { ADD_FAILURE() << block << " was cached"; });
  const int32_t a = pool.take(), b = pool.take();
  pool.discard(a);  // the block is held: nothing happens
  EXPECT_EQ(pool.refs(a), 1);
  pool.release(a, BlockPool::Keep::kLong);
  pool.release(b, BlockPool::Keep::kLong);
  EXPECT_EQ(pool.n_cached(), 2);
  pool.discard(b);
  pool.discard(b);
  pool.discard(a);
  EXPECT_EQ(pool.n_cached(), 0);
  EXPECT_EQ(pool.n_free(), 2);
  EXPECT_NE(pool.take(), pool.take());
}

// Compares the pool with a simple implementation in standard containers.
TEST(BlockPool, KeepsItsBooksUnderRandomUse) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int32_t evicted = -1;
  BlockPool pool(37, [&](int32_t block) { evicted = block; });
  std::map<int32_t, int> holders;
  std::list<int32_t> cached;  // cached longest first
  for (int i = 0; i < 40000; ++i) {
    auto some = holders.begin();
    if (!holders.empty()) std::advance(some, random() % holders.size());
    switch (random() % 5) {
      case 0:
      case 1: {
        evicted = -1;
        const int32_t block = pool.take();
        ASSERT_EQ(block < 0, holders.size() == 37);
        if (block < 0) break;
        ASSERT_TRUE(holders.emplace(block, 1).second) << "block " << block << " given out twice";
        if (holders.size() + cached.size() <= 37) {
          ASSERT_EQ(evicted, -1) << "though blocks were free";
        } else {
          ASSERT_EQ(block, cached.front());
          ASSERT_EQ(block, evicted);
          cached.pop_front();
        }
        break;
      }
      case 2:
        if (!cached.empty() && random() % 2 == 0) {
          pool.share(cached.back());
          holders.emplace(cached.back(), 1);
          cached.pop_back();
        } else if (!holders.empty()) {
          pool.share(some->first);
          ++some->second;
        }
        break;
      default: {
        if (holders.empty()) break;
        using Keep = BlockPool::Keep;
        const Keep keep = std::array{Keep::kNot, Keep::kBriefly, Keep::kLong, Keep::kLong}[random() % 4];
        pool.release(some->first, keep);
        if (--some->second > 0) break;
        if (keep == Keep::kLong) cached.push_back(some->first);
        if (keep == Keep::kBriefly) cached.push_front(some->first);
        holders.erase(some);
      }
    }
    ASSERT_EQ(pool.n_used(), static_cast<int>(holders.size()));
    ASSERT_EQ(pool.n_cached(), static_cast<int>(cached.size()));
    for (const auto& [block, n] : holders) ASSERT_EQ(pool.refs(block), n);
  }
}

TEST(BlockPoolDeathTest, RefusesWrongUse) {
  BlockPool pool(2);
  EXPECT_DEATH(pool.release(0), "CHECK");
  EXPECT_DEATH(pool.share(1), "CHECK");
  EXPECT_DEATH(pool.refs(2), "CHECK");
}

}  // namespace
}  // namespace ingot
