// FairMutex: threads get it in the order in which they came.
#include "base/fair_mutex.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace ingot {
namespace {

TEST(FairMutex, ThreadsGetItInOrder) {
  FairMutex mutex;
  std::vector<int> order;
  std::vector<std::thread> threads;
  mutex.lock();
  EXPECT_FALSE(mutex.try_lock());
  for (int i = 0; i < 5; ++i) {
    threads.emplace_back([&, i] {
      for (const int round : {0, 1}) {
        mutex.lock();
        order.push_back(10 * round + i);
        mutex.unlock();
      }
    });
    while (mutex.n_threads() != static_cast<uint64_t>(i) + 2) std::this_thread::yield();  // it waits
  }
  mutex.unlock();
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(order.size(), 10u);
  // The first one that comes back stands behind all others, which wait already.
  EXPECT_EQ(std::vector<int>(order.begin(), order.begin() + 5), (std::vector<int>{0, 1, 2, 3, 4}));
  ASSERT_TRUE(mutex.try_lock());
  mutex.unlock();
}

}  // namespace
}  // namespace ingot
