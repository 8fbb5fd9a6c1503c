// The table of NVIDIA's chips. It needs no GPU and no CUDA.
#include <gtest/gtest.h>

#include "backend/cuda/chips.h"

namespace ingot::cuda {
namespace {

TEST(Chips, AGpuHasTheLastRowThatItReaches) {
  struct Gpu {
    int major, minor;
    const char* chip;
    bool has_clusters, multiplies_float8, runs_grid;
  };
  // A100, RTX 3090, Orin, RTX 4090, H200, B200, RTX 5090; what a chip lacks is in NVIDIA's programming guide.
  constexpr Gpu kGpus[] = {{8, 0, "Ampere", false, false, false},   {8, 6, "Ampere", false, false, false},
                           {8, 7, "Ampere", false, false, false},   {8, 9, "Ada", false, true, false},
                           {9, 0, "Hopper", true, true, true},      {10, 0, "Blackwell", true, true, false},
                           {12, 0, "Blackwell", true, true, false}, {7, 5, "Ampere", false, false, false}};
  for (const Gpu& gpu : kGpus) {
    const Chip& chip = chip_of(gpu.major, gpu.minor);
    SCOPED_TRACE(testing::Message() << gpu.major << "." << gpu.minor);
    EXPECT_STREQ(chip.name, gpu.chip);
    EXPECT_EQ(chip.has_clusters, gpu.has_clusters);
    EXPECT_EQ(chip.has_dependent_launch, gpu.has_clusters);
    EXPECT_EQ(chip.multiplies_float8, gpu.multiplies_float8);
    EXPECT_EQ(chip.runs_grid, gpu.runs_grid);
    EXPECT_GE(chip.prompt_chunk, 512);
  }
}

TEST(Chips, RowsAscend) {
  for (size_t i = 1; i < std::size(kChips); ++i) EXPECT_GT(kChips[i].from, kChips[i - 1].from);
}

}  // namespace
}  // namespace ingot::cuda
