// LruMap compared with a plain list in the order of use.
#include "base/lru_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "test_seed.h"

namespace ingot {
namespace {

TEST(LruMap, DropsWhatWasUnusedForLongest) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (const size_t most : {1, 2, 7, 40}) {
    LruMap<int, int> map(most);
    std::vector<std::pair<int, int>> used;  // key and value, most recently used last
    for (int i = 0; i < 2000; ++i) {
      const int key = static_cast<int>(random() % (2 * most));
      const auto known = std::ranges::find(used, key, &std::pair<int, int>::first);
      int* found = map.find(key);
      ASSERT_EQ(found != nullptr, known != used.end());
      if (found != nullptr) {
        ASSERT_EQ(*found, known->second);
        std::rotate(known, known + 1, used.end());
      } else {
        ASSERT_EQ(*map.put(key, i), i);
        if (used.size() == most) used.erase(used.begin());
        used.emplace_back(key, i);
      }
      ASSERT_EQ(map.size(), used.size());
    }
  }
}

TEST(LruMap, DestroysWhatItDrops) {
  const auto value = std::make_shared<int>(1);
  LruMap<int, std::shared_ptr<int>> map(3);
  for (int i = 0; i < 10; ++i) map.put(i, value);
  EXPECT_EQ(value.use_count(), 4);
}

}  // namespace
}  // namespace ingot
