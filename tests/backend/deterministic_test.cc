// In deterministic mode a row of a product is batch-invariant to the last bit, for every format and for products long
// enough to be summed in parts.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <random>

#include "backend/backend.h"
#include "quant/fill.h"
#include "test_seed.h"

namespace ingot {
namespace {

std::vector<Format> every_format() {
  std::vector<Format> formats;
  for (int i = 0; i < kFormatCount; ++i) formats.push_back(static_cast<Format>(i));
  return formats;
}

class Deterministic : public testing::TestWithParam<Format> {
 protected:
  bool dense() const { return info(GetParam()).block_size == 1; }
  Weight random_weight(int64_t n_out, int64_t n_in, int64_t n_experts) {
    const Format format = GetParam();
    auto& bytes = bytes_.emplace_back(static_cast<size_t>(n_experts * n_out) * row_bytes(format, n_in));
    fill_random(format, random_(), bytes.data(), n_experts * n_out * n_in / info(format).block_size,
                1.0f / std::sqrt(static_cast<float>(n_in)));
    return backend_->prepare(
        {.format = format, .n_out = n_out, .n_in = n_in, .codes = bytes.data(), .n_experts = n_experts}, kForMatmul);
  }
  Tensor rows(int64_t n, int64_t n_cols) { return backend_->alloc(DType::kF32, n, n_cols); }
  Tensor random_rows(int64_t n, int64_t n_cols) {
    std::normal_distribution<float> normal;
    std::vector<float> host(static_cast<size_t>(n * n_cols));
    for (float& v : host) v = normal(random_);
    const Tensor x = rows(n, n_cols);
    backend_->upload(x, host.data());
    return x;
  }

  const uint64_t seed_ = test_seed();
  const std::unique_ptr<Backend> backend_ = create_backend({.device = "cpu", .n_threads = 2, .deterministic = true});

 private:
  std::mt19937_64 random_{seed_};
  std::deque<std::vector<uint8_t>> bytes_;
};

// Checks that rows [begin, begin + n) of both are equal.
void expect_same(const Tensor& y, const Tensor& alone, int64_t begin, int64_t n) {
  for (int64_t row = begin; row < begin + n; ++row)
    for (int64_t i = 0; i < y.cols; ++i) ASSERT_EQ(y.f32(row)[i], alone.f32(row)[i]) << "row " << row << " of " << n;
}

TEST_P(Deterministic, ARowDoesNotDependOnTheOthers) {
  SCOPED_TRACE(seed_);
  for (const int64_t n_in : {512, dense() ? 8192 : 1024}) {
    SCOPED_TRACE(n_in);
    const int64_t n_out = n_in > 1024 ? 600 : 70, n_rows = 31;  // many rows, so that a task has several tiles
    const Weight w = random_weight(n_out, n_in, 1);
    const Tensor x = random_rows(n_rows, n_in), y = rows(n_rows, n_out), alone = rows(n_rows, n_out);
    for (int64_t row = 0; row < n_rows; ++row) backend_->matmul(alone.slice_rows(row, 1), x.slice_rows(row, 1), w);
    for (const int64_t n : {n_rows, int64_t{2}, int64_t{5}, int64_t{13}}) {
      for (int64_t begin = 0; begin + n <= n_rows; begin += n) {
        backend_->matmul(y.slice_rows(begin, n), x.slice_rows(begin, n), w);
        ASSERT_NO_FATAL_FAILURE(expect_same(y, alone, begin, n));
      }
    }
  }
}

// An expert gets the rows that chose it: one row or many.
TEST_P(Deterministic, ARowOfAnExpertDoesNotDependOnTheOthers) {
  SCOPED_TRACE(seed_);
  const int64_t n_in = dense() ? 8192 : 512, n_out = 300, n_rows = 25;
  const Weight w = random_weight(n_out, n_in, 2);
  const Tensor x = random_rows(n_rows, n_in), y = rows(n_rows, n_out), alone = rows(n_rows, n_out),
               ids = backend_->alloc(DType::kI32, n_rows, 1);
  for (int64_t row = 0; row < n_rows; ++row) ids.i32(row)[0] = row % 8 == 0;  // few rows for one, many for the other
  for (int64_t row = 0; row < n_rows; ++row)
    backend_->moe_matmul(alone.slice_rows(row, 1), x.slice_rows(row, 1), w, ids.slice_rows(row, 1), {});
  for (const int64_t n : {n_rows, int64_t{9}}) {
    backend_->moe_matmul(y.slice_rows(0, n), x.slice_rows(0, n), w, ids.slice_rows(0, n), {});
    ASSERT_NO_FATAL_FAILURE(expect_same(y, alone, 0, n));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Deterministic, testing::ValuesIn(every_format()),
                         [](const auto& test) { return std::string(ingot::info(test.param).name); });

}  // namespace
}  // namespace ingot
