// Packing keeps codes and scales exactly, whatever the format: products with unit vectors are the weights themselves (F8_E4M3: to
// half a step of int8). They are scaled by 127, which int8 activations hold exactly. And every block format has a kernel that takes it in int8: the
// alternative, 32 bits a weight, is right too, so no other test would notice.
#include "backend/cpu/packed_weight.h"

#include <gtest/gtest.h>

#include <random>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "quant/fill.h"

namespace ingot {
namespace {

class PackedWeights : public testing::TestWithParam<const cpu::Kernels*> {};

void check_unit_vectors(Format format, Backend& backend, uint64_t seed) {
  SCOPED_TRACE(testing::Message() << info(format).name << ", seed " << seed);
  const int64_t n_out = 45, n_in = 512;
  std::vector<uint8_t> bytes(static_cast<size_t>(n_out) * row_bytes(format, n_in));
  fill_random(format, seed, bytes.data(), n_out * n_in / info(format).block_size, 1.0f);
  std::vector<float> expected(n_out * n_in), x(n_in * n_in), got(n_in * n_out);
  decode_row(format, bytes.data(), expected.data(), n_out * n_in);
  for (int64_t k = 0; k < n_in; ++k) x[k * n_in + k] = 127.0f;

  const Weight w = backend.prepare({.format = format, .n_out = n_out, .n_in = n_in, .codes = bytes.data()}, kForMatmul);
  const Tensor units = backend.alloc(DType::kF32, n_in, n_in), y = backend.alloc(DType::kF32, n_in, n_out);
  backend.upload(units, x.data());
  backend.matmul(y, units, w, {});
  backend.download(got.data(), y);
  float largest = 0;
  for (float v : expected) largest = std::max(largest, std::abs(v));
  const float rounding = info(format).unpack == nullptr && info(format).block_size > 1 ? 0.501f / 127 : 1e-6f;
  for (int64_t k = 0; k < n_in; ++k) {
    for (int64_t row = 0; row < n_out; ++row) {
      // Formats with minima add two products, each rounded.
      ASSERT_NEAR(got[k * n_out + row], 127.0f * expected[row * n_in + k], 127.0f * largest * rounding)
          << "row " << row << ", column " << k;
    }
  }
}

TEST_P(PackedWeights, HoldTheWeightsExactly) {
  const auto backend = create_cpu_backend({.device = "cpu", .n_threads = 2, .isa = GetParam()->isa});
  backend->reserve({.max_tokens = 512, .max_seqs = 1, .max_logits = 1, .max_kv_len = 16, .max_width = 512, .max_heads = 1,
                    .head_dim = 16, .n_vocab = 16});
  for (int i = 0; i < kFormatCount; ++i) check_unit_vectors(static_cast<Format>(i), *backend, std::random_device{}());
}

TEST_P(PackedWeights, AreMultipliedInInt8) {
  for (int i = 0; i < kFormatCount; ++i) {
    const Format format = static_cast<Format>(i);
    if (info(format).block_size == 1) continue;
    EXPECT_STREQ(cpu::multiplies_as(format, *GetParam()), "int8") << info(format).name;
  }
}

INSTANTIATE_TEST_SUITE_P(, PackedWeights, testing::ValuesIn(cpu::available_kernels().begin(), cpu::available_kernels().end()),
                         [](const auto& test) { return std::string(test.param->isa); });

}  // namespace
}  // namespace ingot
