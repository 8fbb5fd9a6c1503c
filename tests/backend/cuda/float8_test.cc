// Products of FP8 weights with activations that the backend quantizes to FP8, against ref, for each way of sharing
// scales.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "backend/gpu.h"
#include "backend/ref/ref_backend.h"
#include "quant/f8_e4m3.h"
#include "test_seed.h"

namespace ingot {
namespace {

constexpr StepLimits kFloat8Limits = {.max_tokens = 520,
                                      .max_seqs = 8,
                                      .max_logits = 8,
                                      .max_kv_len = 256,
                                      .max_width = 4096,
                                      .max_heads = 8,
                                      .head_dim = 64,
                                      .n_vocab = 16};
constexpr int64_t kMaxRows = 513;

enum class Shared { kTensor, kRows, kBlocks, kColumns };

class Float8Inputs {
 public:
  explicit Float8Inputs(uint64_t seed) : random_(seed) {}

  // Random numbers, with one scale for each part of the matrix.
  std::vector<uint8_t> weight(int64_t n_out, int64_t n_in, Shared shared) {
    std::vector<uint8_t> bytes(row_bytes(Format::F8_E4M3, n_in) * static_cast<size_t>(n_out));
    const int64_t per_row = n_in / 128;
    std::vector<float> scales(static_cast<size_t>(n_out * per_row));
    for (float& s : scales) s = 0.001f * (1 + static_cast<float>(random_() % 1000) / 1000);
    uint8_t numbers[128];
    for (int64_t row = 0; row < n_out; ++row)
      for (int64_t k = 0; k < per_row; ++k) {
        for (uint8_t& number : numbers) number = not_nan(static_cast<uint8_t>(random_()));
        const int64_t scale = shared == Shared::kTensor   ? 0
                              : shared == Shared::kRows   ? row
                              : shared == Shared::kBlocks ? row / 128 * per_row + k
                                                          : row * per_row + k;
        quant::F8_E4M3::put(numbers, scales[static_cast<size_t>(scale)],
                            &bytes[static_cast<size_t>((row * per_row + k) * quant::F8_E4M3::block_bytes)]);
      }
    return bytes;
  }

  // Numbers that FP8 holds exactly with a scale for each 128 columns or for each row: one in each 128 is the largest.
  std::vector<float> exact(int64_t n, int64_t n_in) {
    std::vector<float> x(static_cast<size_t>(n * n_in));
    for (int64_t row = 0; row < n; ++row) {
      const float unit = std::ldexp(1.0f, -8 + static_cast<int>(random_() % 3));
      for (int64_t i = 0; i < n_in; ++i)
        x[static_cast<size_t>(row * n_in + i)] =
            unit * (i % 128 == 5 ? 448.0f : quant::float_from_e4m3(not_nan(static_cast<uint8_t>(random_()))));
    }
    return x;
  }
  std::vector<float> normal(int64_t n, int64_t n_in) {
    std::normal_distribution<float> of;
    std::vector<float> x(static_cast<size_t>(n * n_in));
    for (float& v : x) v = of(random_);
    return x;
  }

 private:
  static uint8_t not_nan(uint8_t number) { return (number & 0x7F) == 0x7F ? number ^ 1 : number; }
  std::mt19937_64 random_;
};

// A weight on one backend, with room for kMaxRows rows.
struct Product {
  Backend& backend;
  Weight w;
  Tensor in, halves, out;

  Product(Backend& b, const std::vector<uint8_t>& bytes, int64_t n_out, int64_t n_in) : backend(b) {
    w = backend.prepare({.format = Format::F8_E4M3, .n_out = n_out, .n_in = n_in, .codes = bytes.data()}, kForMatmul);
    in = backend.alloc(DType::kF32, kMaxRows, n_in), out = backend.alloc(DType::kF32, kMaxRows, n_out);
    if (backend.act_dtype() == DType::kF16) halves = backend.alloc(DType::kF16, kMaxRows, n_out);
  }
  // The outputs y = x w^T, or with `add` y = 1 + x w^T, in f32 or through f16.
  std::vector<float> run(const std::vector<float>& x, int64_t n, bool add, DType dtype) {
    std::vector<float> result(static_cast<size_t>(n * w.n_out), add ? 1.0f : NAN);
    const Tensor from = in.slice_rows(0, n), y = out.slice_rows(0, n);
    backend.upload(from, x.data());
    backend.upload(y, result.data());
    if (add) {
      backend.matmul_add(y, from, w, {});
    } else if (dtype == DType::kF16) {
      backend.matmul(halves.slice_rows(0, n), from, w, {});
      backend.copy(y, halves.slice_rows(0, n));
    } else {
      backend.matmul(y, from, w, {});
    }
    backend.download(result.data(), y);
    return result;
  }
};

// Relative to the size of `want`, whose first elements `got` should equal.
double error_of(const std::vector<float>& got, const std::vector<float>& want, float added = 0) {
  double squares = 0, errors = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = double{got[i]} - (double{want[i]} + added);
    squares += double{want[i]} * want[i], errors += error * error;
  }
  return std::sqrt(errors / squares);
}

TEST(CudaFloat8, MatchesRefWithEveryGridOfScales) {
  const auto backend = gpu(), ref = create_ref_backend();
  if (!backend) GTEST_SKIP() << "no GPU";
  const uint64_t seed = test_seed();
  Float8Inputs inputs(seed);
  backend->reserve(kFloat8Limits), ref->reserve(kFloat8Limits);
  std::set<std::string> kernels;
  for (const auto& [n_out, n_in] : {std::pair<int64_t, int64_t>{288, 640}, {512, 2048}, {200, 384}})
    for (const Shared shared : {Shared::kTensor, Shared::kRows, Shared::kBlocks, Shared::kColumns}) {
      const std::vector<uint8_t> bytes = inputs.weight(n_out, n_in, shared);
      Product here(*backend, bytes, n_out, n_in), there(*ref, bytes, n_out, n_in);
      const std::vector<float> x = inputs.exact(kMaxRows, n_in), rounded = inputs.normal(kMaxRows, n_in);
      const std::vector<float> want = there.run(x, kMaxRows, false, DType::kF32),
                               want_rounded = there.run(rounded, kMaxRows, false, DType::kF32);
      for (const int64_t n : {1, 2, 7, 8, 9, 16, 63, 64, 65, 72, 128, 129, 513}) {
        SCOPED_TRACE(
            fmt::format("[{} x {}] shared {}, rows {}, seed {}", n_out, n_in, static_cast<int>(shared), n, seed));
        kernels.insert(backend->matmul_kernels(here.w, n)[0]);
        EXPECT_LE(error_of(here.run(x, n, false, DType::kF32), want), 1e-3);
        EXPECT_LE(error_of(here.run(x, n, true, DType::kF32), want, 1), 1e-3);
        EXPECT_LE(error_of(here.run(x, n, false, DType::kF16), want), 2e-3);
        // Three bits of mantissa: a number errs by a sixteenth at most, and by 0.026 in the mean square.
        const double error = error_of(here.run(rounded, n, false, DType::kF32), want_rounded);
        EXPECT_LE(error, 0.035);
        if (n >= 63 && n_out % 16 == 0) {
          EXPECT_GE(error, 0.015) << "the activations were not quantized";
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  EXPECT_TRUE(kernels.contains("stream"));
}

// One kernel computes the norm and quantizes it. The bits are those of two kernels.
TEST(CudaFloat8, QuantizesTheNormOfItsInput) {
  const auto backend = gpu();
  if (!backend) GTEST_SKIP() << "no GPU";
  const uint64_t seed = test_seed();
  Float8Inputs inputs(seed);
  backend->reserve(kFloat8Limits);
  for (const int64_t n_in : {128, 640, 2048, 4096})
    for (const Shared shared : {Shared::kRows, Shared::kBlocks}) {
      constexpr int64_t kOut = 288;
      Product product(*backend, inputs.weight(kOut, n_in, shared), kOut, n_in);
      const Tensor scale = backend->alloc(DType::kF32, 1, n_in), normed = backend->alloc(DType::kF16, kMaxRows, n_in);
      backend->upload(scale, inputs.normal(1, n_in).data());
      backend->upload(product.in, inputs.normal(kMaxRows, n_in).data());
      const NormArgs norm{.weight = scale, .eps = 1e-5f};
      for (const int64_t n : {9, 16, 64, 71, 129, 513}) {
        SCOPED_TRACE(fmt::format("{} inputs, shared {}, rows {}, seed {}", n_in, static_cast<int>(shared), n, seed));
        const Tensor x = product.in.slice_rows(0, n), y = product.out.slice_rows(0, n), to = normed.slice_rows(0, n);
        std::vector<float> one(static_cast<size_t>(n * kOut), NAN), two = one;
        backend->upload(y, one.data());
        backend->norm_matmul(y, x, to, norm, product.w, {});
        backend->download(one.data(), y);
        backend->norm(to, x, norm);
        backend->matmul(y, to, product.w, {});
        backend->download(two.data(), y);
        EXPECT_EQ(one, two);
      }
    }
}

// NaN of an activation reaches its row of outputs, and no other; rows of zeros give zeros.
TEST(CudaFloat8, NanAndZerosStayInTheirRows) {
  const auto backend = gpu();
  if (!backend) GTEST_SKIP() << "no GPU";
  Float8Inputs inputs(7);
  backend->reserve(kFloat8Limits);
  Product product(*backend, inputs.weight(256, 256, Shared::kBlocks), 256, 256);
  for (const int64_t n : {4, 24, 100, 200}) {
    std::vector<float> x = inputs.exact(n, 256);
    x[1 * 256 + 77] = NAN;
    std::fill_n(x.begin() + 2 * 256, 256, 0.0f);
    const std::vector<float> y = product.run(x, n, false, DType::kF32);
    for (int64_t i = 0; i < n * 256; ++i) {
      const float v = y[static_cast<size_t>(i)];
      if (i / 256 == 1) EXPECT_TRUE(std::isnan(v)) << "rows " << n << ", element " << i;
      else if (i / 256 == 2) EXPECT_EQ(v, 0.0f) << "rows " << n << ", element " << i;
      else EXPECT_TRUE(std::isfinite(v)) << "rows " << n << ", element " << i;
    }
  }
}

}  // namespace
}  // namespace ingot
