// Each rank of each stage gets its own device.
#include "model/devices/device_spread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/error.h"
#include "model/devices/parallel.h"
#include "model/devices/ranks.h"
#include "test_seed.h"

namespace ingot {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::string> names_from(int first, int n) {
  std::vector<std::string> names;
  for (int i = 0; i < n; ++i) names.push_back(fmt::format("cuda:{}", first + i));
  return names;
}

// The devices of the stages of each rank, as the runner reads them.
std::vector<std::vector<std::string>> spread(const std::string& devices, int n_ranks, int n_stages) {
  RunnerOptions options;
  spread_over_devices(devices, n_ranks, n_stages, options);
  if (options.parallel.n_ranks == 1) return {device_list(options.backend.device)};
  std::vector<std::vector<std::string>> of_ranks;
  for (int rank = 0; rank < options.parallel.n_ranks; ++rank)
    of_ranks.push_back(device_list(rank_device(options, rank)));
  return of_ranks;
}

TEST(DeviceSpread, EachRankOfEachStageHasItsOwn) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  for (int turn = 0; turn < 200; ++turn) {
    const int n_ranks = 1 + static_cast<int>(draw() % 5), n_stages = 1 + static_cast<int>(draw() % 5);
    const int first = static_cast<int>(draw() % 4);
    std::vector<std::string> names = names_from(first, n_ranks * n_stages);
    const bool is_list = draw() % 2 == 0;
    if (is_list) std::shuffle(names.begin(), names.end(), draw);
    std::string given = names.front();
    for (size_t i = 1; is_list && i < names.size(); ++i) given += "," + names[i];
    const auto of_ranks = spread(given, n_ranks, n_stages);
    ASSERT_EQ(std::ssize(of_ranks), n_ranks) << given;
    std::set<std::string> all;
    for (int rank = 0; rank < n_ranks; ++rank) {
      ASSERT_EQ(std::ssize(of_ranks[rank]), n_stages) << given;
      for (int stage = 0; stage < n_stages; ++stage) {
        EXPECT_EQ(of_ranks[rank][stage], names[stage * n_ranks + rank]) << given;
        all.insert(of_ranks[rank][stage]);
      }
    }
    EXPECT_EQ(std::ssize(all), n_ranks * n_stages);
  }
}

TEST(DeviceSpread, RanksOnTheCpuShareIt) {
  for (const auto& stages : spread("cpu", 3, 2)) EXPECT_EQ(stages, (std::vector<std::string>{"cpu", "cpu"}));
}

TEST(DeviceSpread, RefusesListsThatDoNotFit) {
  EXPECT_THAT([] { spread("cuda:0,cuda:1,cuda:2", 2, 1); },
              ThrowsMessage<Error>(HasSubstr("names 3 devices, but tp is 2")));
  EXPECT_THAT([] { spread("cuda:0,cuda:1", 2, 2); }, ThrowsMessage<Error>(HasSubstr("and pp is 2")));
  EXPECT_THAT([] { spread("cuda,cuda:0", 1, 2); }, ThrowsMessage<Error>(HasSubstr("names a GPU twice")));
}

}  // namespace
}  // namespace ingot
