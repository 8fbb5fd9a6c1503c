// Rate limits, with the test's own clock.
#include "server/requests/rate_limit.h"

#include <gtest/gtest.h>

#include <random>

#include "test_seed.h"

namespace ingot {
namespace {

using Clock = RateLimit::Clock;

Clock::time_point now_of_test{};
Clock::time_point now() { return now_of_test; }
void pass(double seconds) {
  now_of_test += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

TEST(RateLimit, GivesTheLimitAtOnceAndThenOneAtATime) {
  RateLimit limit(6, now);  // one request in ten seconds
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(limit.take("a")) << i;
  EXPECT_EQ(limit.take("a"), 10);
  pass(4);
  EXPECT_EQ(limit.take("a"), 6) << "what is refused costs nothing";
  EXPECT_FALSE(limit.take("b")) << "others have their own";
  pass(6);
  EXPECT_FALSE(limit.take("a"));
  EXPECT_EQ(limit.take("a"), 10);
  pass(3600);
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(limit.take("a")) << "no more than the limit is saved up";
  EXPECT_TRUE(limit.take("a"));
}

TEST(RateLimit, ZeroIsNone) {
  RateLimit limit(0, now);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(limit.take("a"));
}

// In any minute, a client gets at most twice its limit. A client that waits for the given time is accepted.
TEST(RateLimit, RandomTimes) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 engine(seed);
  RateLimit limit(30, now);
  std::vector<Clock::time_point> taken;
  for (int i = 0; i < 5000; ++i) {
    pass(std::exponential_distribution<double>(2)(engine));
    const auto wait = limit.take("a");
    if (!wait) taken.push_back(now_of_test);
    if (wait && i % 50 == 0) {
      pass(*wait);
      EXPECT_FALSE(limit.take("a"));
      taken.push_back(now_of_test);
    }
  }
  for (size_t i = 60; i < taken.size(); ++i) EXPECT_GE(taken[i] - taken[i - 60], std::chrono::seconds(59));
  EXPECT_GT(taken.size(), 500u);
}

// A client that was forgotten among many others starts with a full bucket. The memory stays bounded.
TEST(RateLimit, ManyClients) {
  RateLimit limit(1, now);
  for (int i = 0; i < 70'000; ++i) ASSERT_FALSE(limit.take(std::to_string(i)));
  EXPECT_TRUE(limit.take("69999"));
  EXPECT_FALSE(limit.take("0"));
}

}  // namespace
}  // namespace ingot
