// Works in virtual time: a model of a machine says how long a round with n threads takes.
#include "base/thread_choice.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>

#include "test_seed.h"

namespace ingot {
namespace {

using Machine = std::function<double(int n_threads)>;

// Rounds until the end of the search.
int search(ThreadChoice& choice, const Machine& machine) {
  for (int round = 1;; ++round) {
    EXPECT_LT(round, 1000);
    if (round == 1000 || choice.add(machine(choice.n_threads()))) return round;
  }
}

// A memory of `limit` threads' bandwidth, and a barrier that costs `wait` for each thread.
Machine memory_of(double limit, double wait) {
  return [=](int n) { return 1 / std::min<double>(n, limit) + wait * n; };
}

TEST(ThreadChoice, KeepsAllThreadsThatHelp) {
  ThreadChoice choice(16);
  EXPECT_EQ(choice.n_threads(), 16);
  EXPECT_EQ(search(choice, memory_of(100, 0)), 2 * ThreadChoice::kRounds) << "half is hopeless, a quarter is not tried";
  EXPECT_EQ(choice.n_threads(), 16);
}

TEST(ThreadChoice, KeepsAllThreadsThatDoNoHarm) {
  ThreadChoice choice(16);
  search(choice, memory_of(4, 0));
  EXPECT_EQ(choice.n_threads(), 16);
}

TEST(ThreadChoice, LeavesThreadsOutThatAreInTheWay) {
  ThreadChoice choice(16);
  search(choice, memory_of(4, 0.01));
  EXPECT_EQ(choice.n_threads(), 4);
  ThreadChoice alone(2);
  search(alone, memory_of(1, 0.2));
  EXPECT_EQ(alone.n_threads(), 1);
}

// Six of eight cores' time, then all threads stand still: as with a quota that the threads use up.
TEST(ThreadChoice, StaysWithinAQuota) {
  ThreadChoice choice(8);
  search(choice, [](int n) { return n > 4 ? 1.0 / 4 * 1.5 : 1.0 / n; });
  EXPECT_EQ(choice.n_threads(), 4);
}

// Whatever the machine does, the choice is within kClearly of the best number that was tried.
TEST(ThreadChoice, IsNeverClearlySlowerThanWhatItTried) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int machine = 0; machine < 500; ++machine) {
    const int most = 1 + static_cast<int>(random() % 64);
    std::vector<double> seconds(static_cast<size_t>(most) + 1);
    for (double& s : seconds) s = std::uniform_real_distribution(0.5, 2.0)(random);
    ThreadChoice choice(most);
    std::set<int> tried;
    double best = 1e9;
    while (choice.searching()) {
      tried.insert(choice.n_threads());
      best = std::min(best, seconds[static_cast<size_t>(choice.n_threads())]);
      choice.add(seconds[static_cast<size_t>(choice.n_threads())]);
    }
    EXPECT_LE(seconds[static_cast<size_t>(choice.n_threads())], best * (1 + ThreadChoice::kClearly)) << most;
    EXPECT_TRUE(most == 1 || tried.count(most) == 1);
  }
}

TEST(ThreadChoice, OneSlowRoundIsNoReason) {
  for (int slow = 0; slow < 2 * ThreadChoice::kRounds; ++slow) {
    ThreadChoice choice(16);
    int round = 0;
    search(choice, [&](int n) { return round++ == slow ? 100.0 : 1.0 / n; });
    EXPECT_EQ(choice.n_threads(), 16) << "round " << slow;
  }
}

TEST(ThreadChoice, SearchesAgain) {
  ThreadChoice choice(8);
  search(choice, memory_of(2, 0.05));
  EXPECT_EQ(choice.n_threads(), 2) << "while another program runs";
  for (int64_t i = 0; i < ThreadChoice::kAgain; ++i) {
    EXPECT_FALSE(choice.searching());
    choice.add(1);
  }
  EXPECT_TRUE(choice.searching());
  search(choice, memory_of(8, 0));
  EXPECT_EQ(choice.n_threads(), 8);
}

TEST(ThreadChoice, BeginsWithAnEarlierChoice) {
  ThreadChoice choice(16, 4);
  EXPECT_EQ(choice.n_threads(), 4);
  EXPECT_FALSE(choice.searching());
  for (const int bad : {0, -1, 17}) EXPECT_TRUE(ThreadChoice(16, bad).searching()) << bad;
  EXPECT_FALSE(ThreadChoice(1).searching());
}

}  // namespace
}  // namespace ingot
