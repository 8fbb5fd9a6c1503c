// Kernels compiled for one product. NVRTC compiles this program's own sources for every architecture and kind of weight
// (no GPU is needed for that), and the compiled kernels are cached. cuda_ops_test checks that the kernels compute the
// right numbers.
#include "backend/cuda/specialised.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/nvrtc.h"
#include "base/error.h"

namespace ingot::cuda {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// Shapes that launches request: [4096 x 4096] with a norm in front, an uneven size with a bias, three weights, and a
// gate.
const ProductShape kShapes[] = {
    {.n_in = 4096, .n_steps = 32, .n_jobs = 1, .n_tiles = 256, .n_out = {4096}, .zero = 8, .split = 16, .n_warps = 16, .has_norm = true, .y_f32 = true},
    {.n_in = 416, .n_steps = 4, .n_jobs = 1, .n_tiles = 18, .n_out = {280}, .zero = 8, .split = 4, .n_warps = 8, .has_bias = true, .accumulate = true, .warms_instruction_cache = true},
    {.n_in = 2048, .n_steps = 16, .n_jobs = 3, .n_tiles = 192, .first_tile = {0, 128, 160}, .n_out = {2048, 512, 512}, .zero = 8, .split = 8, .n_warps = 8},
    {.n_in = 576, .n_steps = 5, .n_jobs = 2, .n_tiles = 96, .n_out = {1536, 1536}, .zero = 8, .act = 0, .split = 4, .n_warps = 8, .y_f32 = true},
};

const ProductShape& shape_with(bool gated) { return kShapes[gated ? 3 : 0]; }

ProductShape of_few_rows(ProductShape shape, int n_tokens) {
  shape.n_tokens = n_tokens, shape.staged = n_tokens % 2 == 0;
  return shape;
}

ProductShape of_tiles(ProductShape shape, int weight_tiles) {
  shape.weight_tiles = weight_tiles;
  return shape;
}

// Gate and up of eight experts, or the weighted sum over eight experts. `partial`: other ranks have some of them.
ProductShape of_experts(bool gated, bool partial = false) {
  if (gated)
    return {.n_in = 2048,
            .n_steps = 16,
            .n_jobs = 2,
            .n_tiles = 48,
            .n_out = {768},
            .zero = 8,
            .act = 0,
            .n_warps = 16,
            .n_terms = 1,
            .n_sums = 8,
            .n_inputs = 1,
            .partial = partial};
  return {.n_in = 768,
          .n_steps = 6,
          .n_jobs = 1,
          .n_tiles = 128,
          .n_out = {2048},
          .zero = 8,
          .n_warps = 8,
          .n_terms = 8,
          .n_sums = 1,
          .n_inputs = 8,
          .has_bias = true,
          .y_f32 = true,
          .accumulate = true,
          .partial = partial};
}

TEST(Specialised, CompilesForEveryArchitecture) {
  const Nvrtc* nvrtc = Nvrtc::get();
  if (nvrtc == nullptr) GTEST_SKIP() << "no NVRTC";
  for (const char* arch : {"sm_80", "sm_86", "sm_89", "sm_90a"}) {
    const SpecialisedKernel kernels[] = {
        {SpecialisedKernel::kDotCodes, Layout::kCodes4, false, false, 1, kShapes[2]},
        {SpecialisedKernel::kMatvec, Layout::kCodes4, false, false, 1, of_few_rows(kShapes[2], 4)},
        {SpecialisedKernel::kTiles, Layout::kCodes4, false, false, 4, of_tiles(kShapes[2], 2)},
        {SpecialisedKernel::kTiles, Layout::kCodes4, false, false, 8, of_tiles(kShapes[2], 1)},
        {SpecialisedKernel::kTiles, Layout::kCodesE4M3, false, false, 4, of_tiles(kShapes[2], 2)},
        {SpecialisedKernel::kDotRows, Layout::kDense, false, false, 2, kShapes[2]},
        {SpecialisedKernel::kExpertCodes, Layout::kCodes4, false, false, 2, of_experts(true)}};
    for (const SpecialisedKernel& kernel : kernels)
      EXPECT_GT(nvrtc->compile(source_of(kernel), arch).size(), 1000u) << arch << '\n' << source_of(kernel);
  }
}

TEST(Specialised, CompilesForEveryKindOfWeight) {
  const Nvrtc* nvrtc = Nvrtc::get();
  if (nvrtc == nullptr) GTEST_SKIP() << "no NVRTC";
  struct Kind {
    Layout layout;
    bool has_min, group16, dots;
  };
  constexpr Kind kKinds[] = {{Layout::kCodes4, false, false, true},   {Layout::kCodes4, true, false, true},
                             {Layout::kCodes8, false, false, true},   {Layout::kCodes8, true, false, true},
                             {Layout::kCodes8, false, true, true},    {Layout::kCodes4, true, true, false},
                             {Layout::kCodes4, false, true, false},   {Layout::kCodebook4, false, false, false},
                             {Layout::kCodebook4, false, true, false}, {Layout::kCodesE2M1, false, false, false},
                             {Layout::kCodesE2M1, false, true, false}, {Layout::kCodesE4M3, false, false, false}};
  int i = 0;
  for (const Kind& k : kKinds) {
    const bool gated = ++i % 2 != 0;
    if (k.dots) {
      const SpecialisedKernel kernel{
          SpecialisedKernel::kDotCodes,         k.layout, k.has_min, k.group16, gated ? 2 : 1,
          gated ? shape_with(true) : kShapes[1]};
      EXPECT_GT(nvrtc->compile(source_of(kernel), "sm_90a").size(), 1000u) << source_of(kernel);
    }
    const SpecialisedKernel others[] = {
        {SpecialisedKernel::kWarpgroups, k.layout, k.has_min, k.group16, 64 + i % 3 * 32, shape_with(gated)},
        {SpecialisedKernel::kMatvec, k.layout, k.has_min, k.group16, 1 + i / 2 % 2,
         of_few_rows(shape_with(gated), 2 + i)},
        {SpecialisedKernel::kTiles, k.layout, k.has_min, k.group16, 1 << (i / 2 % 4),
         of_tiles(shape_with(gated), gated ? 2 : 1)},
        {SpecialisedKernel::kExpertCodes, k.layout, k.has_min, k.group16, gated ? 2 : 1, of_experts(gated)},
        {SpecialisedKernel::kExpertCodes, k.layout, k.has_min, k.group16, gated ? 2 : 1, of_experts(gated, true)}};
    for (const SpecialisedKernel& kernel : others)
      EXPECT_GT(nvrtc->compile(source_of(kernel), "sm_90a").size(), 1000u) << source_of(kernel);
  }
}

TEST(Specialised, SaysWhatTheCompilerSays) {
  const Nvrtc* nvrtc = Nvrtc::get();
  if (nvrtc == nullptr) GTEST_SKIP() << "no NVRTC";
  try {
    nvrtc->compile("__global__ void k() { nonsense; }", "sm_80");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("nonsense"));
  }
  EXPECT_THROW(nvrtc->compile("", "sm_1"), Error);
}

// A kernel is compiled once and then found in the cache folder. A damaged file is compiled again. The kernel cannot be
// loaded without a device, which counts as a failure.
TEST(Specialised, IsKept) {
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << "no NVRTC";
  const fs::path folder = fs::path(testing::TempDir()) / fmt::format("specialised_{}", ::getpid());
  fs::remove_all(folder);
  const SpecialisedKernel kernel{SpecialisedKernel::kDotCodes, Layout::kCodes4, false, false, 1, kShapes[0]};
  const auto made = [&] {
    SpecialisedKernels kernels({.major = 9}, folder.string());
    EXPECT_FALSE(kernels.load_ready());
    EXPECT_EQ(kernels.find(kernel), nullptr);
    EXPECT_EQ(kernels.find(kernel), nullptr);  // the first request
    kernels.wait();
    EXPECT_TRUE(kernels.load_ready());
    EXPECT_FALSE(kernels.load_ready());
    EXPECT_EQ(kernels.find(kernel) == nullptr, kernels.n_failed() == 1);
    return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
  };
  EXPECT_EQ(made(), 1);
  const fs::path file = fs::directory_iterator(folder)->path();
  const auto size = fs::file_size(file);
  const auto old = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(file, old);
  EXPECT_EQ(made(), 1);  // found: only the file's time of use changes
  EXPECT_GT(fs::last_write_time(file), old);
  fs::resize_file(file, size / 2);
  EXPECT_EQ(made(), 1);
  EXPECT_EQ(fs::file_size(file), size);
  fs::remove_all(folder);
}

// The destructor waits only for running compilations, and no thread is left.
TEST(Specialised, MayEndBeforeAnythingIsMade) {
  if (Nvrtc::get() == nullptr) GTEST_SKIP() << "no NVRTC";
  const auto n_threads = [] {
    return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
  };
  const auto before = n_threads();
  for (int n = 0; n < 3; ++n) {
    {
      SpecialisedKernels kernels({.major = 8}, "");
      for (int i = 0; i < n; ++i)
        EXPECT_EQ(kernels.find({SpecialisedKernel::kDotCodes, Layout::kCodes4, false, false, 1, kShapes[i]}), nullptr);
    }
    EXPECT_EQ(n_threads(), before) << n << " kernels were asked for";
  }
}

}  // namespace
}  // namespace ingot::cuda
