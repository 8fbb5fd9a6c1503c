// Deterministic, a row of a product is the same to the last bit whatever rows are beside it: for every format, and for products long
// enough to be summed in parts.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "backend/backend.h"
#include "quant/fill.h"

namespace ingot {
namespace {

std::vector<Format> every_format() {
  std::vector<Format> formats;
  for (int i = 0; i < kFormatCount; ++i) formats.push_back(static_cast<Format>(i));
  return formats;
}

class Deterministic : public testing::TestWithParam<Format> {};

TEST_P(Deterministic, ARowDoesNotDependOnTheOthers) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const auto backend = create_backend({.device = "cpu", .n_threads = 2, .deterministic = true});
  const Format format = GetParam();
  const bool dense = info(format).block_size == 1;
  for (const int64_t n_in : {512, dense ? 8192 : 1024}) {
    const int64_t n_out = n_in > 1024 ? 600 : 70, n_rows = 31;  // many, so that a task has several tiles of rows
    std::vector<uint8_t> bytes(static_cast<size_t>(n_out) * row_bytes(format, n_in));
    fill_random(format, random(), bytes.data(), n_out * n_in / info(format).block_size, 1.0f / std::sqrt(static_cast<float>(n_in)));
    const Weight w = backend->prepare({.format = format, .n_out = n_out, .n_in = n_in, .codes = bytes.data()}, kForMatmul);
    const Tensor x = backend->alloc(DType::kF32, n_rows, n_in), y = backend->alloc(DType::kF32, n_rows, n_out),
                 alone = backend->alloc(DType::kF32, n_rows, n_out);
    std::vector<float> host(static_cast<size_t>(n_rows * n_in));
    for (float& v : host) v = normal(random);
    backend->upload(x, host.data());
    for (int64_t row = 0; row < n_rows; ++row) backend->matmul(alone.slice_rows(row, 1), x.slice_rows(row, 1), w);
    for (const int64_t n : {n_rows, int64_t{2}, int64_t{5}, int64_t{13}}) {
      for (int64_t begin = 0; begin + n <= n_rows; begin += n) {
        backend->matmul(y.slice_rows(begin, n), x.slice_rows(begin, n), w);
        for (int64_t row = begin; row < begin + n; ++row)
          for (int64_t i = 0; i < n_out; ++i) ASSERT_EQ(y.f32(row)[i], alone.f32(row)[i]) << "row " << row << " of " << n << ", n_in " << n_in;
      }
    }
  }
}

// The rows of an expert are those that happen to go there, one or many.
TEST_P(Deterministic, ARowOfAnExpertDoesNotDependOnTheOthers) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const auto backend = create_backend({.device = "cpu", .n_threads = 2, .deterministic = true});
  const Format format = GetParam();
  const bool dense = info(format).block_size == 1;
  const int64_t n_in = dense ? 8192 : 512, n_out = 300, n_rows = 25, n_experts = 2;
  std::vector<uint8_t> bytes(static_cast<size_t>(n_experts * n_out) * row_bytes(format, n_in));
  fill_random(format, random(), bytes.data(), n_experts * n_out * n_in / info(format).block_size, 1.0f / std::sqrt(static_cast<float>(n_in)));
  const Weight w = backend->prepare({.format = format, .n_out = n_out, .n_in = n_in, .codes = bytes.data(), .n_experts = n_experts}, kForMatmul);
  const Tensor x = backend->alloc(DType::kF32, n_rows, n_in), y = backend->alloc(DType::kF32, n_rows, n_out),
               alone = backend->alloc(DType::kF32, n_rows, n_out), ids = backend->alloc(DType::kI32, n_rows, 1);
  std::vector<float> host(static_cast<size_t>(n_rows * n_in));
  for (float& v : host) v = normal(random);
  backend->upload(x, host.data());
  for (int64_t row = 0; row < n_rows; ++row) ids.i32(row)[0] = row % 8 == 0;  // few go to the one, many to the other
  for (int64_t row = 0; row < n_rows; ++row) backend->moe_matmul(alone.slice_rows(row, 1), x.slice_rows(row, 1), w, ids.slice_rows(row, 1), {});
  for (const int64_t n : {n_rows, int64_t{9}}) {
    backend->moe_matmul(y.slice_rows(0, n), x.slice_rows(0, n), w, ids.slice_rows(0, n), {});
    for (int64_t row = 0; row < n; ++row)
      for (int64_t i = 0; i < n_out; ++i) ASSERT_EQ(y.f32(row)[i], alone.f32(row)[i]) << "row " << row << " of " << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Deterministic, testing::ValuesIn(every_format()),
                         [](const auto& test) { return std::string(ingot::info(test.param).name); });

}  // namespace
}  // namespace ingot
