#include "base/read_ahead.h"

#include <gtest/gtest.h>

#include <vector>

namespace ingot {
namespace {

using Plan = ReadAhead::Plan;

std::vector<int64_t> lines(ReadAhead& ahead, const uint8_t* base) {
  std::vector<int64_t> offsets;
  while (const uint8_t* line = ahead.next()) offsets.push_back(line - base);
  return offsets;
}

TEST(ReadAhead, BeginsAtTheThreadsPartOfEachRun) {
  std::vector<uint8_t> data(1 << 20);
  const uint8_t* base = data.data();
  const Plan plan{.runs = {{{base, 8, 128}, {base + 4096, 4, 64}}}, .n_runs = 2, .number = 1};
  for (const double part : {0.0, 0.5, 0.75}) {
    ReadAhead ahead;
    ahead.follow(plan, part);
    std::vector<int64_t> expected;
    for (auto at = static_cast<int64_t>(part * 8) * 128; at < 8 * 128; at += 64) expected.push_back(at);
    for (auto at = 4096 + static_cast<int64_t>(part * 4) * 64; at < 4096 + 4 * 64; at += 64) expected.push_back(at);
    EXPECT_EQ(lines(ahead, base), expected) << part;
  }
}

TEST(ReadAhead, EndsAfterItsBytes) {
  std::vector<uint8_t> data(4 * ReadAhead::kBytes);
  ReadAhead ahead;
  ahead.follow({.runs = {{{data.data(), 4, ReadAhead::kBytes}}}, .n_runs = 1, .number = 1}, 0.25);
  const std::vector<int64_t> offsets = lines(ahead, data.data());
  ASSERT_EQ(std::ssize(offsets), ReadAhead::kBytes / ReadAhead::kLine);
  EXPECT_EQ(offsets.front(), ReadAhead::kBytes);
}

TEST(ReadAhead, GoesOnWithAPlanThatItFollows) {
  std::vector<uint8_t> data(1024);
  Plan plan{.runs = {{{data.data(), 16, 64}}}, .n_runs = 1, .number = 1};
  ReadAhead ahead;
  ahead.follow(plan, 0);
  EXPECT_EQ(ahead.next(), data.data());
  ahead.follow(plan, 0);
  EXPECT_EQ(ahead.next(), data.data() + 64) << "no line twice";
  plan.number = 2;
  ahead.follow(plan, 0);
  EXPECT_EQ(ahead.next(), data.data());
}

TEST(ReadAhead, HasNothingWithoutAPlan) {
  ReadAhead ahead;
  EXPECT_EQ(ahead.next(), nullptr);
  ahead.follow({.runs = {}, .n_runs = 0, .number = 1}, 0.5);
  EXPECT_EQ(ahead.next(), nullptr);
}

}  // namespace
}  // namespace ingot
