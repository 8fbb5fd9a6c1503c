#include "base/splitmix.h"

#include <gtest/gtest.h>

namespace ingot {
namespace {

// The first outputs for seed 1234567, as printed by the published C source.
TEST(SplitMix, IsTheGeneratorOfThePaper) {
  constexpr uint64_t kSeed = 1234567;
  constexpr uint64_t kExpected[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                    4593380528125082431u, 16408922859458223821u};
  uint64_t counter = kSeed;
  for (uint64_t expected : kExpected) EXPECT_EQ(splitmix(counter += kSplitMixStep), expected);
}

}  // namespace
}  // namespace ingot
