// Copies of quantized weights as rows of f16 on a GPU (PackedWeight::halves). Skipped if the build has no CUDA or the
// machine has no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "backend/blocks/feed_forward.h"
#include "backend/ref/ref_backend.h"
#include "base/error.h"
#include "op_case.h"
#include "ops_rig.h"
#include "test_seed.h"

namespace ingot {
namespace {

constexpr char kCopyKernel[] = "halves, cuBLASLt";

std::unique_ptr<Backend> gpu_with_copies(const std::string& copies = "") {
  try {
    return create_backend({.device = "cuda", .copies = copies});
  } catch (const UsageError&) {
    return nullptr;
  }
}

int64_t n_copy_kernels(const Backend& backend, const Weight& w, int64_t rows) {
  return std::ranges::count(backend.matmul_kernels(w, rows), kCopyKernel);
}

// The copies of two weights become one matrix, although their factors differ. A copy and a dense weight stay apart.
TEST(CudaCopies, JoinedCopiesMatchRef) {
  const auto backend = gpu_with_copies(), ref = create_ref_backend();
  if (!backend) GTEST_SKIP() << "no GPU";
  const uint64_t seed = test_seed();
  constexpr int64_t kRows = 130, kOut = 320, kIn = 1024;
  backend->reserve(kCaseLimits);
  ref->reserve(kCaseLimits);
  for (const std::pair<Format, Format>& formats : {std::pair{Format::Q4_0, Format::Q4_0},
                                                   {Format::Q4_K, Format::Q6_K},
                                                   {Format::MXFP4, Format::MXFP4},
                                                   {Format::Q4_0, Format::F16},
                                                   {Format::F16, Format::Q4_0}})
    for (const float scale : {1.0f / 256, 256.0f}) {
      SCOPED_TRACE(
          fmt::format("{}, {} times {}, seed {}", info(formats.first).name, info(formats.second).name, scale, seed));
      const auto gated = [&](Backend& on, bool on_gpu) {
        OpRig rig(on, seed);
        const Tensor x = rig.activations(kRows, kIn), y = rig.output(kRows, kOut);
        const Weight &gate = rig.weight(formats.first, kOut, kIn),
                     &up = rig.weight(formats.second, kOut, kIn, 1, scale);
        if (on_gpu) {
          on.matmul(y, x, gate, {});  // copies are made before the first product
          Program program;
          program.blocks.emplace_back(FeedForwardBlock{.w_gate = gate, .w_up = up});
          on.prepare_program(program);
          EXPECT_EQ(n_copy_kernels(on, gate, kRows), formats.first == Format::F16 ? 0 : 1);
          if (formats.first != Format::F16 && formats.second != Format::F16) on.use_matmul_kernel(kCopyKernel);
        }
        on.gate_up({.y = y, .x = x, .w_gate = &gate, .w_up = &up, .act = Activation::kSilu});
        on.use_matmul_kernel("");
        std::vector<float> values(static_cast<size_t>(kRows * kOut));
        on.download(values.data(), y);
        return values;
      };
      const std::vector<float> got = gated(*backend, true), want = gated(*ref, false);
      double squares = 0, error_squares = 0;
      for (size_t i = 0; i < want.size(); ++i)
        squares += want[i] * want[i], error_squares += (got[i] - want[i]) * (got[i] - want[i]);
      EXPECT_LE(std::sqrt(error_squares / squares), 4e-3);  // copies and y are rounded; NaN fails too
    }
}

// The product with the identity shows the numbers of a copy.
TEST(CudaCopies, AreWeightsAsBf16Numbers) {
  const auto backend = gpu_with_copies(), ref = create_ref_backend();
  if (!backend) GTEST_SKIP() << "no GPU";
  const uint64_t seed = test_seed();
  constexpr int64_t kOut = 256, kIn = 512;
  backend->reserve(kCaseLimits);
  ref->reserve(kCaseLimits);
  for (const Format format : {Format::Q8_0, Format::Q4_K, Format::Q6_K, Format::IQ4_NL}) {
    SCOPED_TRACE(fmt::format("{}, seed {}", info(format).name, seed));
    const auto weights = [&](Backend& on, auto one, const char* kernel) {
      OpRig rig(on, seed);
      const Weight& w = rig.weight(format, kOut, kIn);
      std::vector<decltype(one)> identity(static_cast<size_t>(kIn * kIn));
      for (int64_t i = 0; i < kIn; ++i) identity[static_cast<size_t>(i * kIn + i)] = one;
      const Tensor x = on.alloc(on.act_dtype(), kIn, kIn), y = on.alloc(DType::kF32, kIn, kOut);
      on.upload(x, identity.data());
      on.matmul(y, x, w, {});  // copies are made before the first product
      on.use_matmul_kernel(kernel);
      on.matmul(y, x, w, {});
      on.use_matmul_kernel("");
      std::vector<float> values(static_cast<size_t>(kIn * kOut));
      on.download(values.data(), y);
      return values;
    };
    const std::vector<float> got = weights(*backend, uint16_t{0x3C00}, kCopyKernel), want = weights(*ref, 1.0f, "");
    float most = 0;
    for (const float v : want) most = std::max(most, std::fabs(v));
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]) & 0xFFFF, 0u) << i << ": " << got[i];
      // bf16 rounds the weight by up to 2^-8. Before that, f16 rounds the level times the scale, of up to twice the
      // largest weight, the minimum and the weight by up to 2^-11 each.
      ASSERT_NEAR(got[i], want[i], 0x1.02p-8f * std::fabs(want[i]) + 0x1p-9f * most) << i;
    }
  }
}

// The share of the halves in t whose last three bits are zero.
double share_of_8_bits(Backend& backend, const Tensor& t) {
  std::vector<uint16_t> halves(static_cast<size_t>(t.rows * t.cols));
  backend.download(halves.data(), t);
  return static_cast<double>(std::ranges::count_if(halves, [](uint16_t h) { return (h & 7) == 0; })) /
         static_cast<double>(halves.size());
}

// What copies are multiplied with has 8 bits, too. Rows of 16-bit weights, and few rows, keep all 11.
TEST(CudaCopies, RoundTheirInputs) {
  const auto backend = gpu_with_copies(), without = gpu_with_copies();
  if (!backend) GTEST_SKIP() << "no GPU";
  const uint64_t seed = test_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  constexpr int64_t kDim = 512, kHeadDim = 64;
  const auto share = [&](Backend& on, Format format, int64_t n_rows, auto&& run) {
    on.reserve(kCaseLimits);
    OpRig rig(on, seed);
    const Weight& w = rig.weight(format, kDim, kDim);
    on.matmul(rig.output(n_rows, kDim), rig.activations(n_rows, kDim), w, {});  // copies are made before
    if (format == Format::Q8_0) on.use_matmul_kernel(n_rows > 128 ? kCopyKernel : "tiles");
    const Tensor written = on.alloc(on.act_dtype(), n_rows, kDim);
    run(rig, w, written);
    on.use_matmul_kernel("");
    return share_of_8_bits(on, written);
  };
  const auto norm = [&](OpRig& rig, const Weight& w, const Tensor& normed) {
    rig.backend().norm_matmul(rig.output(normed.rows, kDim), rig.values(normed.rows, kDim), normed, rig.norm(kDim), w,
                              {});
  };
  const auto gate_up = [&](OpRig& rig, const Weight& w, const Tensor& y) {
    const Tensor x = rig.activations(y.rows, kDim);
    rig.backend().gate_up({.y = y, .x = x, .w_gate = &w, .w_up = &w, .act = Activation::kSilu});
  };
  const auto attention = [&](OpRig& rig, const Weight&, const Tensor& y) {
    constexpr int kHeads = kDim / kHeadDim;
    KvCache& kv = rig.cache_and_batch({{0, static_cast<int>(y.rows)}},
                                      {.n_layers = 1, .n_kv_heads = kHeads, .head_dim = kHeadDim, .block_size = 16});
    rig.backend().kv_write(kv, 0, rig.values(y.rows, kDim), rig.values(y.rows, kDim));
    const AttentionArgs args{.n_heads = kHeads, .n_kv_heads = kHeads, .head_dim = kHeadDim, .scale = 0.125f};
    rig.backend().attention(y, rig.values(y.rows, kDim), kv, args);
  };
  const auto check = [&](const char* name, auto&& run) {
    SCOPED_TRACE(name);
    EXPECT_GT(share(*backend, Format::Q8_0, 130, run), 0.99);  // subnormal halves have fewer bits, up to the last
    EXPECT_LT(share(*backend, Format::Q8_0, 40, run), 0.5);
    EXPECT_LT(share(*without, Format::F16, 130, run), 0.5);
  };
  check("norm", norm);
  check("gate_up", gate_up);
  check("attention", attention);
}

// With little memory, or if the user wishes it, quantized weights have no copies.
TEST(CudaCopies, SaveMemory) {
  const auto backend = gpu_with_copies(), never = gpu_with_copies("never");
  if (!backend) GTEST_SKIP() << "no GPU";
  const Weight shape{.format = Format::Q4_0, .n_out = 512, .n_in = 1024};
  const size_t with = backend->packed_bytes(shape, kForMatmul), copy = size_t{2} * 512 * 1024;
  EXPECT_EQ(backend->packed_bytes(shape, kForEmbedding), with - copy);
  EXPECT_TRUE(backend->save_memory());
  EXPECT_FALSE(backend->save_memory());
  EXPECT_FALSE(never->save_memory());
  for (Backend* small : {backend.get(), never.get()}) {
    EXPECT_EQ(small->packed_bytes(shape, kForMatmul), with - copy);
    OpRig rig(*small, 7);
    const Weight& w = rig.weight(Format::Q4_0, 512, 1024);
    small->matmul(rig.output(100, 512), rig.activations(100, 1024), w, {});
    EXPECT_EQ(n_copy_kernels(*small, w, 100), 0);
  }
}

}  // namespace
}  // namespace ingot
