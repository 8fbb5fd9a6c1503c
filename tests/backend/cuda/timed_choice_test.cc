// TimedChoice with made-up times, without a GPU. A kernel that is not the list's must be faster by a twentieth, and is
// chosen only for the sizes that were timed.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "backend/cuda/matmul/matmul_kernels.h"
#include "test_seed.h"

namespace ingot::cuda {
namespace {

constexpr DeviceLimits kDevice = {.major = 8};

PackedWeight codes(int64_t n_out, int64_t n_in, bool has_min = false) {
  return {.layout = Layout::kCodes4,
          .has_min = has_min,
          .n_out = n_out,
          .n_in = n_in,
          .k_tiles = (n_in + kTileCols - 1) / kTileCols};
}

std::string listed(const PackedWeight& w, int64_t rows) { return matmul_kernel_for(kDevice, w, rows, false).name; }

const MatmulKernel* other_kernel(const PackedWeight& w, int64_t rows) {
  for (const MatmulKernel& kernel : matmul_kernels())
    if (!kernel.specialised && kernel.can(kDevice, w, rows) && kernel.name != listed(w, rows)) return &kernel;
  return nullptr;
}

TEST(TimedChoice, AnotherKernelMustWinByATwentieth) {
  const PackedWeight w = codes(4096, 4096), other = codes(4096, 4096, true);
  for (const auto& [share, wins] : {std::pair{0.90, true}, {0.94, true}, {0.96, false}, {1.0, false}, {3.0, false}}) {
    SCOPED_TRACE(share);
    const MatmulKernel* rival = other_kernel(w, 32);
    ASSERT_NE(rival, nullptr);
    TimedChoice choice;
    EXPECT_FALSE(choice.knows(w));
    choice.add(kDevice, w, 100, [&](const MatmulKernel& kernel, int64_t rows) {
      EXPECT_TRUE(kernel.can(kDevice, w, rows) && !kernel.specialised && rows <= 100);
      return rows == 32 && &kernel == rival                           ? 10 * share
             : &kernel == &matmul_kernel_for(kDevice, w, rows, false) ? 10.0
                                                                      : 50.0;
    });
    EXPECT_TRUE(choice.knows(w));
    EXPECT_FALSE(choice.knows(other));
    for (const int64_t rows : {17, 24, 32})
      EXPECT_EQ(choice.kernel_for(kDevice, w, rows).name, wins ? std::string(rival->name) : listed(w, rows)) << rows;
    for (const int64_t rows : {1, 4, 5, 16, 33, 64, 65, 100, 512, 5000})
      EXPECT_EQ(choice.kernel_for(kDevice, w, rows).name, listed(w, rows)) << rows;
    for (const int64_t rows : {1, 24, 300})
      EXPECT_EQ(choice.kernel_for(kDevice, other, rows).name, listed(other, rows)) << rows;
  }
}

// A copy in f16 needs more launches than our own kernels. So with few rows, the copy must be faster by a quarter, and
// then by a twentieth.
TEST(TimedChoice, ACopyMustWinByMoreWithFewRows) {
  PackedWeight w = codes(4096, 4096), copy{.layout = Layout::kDense, .n_out = 4096, .n_in = 4096};
  w.halves = &copy;
  ASSERT_FALSE(matmul_kernel_for(kDevice, w, 64, false).halves);
  for (const auto& [us, wins] : {std::pair{7.0, true}, {7.2, false}, {9.4, false}}) {
    SCOPED_TRACE(us);
    TimedChoice choice;
    choice.add(kDevice, w, 512, [&](const MatmulKernel& kernel, int64_t rows) {
      return kernel.halves ? us : kernel.name == listed(w, rows) ? 10.0 : 50.0;
    });
    EXPECT_EQ(choice.kernel_for(kDevice, w, 64).halves, wins);
    EXPECT_EQ(choice.kernel_for(kDevice, w, 128).halves, wins);
    EXPECT_TRUE(choice.kernel_for(kDevice, w, 512).halves);
  }
}

// For any times, the chosen kernel supports this number of rows.
TEST(TimedChoice, IsAlwaysAKernelThatCan) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 50; ++i) {
    const PackedWeight w =
        codes(static_cast<int64_t>(16 << random() % 12), static_cast<int64_t>(32 << random() % 10), random() % 2 != 0);
    TimedChoice choice;
    choice.add(kDevice, w, static_cast<int64_t>(random() % 4096),
               [&](const MatmulKernel&, int64_t) { return 1.0 + static_cast<double>(random() % 100); });
    for (int64_t rows = 1; rows < 5000; rows = rows * 3 / 2 + 1)
      EXPECT_TRUE(choice.kernel_for(kDevice, w, rows).can(kDevice, w, rows)) << rows;
  }
}

// Specialised kernels are listed next to their general kernel; the choice is made among general kernels.
TEST(TimedChoice, SpecialisedKernelsAreOfTheListsOwn) {
  for (const MatmulKernel& kernel : matmul_kernels()) {
    if (!kernel.specialised) continue;
    int n_plain = 0;
    for (const MatmulKernel& plain : matmul_kernels()) n_plain += !plain.specialised && plain.run == kernel.run;
    EXPECT_EQ(n_plain, 1) << kernel.name;
    for (const int64_t rows : {1, 40, 600}) EXPECT_FALSE(kernel.wins(kDevice, codes(4096, 4096), rows));
  }
}

}  // namespace
}  // namespace ingot::cuda
