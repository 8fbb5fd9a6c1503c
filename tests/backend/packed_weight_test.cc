// Packing keeps codes and scales exactly in every format: products with unit vectors give the weights themselves.
// Exceptions: F8_E4M3_32 is exact to half a step of int8 and its f16 scale, and NVFP4_SCALED to the f16 of its scales.
// The unit vectors are scaled by 127, which int8 activations hold exactly. Many rows of F16 and BF16 may be multiplied
// in 14 bits.
// The tests also check that every block format has an int8 kernel. The fallback, 32 bits a weight, gives right results
// too, so no other test would notice a missing kernel.
#include "backend/cpu/packed_weight.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "ops_error.h"
#include "quant/fill.h"
#include "test_seed.h"

namespace ingot {
namespace {

class PackedWeights : public testing::TestWithParam<const cpu::Kernels*> {};

constexpr int64_t kOut = 45, kIn = 512;

// All unit vectors at once, and eight to one at a time.
// in_bf16: weights are rounded to bf16 for many rows.
void check_unit_vectors(Format format, Backend& backend, const std::vector<uint8_t>& bytes, bool in_bf16) {
  std::vector<float> expected(kOut * kIn), x(kIn * kIn), got(kIn * kOut);
  decode_row(format, bytes.data(), expected.data(), kOut * kIn);
  for (int64_t k = 0; k < kIn; ++k) x[k * kIn + k] = 127.0f;

  const Weight w = backend.prepare({.format = format, .n_out = kOut, .n_in = kIn, .codes = bytes.data()}, kForMatmul);
  const Tensor units = backend.alloc(DType::kF32, kIn, kIn), y = backend.alloc(DType::kF32, kIn, kOut);
  backend.upload(units, x.data());
  float largest = 0;
  for (float v : expected) largest = std::max(largest, std::abs(v));
  const bool is_rounded = info(format).unpack == nullptr && info(format).block_size > 1;
  const float rounding = is_rounded ? 0.54f / 127 : format == Format::NVFP4_SCALED ? 0x1p-11f : 1e-6f;
  for (const int64_t n_rows : {kIn, int64_t{8}, int64_t{4}, int64_t{3}, int64_t{2}, int64_t{1}}) {
    const int64_t n_used = kIn / n_rows * n_rows;
    for (int64_t row = 0; row < n_used; row += n_rows)
      backend.matmul(y.slice_rows(row, n_rows), units.slice_rows(row, n_rows), w, {});
    backend.download(got.data(), y);
    const bool in_int16 = n_rows == kIn && (format == Format::F16 || format == Format::BF16);
    const bool is_cut = in_bf16 && n_rows == kIn && info(format).block_size > 1;
    const float allowed =
        127.0f * largest * ((in_int16 ? 0.51f / cpu::kInt16Weight : rounding) + (is_cut ? 0x1p-8f : 0));
    for (int64_t k = 0; k < n_used; ++k) {
      for (int64_t row = 0; row < kOut; ++row) {
        // Formats with minima add two products, each rounded.
        ASSERT_NEAR(got[k * kOut + row], 127.0f * expected[row * kIn + k], allowed)
            << "row " << row << ", column " << k << ", " << n_rows << " rows at a time";
      }
    }
  }
}

// Whether small weights of a format are smaller than fast ones.
bool shrinks(Format format) {
  const Weight shape{.format = format, .n_out = 32, .n_in = kIn};
  return cpu::packed_bytes(shape, cpu::Packing::kSmall) < cpu::packed_bytes(shape, cpu::Packing::kFast);
}

std::vector<uint8_t> random_bytes(Format format, uint64_t seed) {
  std::vector<uint8_t> bytes(static_cast<size_t>(kOut) * row_bytes(format, kIn));
  fill_random(format, seed, bytes.data(), kOut * kIn / info(format).block_size, 1.0f);
  return bytes;
}

std::unique_ptr<Backend> backend_of(const cpu::Kernels& kernels, bool small_weights = false,
                                    bool deterministic = false) {
  auto backend = create_cpu_backend({.device = "cpu",
                                     .n_threads = 2,
                                     .isa = kernels.isa,
                                     .small_weights = small_weights,
                                     .deterministic = deterministic});
  backend->reserve({.max_tokens = 512,
                    .max_seqs = 1,
                    .max_logits = 1,
                    .max_kv_len = 16,
                    .max_width = 512,
                    .max_heads = 1,
                    .head_dim = 16,
                    .n_vocab = 16});
  return backend;
}

TEST(SmallPackedWeights, AreAtMostThreePercentLargerThanTheFile) {
  for (int i = 0; i < kFormatCount; ++i) {
    const auto format = static_cast<Format>(i);
    if (info(format).block_size == 1) continue;
    const Weight shape{.format = format, .n_out = 1024, .n_in = 2048};
    const auto in_file = static_cast<double>(shape.n_out) * static_cast<double>(row_bytes(format, shape.n_in));
    EXPECT_LE(static_cast<double>(cpu::packed_bytes(shape, cpu::Packing::kSmall)), 1.03 * in_file) << info(format).name;
  }
}

TEST_P(PackedWeights, HoldTheWeights) {
  for (const bool small : {false, true}) {
    const auto backend = backend_of(*GetParam(), small);
    for (int i = 0; i < kFormatCount; ++i) {
      const auto format = static_cast<Format>(i);
      if (small && !shrinks(format)) continue;
      const uint64_t seed = test_seed();
      SCOPED_TRACE(testing::Message() << info(format).name << (small ? ", small" : "") << ", seed " << seed);
      check_unit_vectors(format, *backend, random_bytes(format, seed), GetParam()->block_tiles != nullptr);
    }
  }
}

// A tied embedding is looked up in the panels of the output matrix.
TEST_P(PackedWeights, GiveTheirRows) {
  for (const bool small : {false, true}) {
    const auto backend = backend_of(*GetParam(), small);
    for (int i = 0; i < kFormatCount; ++i) {
      const auto format = static_cast<Format>(i);
      const uint64_t seed = test_seed();
      SCOPED_TRACE(testing::Message() << info(format).name << (small ? ", small" : "") << ", seed " << seed);
      const std::vector<uint8_t> bytes = random_bytes(format, seed);
      const Weight w = backend->prepare({.format = format, .n_out = kOut, .n_in = kIn, .codes = bytes.data()},
                                        kForMatmul | kForEmbedding);
      EXPECT_EQ(w.codes == nullptr, cpu::packs_exactly(format));
      EXPECT_EQ(w.codes != nullptr, backend->reads_codes(format, kForMatmul | kForEmbedding));
      std::vector<float> want(kOut * kIn), got(kOut * kIn);
      decode_row(format, bytes.data(), want.data(), kOut * kIn);
      std::vector<int32_t> tokens(kOut);
      std::iota(tokens.begin(), tokens.end(), 0);
      const std::vector<int32_t> starts = {0, kOut}, lengths = {kOut};
      backend->begin({.tokens = tokens, .positions = tokens, .q_start = starts, .kv_len = lengths});
      const Tensor rows = backend->alloc(DType::kF32, kOut, kIn);
      backend->embed(rows, w, 1.0f);
      backend->download(got.data(), rows);
      float largest = 0;
      for (float v : want) largest = std::max(largest, std::abs(v));
      for (size_t at = 0; at < got.size(); ++at) ASSERT_NEAR(got[at], want[at], 1e-6f * largest) << "at " << at;
    }
  }
}

// Scales that f16 cannot hold: all very small or very large.
TEST_P(PackedWeights, HoldScalesOfAnySize) {
  const auto backend = backend_of(*GetParam());
  for (const Format format :
       {Format::AFFINE4_32, Format::AFFINE4_64, Format::AFFINE8_32, Format::AFFINE8_64, Format::F8_E4M3_32})
    for (const float size : {1e-30f, 1e-7f, 3e5f, 1e20f}) {
      const uint64_t seed = test_seed();
      SCOPED_TRACE(testing::Message() << info(format).name << " times " << size << ", seed " << seed);
      std::vector<uint8_t> bytes = random_bytes(format, seed);
      const FormatInfo& f = info(format);
      for (size_t block = 0; block < bytes.size(); block += f.block_bytes)
        for (int i = 0; i < f.n_scale_fields; ++i) {
          uint8_t* field = &bytes[block + f.scale_fields[i].offset];
          const float value = float_from_bf16(bf16_from_float(float_from_bits(quant::load_u32(field)) * size));
          std::memcpy(field, &value, 4);
        }
      check_unit_vectors(format, *backend, bytes, GetParam()->block_tiles != nullptr);
    }
}

// The speed of decoding depends on the size of the panels. They have the bits of the file, or up to 3 % more where the
// file packs the scales of a super-block in 6 bits.
TEST_P(PackedWeights, AreAsSmallAsTheFile) {
  const std::pair<Format, double> bits[] = {
      {Format::Q4_0, 4.5},     {Format::Q4_1, 5},         {Format::Q5_0, 5.5},       {Format::Q5_1, 6},
      {Format::Q8_0, 8.5},     {Format::Q2_K, 2.625},     {Format::Q3_K, 3.5},       {Format::Q4_K, 4.625},
      {Format::Q5_K, 5.625},   {Format::Q6_K, 6.5625},    {Format::IQ4_NL, 4.5},     {Format::IQ4_XS, 4.3125},
      {Format::MXFP4, 4.25},   {Format::NVFP4, 4.5},      {Format::NVFP4_SCALED, 5}, {Format::AFFINE4_64, 4.5},
      {Format::AFFINE4_32, 5}, {Format::AFFINE8_64, 8.5}, {Format::AFFINE8_32, 9},   {Format::F8_E4M3_32, 8.5},
      {Format::TQ2_0, 2.0625}, {Format::Q1_0, 1.125},     {Format::Q2_0, 2.25},
  };
  ThreadPool pool(1);
  for (const auto& [format, expected] : bits) {
    const std::vector<uint8_t> bytes = random_bytes(format, 1);
    const Weight host{.format = format, .n_out = 32, .n_in = kIn, .codes = bytes.data()};
    const double packed = 8.0 * static_cast<double>(cpu::pack_weight(host, *GetParam(), pool).panel_bytes) / (32 * kIn);
    EXPECT_EQ(packed, expected) << info(format).name;
  }
}

// With small weights, no format that has blocks takes more than 3 % more than in the file. F8_E4M3 is not stored in a
// file's blocks: its scales belong to 128 by 128 weights.
TEST_P(PackedWeights, AreAsSmallAsTheFileInEveryFormat) {
  int n_shrunk = 0;
  for (int i = 0; i < kFormatCount; ++i) {
    const auto format = static_cast<Format>(i);
    if (info(format).block_size == 1) continue;
    const Weight shape{.format = format, .n_out = 64, .n_in = 1024};
    const auto packed = static_cast<double>(cpu::packed_bytes(shape, cpu::Packing::kSmall));
    EXPECT_LE(packed, 1.03 * static_cast<double>(shape.bytes())) << info(format).name;
    n_shrunk += shrinks(format);
  }
  EXPECT_EQ(n_shrunk, 8);  // IQ1, IQ2, IQ3 and TQ1_0
}

// The product of two rows of activations and a weight of 32 x 64.
std::vector<float> product(Backend& backend, Format format, const std::vector<uint16_t>& weights,
                           const std::vector<float>& x) {
  const Weight w = backend.prepare({.format = format, .n_out = 32, .n_in = 64, .codes = weights.data()}, kForMatmul);
  const Tensor in = backend.alloc(DType::kF32, 2, 64), y = backend.alloc(DType::kF32, 2, 32);
  backend.upload(in, x.data());
  backend.matmul(y, in, w, {});
  std::vector<float> got(64);
  backend.download(got.data(), y);
  return got;
}

// F16 weights whose values are all bf16 numbers are multiplied like BF16. If one weight has more bits, all are
// multiplied in f32.
TEST_P(PackedWeights, MultiplyF16AsBF16WhereThatIsExact) {
  const auto backend = backend_of(*GetParam());
  const uint64_t seed = test_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(128);
  for (float& v : x) v = normal(random);
  std::vector<uint16_t> bf16(32 * 64), f16(32 * 64);
  for (size_t i = 0; i < bf16.size(); ++i) {
    const float value = normal(random);
    const bool small = i % 7 == 0 || std::abs(value) < 0x1p-6f;  // f16 has few bits left below 2^-14
    bf16[i] = bf16_from_float(small ? std::ldexp(static_cast<float>(random() % 256), -24) : value);
    f16[i] = f16_from_float(float_from_bf16(bf16[i]));
    ASSERT_EQ(float_from_f16(f16[i]), float_from_bf16(bf16[i]));
  }
  if (GetParam()->bf16_dot) {
    EXPECT_EQ(product(*backend, Format::F16, f16, x), product(*backend, Format::BF16, bf16, x));
  }

  f16[5] = f16_from_float(1 + 0x1p-10f);
  const std::vector<float> got = product(*backend, Format::F16, f16, x);
  for (int i = 0; i < 64; ++i) {
    double want = 0;
    for (int k = 0; k < 64; ++k) want += double{x[i / 32 * 64 + k]} * float_from_f16(f16[i % 32 * 64 + k]);
    EXPECT_NEAR(got[i], want, 1e-4) << i;
  }
}

// A NaN weight makes only its own row NaN.
TEST_P(PackedWeights, LetNaNThrough) {
  const auto backend = backend_of(*GetParam());
  std::vector<uint8_t> bytes = random_bytes(Format::F8_E4M3_32, 1);
  bytes[3 * row_bytes(Format::F8_E4M3_32, kIn) + 4] = 0x7F;
  const Weight w =
      backend->prepare({.format = Format::F8_E4M3_32, .n_out = kOut, .n_in = kIn, .codes = bytes.data()}, kForMatmul);
  std::vector<float> x(kIn, 1.0f), got(kOut);
  const Tensor in = backend->alloc(DType::kF32, 1, kIn), y = backend->alloc(DType::kF32, 1, kOut);
  backend->upload(in, x.data());
  backend->matmul(y, in, w, {});
  backend->download(got.data(), y);
  for (int64_t row = 0; row < kOut; ++row) EXPECT_EQ(std::isnan(got[row]), row == 3) << row;
}

// Like LetNaNThrough, for panels that are unpacked for many rows.
TEST_P(PackedWeights, LetNaNThroughWithManyRows) {
  constexpr int64_t kRows = 60;
  const auto backend = backend_of(*GetParam());
  for (const Format format : {Format::F16, Format::BF16}) {
    std::vector<uint8_t> bytes = random_bytes(format, 1);
    const uint16_t nan = 0x7FC1;  // in both formats
    std::memcpy(&bytes[3 * row_bytes(format, kIn) + 4], &nan, 2);
    const Weight w =
        backend->prepare({.format = format, .n_out = kOut, .n_in = kIn, .codes = bytes.data()}, kForMatmul);
    std::vector<float> x(kRows * kIn, 1.0f), got(kRows * kOut);
    x[7 * kIn + 9] = std::numeric_limits<float>::quiet_NaN();
    const Tensor in = backend->alloc(DType::kF32, kRows, kIn), y = backend->alloc(DType::kF32, kRows, kOut);
    backend->upload(in, x.data());
    backend->matmul(y, in, w, {});
    backend->download(got.data(), y);
    for (int64_t i = 0; i < kRows * kOut; ++i)
      EXPECT_EQ(std::isnan(got[i]), i % kOut == 3 || i / kOut == 7) << info(format).name << " at " << i;
  }
}

// Codes are multiplied as the same integers, whether or not their panels are unpacked. With small weights, few rows are
// added in another order, unless the backend is deterministic.
void check_bits_among_many_rows(const cpu::Kernels& kernels, int64_t n_in, bool small) {
  constexpr int64_t kRows = 60;
  const auto backend = backend_of(kernels, small, small);
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * n_in), got(kRows * kOut), alone(kRows * kOut);
  for (float& v : x) v = normal(random);
  const Tensor in = backend->alloc(DType::kF32, kRows, n_in), y = backend->alloc(DType::kF32, kRows, kOut);
  backend->upload(in, x.data());
  for (int i = 0; i < kFormatCount; ++i) {
    const auto format = static_cast<Format>(i);
    if (info(format).block_size == 1 || n_in % info(format).block_size != 0 || (small && !shrinks(format))) continue;
    SCOPED_TRACE(testing::Message() << info(format).name << (small ? ", small" : "") << ", seed " << seed);
    const std::vector<uint8_t> bytes = random_bytes(format, seed);
    const Weight w =
        backend->prepare({.format = format, .n_out = kOut, .n_in = n_in, .codes = bytes.data()}, kForMatmul);
    for (int64_t row = 0; row < kRows; ++row) backend->matmul(y.slice_rows(row, 1), in.slice_rows(row, 1), w, {});
    backend->download(alone.data(), y);
    for (const int64_t rows : {12, 13, 18, 19, 60}) {  // AVX2 unpacks codes of 8 bits for 19 rows, others for 13
      backend->matmul(y.slice_rows(0, rows), in.slice_rows(0, rows), w, {});
      backend->download(got.data(), y);
      EXPECT_EQ(got, alone) << rows << " rows";
    }
  }
}

TEST_P(PackedWeights, GiveARowTheSameBitsAmongManyRows) {
  for (const bool small : {false, true}) check_bits_among_many_rows(*GetParam(), kIn, small);
  check_bits_among_many_rows(*GetParam(), 352, false);  // not a multiple of the part that is unpacked
}

// Up to 63 rows; with --deterministic, any number.
TEST_P(PackedWeights, GiveARowTheSameBitsForEveryNumberOfRows) {
  constexpr int64_t kMostRows = 63, kManyRows = 530;
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const auto backend = backend_of(*GetParam()), deterministic = backend_of(*GetParam(), false, true);
  for (int i = 0; i < kFormatCount; ++i) {
    const auto format = static_cast<Format>(i);
    const int64_t block = info(format).block_size, unit = std::max<int64_t>(block, 32);
    if (block == 1) continue;
    const int64_t n_in = unit * std::uniform_int_distribution<int64_t>(1, 700 / unit)(random);
    const int64_t n_out = std::uniform_int_distribution<int64_t>(1, 100)(random);
    SCOPED_TRACE(testing::Message() << info(format).name << ", " << n_out << " x " << n_in << ", seed " << seed);
    std::vector<uint8_t> bytes(static_cast<size_t>(n_out) * row_bytes(format, n_in));
    fill_random(format, random(), bytes.data(), n_out * n_in / block, 1.0f);
    std::vector<float> x(kManyRows * n_in), alone(kManyRows * n_out), got(kManyRows * n_out);
    for (float& v : x) v = normal(random);
    for (Backend* b : {backend.get(), deterministic.get()}) {
      const Weight w = b->prepare({.format = format, .n_out = n_out, .n_in = n_in, .codes = bytes.data()}, kForMatmul);
      const Tensor in = b->alloc(DType::kF32, kManyRows, n_in), y = b->alloc(DType::kF32, kManyRows, n_out);
      b->upload(in, x.data());
      const int64_t most = b == backend.get() ? kMostRows : kManyRows;
      const auto multiply = [&](int64_t n, std::vector<float>& out) {
        for (int64_t row = 0; row + n <= most; row += n) b->matmul(y.slice_rows(row, n), in.slice_rows(row, n), w, {});
        b->download(out.data(), y);
      };
      multiply(1, alone);
      const auto check = [&](int64_t n) {
        multiply(n, got);
        const int64_t n_equal = most / n * n * n_out;
        EXPECT_TRUE(std::equal(got.begin(), got.begin() + n_equal, alone.begin())) << n << " rows";
      };
      if (most == kMostRows)
        for (int64_t n = 2; n <= most; ++n) check(n);
      else
        for (const int64_t n : {int64_t{64}, int64_t{100}, most}) check(n);
    }
  }
}

// Blocks whose codes are all `fill`, with the scales of random blocks.
std::vector<uint8_t> equal_codes(Format format, uint8_t fill) {
  const std::vector<uint8_t> random = random_bytes(format, 1);
  std::vector<uint8_t> bytes(random.size(), fill);
  const FormatInfo& f = info(format);
  for (size_t block = 0; block < bytes.size(); block += f.block_bytes) {
    for (int i = 0; i < f.n_scale_fields; ++i) {
      const auto kind = f.scale_fields[i].kind;
      const int size = kind == quant::ScaleKind::kF32 ? 4 : kind == quant::ScaleKind::kF16 ? 2 : 1;
      std::memcpy(&bytes[block + f.scale_fields[i].offset], &random[block + f.scale_fields[i].offset], size);
    }
  }
  return bytes;
}

void check_largest_sums(const cpu::Kernels& kernels, bool small) {
  constexpr int kRows = 7;
  const auto backend = backend_of(kernels, small);
  std::vector<float> x(kRows * kIn), got(kRows * kOut), weights(kOut * kIn);
  for (int64_t i = 0; i < kRows * kIn; ++i) x[i] = i / kIn % 2 == 0 ? 1.0f : -1.0f;
  const Tensor in = backend->alloc(DType::kF32, kRows, kIn), y = backend->alloc(DType::kF32, kRows, kOut);
  backend->upload(in, x.data());
  for (int i = 0; i < kFormatCount; ++i) {
    const auto format = static_cast<Format>(i);
    if (info(format).unpack == nullptr || format == Format::IQ1_M || (small && !shrinks(format)))
      continue;  // IQ1_M: the nibbles of its scale are stored between codes
    for (const int fill : {0x00, 0x77, 0xFF}) {
      const std::vector<uint8_t> bytes = equal_codes(format, static_cast<uint8_t>(fill));
      decode_row(format, bytes.data(), weights.data(), kOut * kIn);
      const Weight w =
          backend->prepare({.format = format, .n_out = kOut, .n_in = kIn, .codes = bytes.data()}, kForMatmul);
      for (const int rows : {1, kRows}) {
        backend->matmul(y.slice_rows(0, rows), in.slice_rows(0, rows), w, {});
        backend->download(got.data(), y);
        for (int64_t at = 0; at < rows * kOut; ++at) {
          double want = 0, size = 0;
          for (int64_t k = 0; k < kIn; ++k) {
            want += double{weights[at % kOut * kIn + k]} * x[at / kOut * kIn];
            size += std::abs(weights[at % kOut * kIn + k]);
          }
          ASSERT_NEAR(got[at], want, 1e-3 * size + 1e-30) << info(format).name << ", codes " << fill << ", at " << at;
        }
      }
    }
  }
}

// The largest possible products, all of one sign. Kernels that add some of them in 16 bits must not overflow.
TEST_P(PackedWeights, HaveRoomForTheLargestSums) {
  for (const bool small : {false, true}) check_largest_sums(*GetParam(), small);
}

TEST_P(PackedWeights, CodesAreMultipliedInInt8OrOnTheMatrixUnit) {
  for (int i = 0; i < kFormatCount; ++i) {
    const Format format = static_cast<Format>(i);
    if (info(format).block_size == 1) continue;
    EXPECT_STREQ(cpu::multiplies_as(format, *GetParam()), GetParam()->block_tiles ? "bf16" : "int8")
        << info(format).name;
  }
}

// More than the loops of a matrix unit take at a time: parts of k, panels, and tiles of tokens.
TEST_P(PackedWeights, MultiplyLargeMatrices) {
  constexpr int64_t kLargeOut = 290, kLargeIn = 1280, kRows = 545;
  const uint64_t seed = test_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(kRows * kLargeIn), got(kRows * kLargeOut), weights(kLargeOut * kLargeIn);
  for (float& v : x) v = normal(random);
  for (const Format format : {Format::Q4_K, Format::Q8_0}) {
    std::vector<uint8_t> bytes(kLargeOut * row_bytes(format, kLargeIn));
    fill_random(format, seed, bytes.data(), kLargeOut * kLargeIn / info(format).block_size, 1.0f);
    decode_row(format, bytes.data(), weights.data(), kLargeOut * kLargeIn);
    for (const int n_threads : {1, 3}) {
      const auto backend = create_cpu_backend({.device = "cpu", .n_threads = n_threads, .isa = GetParam()->isa});
      const Weight w =
          backend->prepare({.format = format, .n_out = kLargeOut, .n_in = kLargeIn, .codes = bytes.data()}, kForMatmul);
      const Tensor in = backend->alloc(DType::kF32, kRows, kLargeIn), y = backend->alloc(DType::kF32, kRows, kLargeOut);
      backend->upload(in, x.data());
      backend->matmul(y, in, w, {});
      backend->download(got.data(), y);
      std::vector<float> some, want;
      for (int64_t row = 0; row < kRows; row += 17)  // the last row is one of them
        for (int64_t out = 0; out < kLargeOut; ++out) {
          some.push_back(got[row * kLargeOut + out]);
          want.push_back(
              std::inner_product(&x[row * kLargeIn], &x[row * kLargeIn] + kLargeIn, &weights[out * kLargeIn], 0.0f));
        }
      EXPECT_LT(relative_error(some, want), 0.01) << info(format).name << ", " << n_threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, PackedWeights,
                         testing::ValuesIn(cpu::available_kernels().begin(), cpu::available_kernels().end()),
                         [](const auto& test) { return std::string(test.param->isa); });

}  // namespace
}  // namespace ingot
