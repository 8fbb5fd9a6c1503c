// Packing keeps codes and scales exactly in every format: products with unit vectors give the weights themselves.
// (F8_E4M3_32: to half a step of int8, and its f16 scale; NVFP4_SCALED: to the f16 of its scales.) The unit vectors are
// scaled by 127, which int8 activations hold exactly. And every block format has an int8 kernel. The alternative, 32
// bits a weight, gives right results too, so no other test would notice it.
#include "backend/cpu/packed_weight.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "quant/fill.h"

namespace ingot {
namespace {

class PackedWeights : public testing::TestWithParam<const cpu::Kernels*> {};

constexpr int64_t kOut = 45, kIn = 512;

void check_unit_vectors(Format format, Backend& backend, const std::vector<uint8_t>& bytes) {
  std::vector<float> expected(kOut * kIn), x(kIn * kIn), got(kIn * kOut);
  decode_row(format, bytes.data(), expected.data(), kOut * kIn);
  for (int64_t k = 0; k < kIn; ++k) x[k * kIn + k] = 127.0f;

  const Weight w = backend.prepare({.format = format, .n_out = kOut, .n_in = kIn, .codes = bytes.data()}, kForMatmul);
  const Tensor units = backend.alloc(DType::kF32, kIn, kIn), y = backend.alloc(DType::kF32, kIn, kOut);
  backend.upload(units, x.data());
  backend.matmul(y, units, w, {});
  backend.download(got.data(), y);
  float largest = 0;
  for (float v : expected) largest = std::max(largest, std::abs(v));
  const bool is_rounded = info(format).unpack == nullptr && info(format).block_size > 1;
  const float rounding = is_rounded ? 0.54f / 127 : format == Format::NVFP4_SCALED ? 0x1p-11f : 1e-6f;
  for (int64_t k = 0; k < kIn; ++k) {
    for (int64_t row = 0; row < kOut; ++row) {
      // Formats with minima add two products, each rounded.
      ASSERT_NEAR(got[k * kOut + row], 127.0f * expected[row * kIn + k], 127.0f * largest * rounding)
          << "row " << row << ", column " << k;
    }
  }
}

std::vector<uint8_t> random_bytes(Format format, uint64_t seed) {
  std::vector<uint8_t> bytes(static_cast<size_t>(kOut) * row_bytes(format, kIn));
  fill_random(format, seed, bytes.data(), kOut * kIn / info(format).block_size, 1.0f);
  return bytes;
}

std::unique_ptr<Backend> backend_of(const cpu::Kernels& kernels) {
  auto backend = create_cpu_backend({.device = "cpu", .n_threads = 2, .isa = kernels.isa});
  backend->reserve({.max_tokens = 512, .max_seqs = 1, .max_logits = 1, .max_kv_len = 16, .max_width = 512, .max_heads = 1,
                    .head_dim = 16, .n_vocab = 16});
  return backend;
}

TEST_P(PackedWeights, HoldTheWeightsExactly) {
  const auto backend = backend_of(*GetParam());
  for (int i = 0; i < kFormatCount; ++i) {
    const uint64_t seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << info(static_cast<Format>(i)).name << ", seed " << seed);
    check_unit_vectors(static_cast<Format>(i), *backend, random_bytes(static_cast<Format>(i), seed));
  }
}

// Scales that f16 cannot hold: all very small or very large.
TEST_P(PackedWeights, HoldScalesOfAnySizeExactly) {
  const auto backend = backend_of(*GetParam());
  for (const Format format : {Format::AFFINE4_32, Format::AFFINE4_64, Format::AFFINE8_32, Format::AFFINE8_64, Format::F8_E4M3_32})
    for (const float size : {1e-30f, 1e-7f, 3e5f, 1e20f}) {
      const uint64_t seed = std::random_device{}();
      SCOPED_TRACE(testing::Message() << info(format).name << " times " << size << ", seed " << seed);
      std::vector<uint8_t> bytes = random_bytes(format, seed);
      const FormatInfo& f = info(format);
      for (size_t block = 0; block < bytes.size(); block += f.block_bytes)
        for (int i = 0; i < f.n_scale_fields; ++i) {
          uint8_t* field = &bytes[block + f.scale_fields[i].offset];
          const float value = float_from_bf16(bf16_from_float(float_from_bits(quant::load_u32(field)) * size));
          std::memcpy(field, &value, 4);
        }
      check_unit_vectors(format, *backend, bytes);
    }
}

// If 64 elements share a scale, the panel stores the scale once.
TEST_P(PackedWeights, KeepAScaleOnce) {
  ThreadPool pool(1);
  const auto bits_of = [&](Format format) {
    const std::vector<uint8_t> bytes = random_bytes(format, 1);
    const Weight host{.format = format, .n_out = 32, .n_in = kIn, .codes = bytes.data()};
    return 8.0 * static_cast<double>(cpu::pack_weight(host, *GetParam(), pool).panel_bytes) / (32 * kIn);
  };
  EXPECT_EQ(bits_of(Format::AFFINE4_64), 4.5);
  EXPECT_EQ(bits_of(Format::AFFINE8_64), 8.5);
  EXPECT_EQ(bits_of(Format::AFFINE4_32), 5.0);
  EXPECT_EQ(bits_of(Format::AFFINE8_32), 9.0);
  EXPECT_EQ(bits_of(Format::F8_E4M3_32), 8.5);
}

// A NaN makes its own row NaN, and no other row.
TEST_P(PackedWeights, LetNaNThrough) {
  const auto backend = backend_of(*GetParam());
  std::vector<uint8_t> bytes = random_bytes(Format::F8_E4M3_32, 1);
  bytes[3 * row_bytes(Format::F8_E4M3_32, kIn) + 4] = 0x7F;
  const Weight w = backend->prepare({.format = Format::F8_E4M3_32, .n_out = kOut, .n_in = kIn, .codes = bytes.data()}, kForMatmul);
  std::vector<float> x(kIn, 1.0f), got(kOut);
  const Tensor in = backend->alloc(DType::kF32, 1, kIn), y = backend->alloc(DType::kF32, 1, kOut);
  backend->upload(in, x.data());
  backend->matmul(y, in, w, {});
  backend->download(got.data(), y);
  for (int64_t row = 0; row < kOut; ++row) EXPECT_EQ(std::isnan(got[row]), row == 3) << row;
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
