// Ranks as threads: sums, messages, and the errors they report if one rank fails. Each thread starts each call after a
// random delay.
#include <gmock/gmock.h>

#include <random>
#include <thread>

#include "backend/thread_communicator.h"
#include "base/device_lost.h"
#include "test_seed.h"

namespace ingot {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

// Runs f(communicator, delay) in one thread per rank. Returns each rank's error message, "" if there was no error.
template <class F>
std::vector<std::string> run_ranks(int n, std::chrono::milliseconds limit, F&& f) {
  const auto ranks = std::make_shared<ThreadRanks>(n, limit);
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::vector<std::string> errors(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (int r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      std::mt19937 random(seed + static_cast<unsigned>(r));
      const auto delay = [&] {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 4 == 0 ? random() % 300 : 0));
      };
      const auto communicator = ThreadRanks::communicator(ranks, r);
      try {
        f(*communicator, delay);
      } catch (const DeviceLost& error) {
        errors[static_cast<size_t>(r)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(ThreadRanks, SumsAreTheSameBitsOnAllRanks) {
  constexpr int kRanks = 5, kRounds = 100;
  std::vector<std::vector<float>> results(kRanks);
  const auto errors = run_ranks(kRanks, 10s, [&](Communicator& ranks, const auto& delay) {
    for (int round = 0; round < kRounds; ++round) {
      std::vector<float> x(static_cast<size_t>(round % 7));  // also empty, and shorter than the number of ranks
      for (size_t i = 0; i < x.size(); ++i)
        x[i] = std::ldexp(1.0f, (ranks.rank() * 31 + round * 7 + static_cast<int>(i)) % 40) + 1;
      delay();
      ranks.all_reduce(x.data(), static_cast<int64_t>(x.size()));
      auto& all = results[static_cast<size_t>(ranks.rank())];
      all.insert(all.end(), x.begin(), x.end());
    }
  });
  EXPECT_THAT(errors, testing::Each(""));
  size_t at = 0;
  for (int round = 0; round < kRounds; ++round)
    for (int i = 0; i < round % 7; ++i, ++at) {
      float sum = 0;  // in the order of the ranks
      for (int r = 0; r < kRanks; ++r) sum += std::ldexp(1.0f, (r * 31 + round * 7 + i) % 40) + 1;
      for (const auto& of_rank : results) EXPECT_EQ(of_rank.at(at), sum);
    }
}

TEST(ThreadRanks, GathersAndMessages) {
  const auto errors = run_ranks(3, 10s, [](Communicator& ranks, const auto& delay) {
    for (int round = 0; round < 50; ++round) {
      const std::array<int, 2> own = {ranks.rank(), round};
      std::array<std::array<int, 2>, 3> all{};
      delay();
      ranks.all_gather(all.data(), own.data(), sizeof(own));
      for (int r = 0; r < 3; ++r) EXPECT_THAT(all[static_cast<size_t>(r)], testing::ElementsAre(r, round));
      delay();
      const std::vector<uint8_t> message(static_cast<size_t>(round), static_cast<uint8_t>(round));
      if (ranks.rank() == 0) {
        ranks.send(message);
      } else {
        EXPECT_EQ(ranks.receive(), message);
      }
    }
  });
  EXPECT_THAT(errors, testing::Each(""));
}

// Several threads of a rank use a channel each. Messages of different lengths arrive in order.
TEST(ThreadRanks, MessagesFromOneRankToAnother) {
  const auto errors = run_ranks(3, 10s, [](Communicator& ranks, const auto& delay) {
    const int next = (ranks.rank() + 1) % 3, last = (ranks.rank() + 2) % 3;
    const auto bytes = [](int from, int channel, int i) {
      return std::vector<uint8_t>(static_cast<size_t>(i), static_cast<uint8_t>(16 * from + 4 * channel + i));
    };
    std::thread other([&] {
      for (int i = 0; i < 50; ++i) ranks.pass(next, 1, bytes(ranks.rank(), 1, i));
    });
    for (int i = 0; i < 50; ++i) {
      delay();
      ranks.pass(next, 0, bytes(ranks.rank(), 0, i));
      for (const int channel : {1, 0}) {
        std::vector<uint8_t> message(static_cast<size_t>(i));
        ranks.take(last, channel, message);
        EXPECT_EQ(message, bytes(last, channel, i));
      }
    }
    other.join();
  });
  EXPECT_THAT(errors, testing::Each(""));
}

TEST(ThreadRanks, GroupsOfNeighbours) {
  const auto errors = run_ranks(6, 10s, [](Communicator& ranks, const auto& delay) {
    for (const int n : {1, 2, 3, 6}) {
      const auto group = ranks.group(n);
      EXPECT_EQ(group->size(), n);
      EXPECT_EQ(group->rank(), ranks.rank() % n);
      auto x = static_cast<float>(ranks.rank());
      delay();
      group->all_reduce(&x, 1);
      const int first = ranks.rank() / n * n;
      EXPECT_EQ(x, static_cast<float>(n * first + n * (n - 1) / 2));
    }
  });
  EXPECT_THAT(errors, testing::Each(""));
}

TEST(ThreadRanks, AFaultEndsARankThatWaitsForAMessage) {
  const auto errors = run_ranks(2, 200ms, [](Communicator& ranks, const auto&) {
    std::array<uint8_t, 4> message;
    if (ranks.rank() == 0) return ranks.take(1, 0, message);
    std::this_thread::sleep_for(300ms);  // longer than the limit, which is not for messages
    ranks.abort(std::make_exception_ptr(DeviceLost("rank 1 of 2: out of memory")));
    ranks.pass(0, 0, message);
  });
  EXPECT_THAT(errors, testing::Each("rank 1 of 2: out of memory"));
}

TEST(ThreadRanks, AFaultOfOneEndsTheOthers) {
  const auto errors = run_ranks(3, 10s, [](Communicator& ranks, const auto&) {
    float x = 1;
    ranks.all_reduce(&x, 1);
    if (ranks.rank() == 1) return ranks.abort(std::make_exception_ptr(DeviceLost("rank 1 of 3: out of memory")));
    if (ranks.rank() == 2) {
      ranks.receive();
    } else {
      ranks.all_reduce(&x, 1);
    }
  });
  EXPECT_EQ(errors[0], "rank 1 of 3: out of memory");
  EXPECT_EQ(errors[2], "rank 1 of 3: out of memory");
}

TEST(ThreadRanks, ARankThatDoesNotComeIsNamed) {
  std::atomic<int> n_failed{0};
  const auto errors = run_ranks(3, 200ms, [&](Communicator& ranks, const auto&) {
    float x = 1;
    ranks.all_reduce(&x, 1);
    if (ranks.rank() == 1) {  // hangs until the other ranks have failed
      while (n_failed < 2) std::this_thread::sleep_for(1ms);
      return ranks.check();
    }
    try {
      ranks.all_reduce(&x, 1);
    } catch (...) {
      ++n_failed;
      throw;
    }
  });
  EXPECT_THAT(errors, testing::Each(HasSubstr("rank 1 of 3 has not answered for 0.2 s: it hangs")));
}

}  // namespace
}  // namespace ingot
