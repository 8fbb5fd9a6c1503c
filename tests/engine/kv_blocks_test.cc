#include "engine/kv_blocks.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

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

TEST(BlockPool, KeepsItsBooksUnderRandomUse) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  BlockPool pool(37);
  std::map<int32_t, int> holders;
  for (int i = 0; i < 20000; ++i) {
    auto some = holders.begin();
    if (!holders.empty()) std::advance(some, random() % holders.size());
    switch (random() % 3) {
      case 0: {
        const int32_t block = pool.take();
        ASSERT_EQ(block < 0, holders.size() == 37);
        if (block >= 0) {
          ASSERT_TRUE(holders.emplace(block, 1).second) << "block " << block << " given out twice";
        }
        break;
      }
      case 1:
        if (holders.empty()) break;
        pool.share(some->first);
        ++some->second;
        break;
      case 2:
        if (holders.empty()) break;
        pool.release(some->first);
        if (--some->second == 0) holders.erase(some);
    }
    ASSERT_EQ(pool.n_used(), static_cast<int>(holders.size()));
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
