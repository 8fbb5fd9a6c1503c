// The cost of each type of the KV cache: bytes, and the error of attention relative to f32 keys and values.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops_cases.h"
#include "quant/f8_e4m3.h"
#include "test_seed.h"

namespace ingot {
namespace {

std::vector<float> attended(Backend& backend, KvTypes dtype, uint64_t seed) {
  OpRig rig(backend, seed);
  const OpRun op =
      attention_case({.n_heads = 8, .n_kv_heads = 2, .head_dim = 64, .dtype = dtype}, {{100, 30}, {0, 40}, {300, 1}})
          .prepare(rig);
  op.run();
  std::vector<float> result(static_cast<size_t>(op.outputs[0].rows * op.outputs[0].cols));
  backend.download(result.data(), op.outputs[0]);
  return result;
}

// Root mean square of the difference, relative to that of `b`.
double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0, errors = 0;
  for (size_t i = 0; i < a.size(); ++i)
    squares += double{b[i]} * b[i], errors += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(errors / squares);
}

// The largest of 32 normal numbers is about 2.1 deviations, so a step is 0.017 and its rounding error 0.0048 of a
// deviation. The values have this error. The keys have it too, and pass it on through the scores of queries of
// deviation 2.
TEST(KvTypes, ErrAsTheirStepsSay) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  for (const char* device : {"ref", "cpu"}) {
    const auto backend = create_backend({.device = device, .n_threads = 2});
    const std::vector<float> exact = attended(*backend, DType::kF32, seed);
    const double f16 = difference(attended(*backend, DType::kF16, seed), exact),
                 bytes = difference(attended(*backend, DType::kQ8_0, seed), exact);
    EXPECT_LT(f16, 1e-3);
    EXPECT_LT(bytes, 0.03);
    EXPECT_GT(bytes, 4 * f16);
    // 3 bits after the first: an error of about 1/28 of each number of any size.
    const double e4m3 = difference(attended(*backend, DType::kE4M3, seed), exact);
    EXPECT_LT(e4m3, 0.1);
    EXPECT_GT(e4m3, 2 * bytes);
  }
}

TEST(KvTypes, TakeTheirBytes) {
  const auto bytes = [](int head_dim, KvTypes dtype) {
    return KvShape{.n_layers = 3, .n_kv_heads = 2, .head_dim = head_dim, .dtype = dtype}.token_bytes();
  };
  EXPECT_EQ(bytes(64, DType::kF32), 2u * 3 * 2 * 64 * 4);
  EXPECT_EQ(bytes(64, DType::kF16), 2u * 3 * 2 * 64 * 2);
  EXPECT_EQ(bytes(64, DType::kE4M3), 2u * 3 * 2 * 64);
  EXPECT_EQ(bytes(64, DType::kQ8_0), 2u * 3 * 2 * (64 + 4));
  EXPECT_EQ(bytes(80, DType::kQ8_0), 2u * 3 * 2 * (80 + 6));
  EXPECT_EQ(bytes(64, DType::kQ4_0), 2u * 3 * 2 * (32 + 4));
  EXPECT_EQ(bytes(64, kBytesAndNibbles), 3u * 2 * (64 + 4 + 32 + 4));
  KvShape latents{.n_layers = 3, .n_kv_heads = 1, .head_dim = 576};
  EXPECT_EQ(latents.token_bytes(), 2u * 3 * 576 * 2);
  latents.values_are_keys = true;
  EXPECT_EQ(latents.token_bytes(), 3u * 576 * 2);
  // The allocated bytes are the planned bytes, except for the padding to chunks of 16 keys and rows of 32 elements.
  const auto backend = create_backend({.device = "cpu"});
  const size_t before = backend->allocated_bytes();
  const KvShape shape{
      .n_layers = 2, .n_kv_heads = 2, .head_dim = 128, .block_size = 16, .n_blocks = 64, .dtype = DType::kQ8_0};
  const auto kv = backend->make_kv(shape);
  EXPECT_EQ(backend->allocated_bytes() - before, shape.bytes());
  const KvShape once{
      .n_layers = 2, .n_kv_heads = 1, .head_dim = 576, .block_size = 16, .n_blocks = 64, .values_are_keys = true};
  const auto half = backend->make_kv(once);
  EXPECT_EQ(backend->allocated_bytes() - before, shape.bytes() + once.bytes());
}

// A step of 4 bits is 2.1 / 8 of a deviation, so the error is 15 times that of bytes.
TEST(KvTypes, NibblesErrAsTheirStepsSay) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  for (const char* device : {"ref", "cpu"}) {
    const auto backend = create_backend({.device = device, .n_threads = 2});
    const std::vector<float> exact = attended(*backend, DType::kF32, seed);
    const double bytes = difference(attended(*backend, DType::kQ8_0, seed), exact),
                 nibbles = difference(attended(*backend, DType::kQ4_0, seed), exact);
    EXPECT_LT(nibbles, 30 * bytes) << device;
    EXPECT_GT(nibbles, 7 * bytes) << device;
  }
}

// The errors of keys and of values are independent, so their squares add up. Keys of bytes remove the keys' part of the
// error of q4_0.
TEST(KvTypes, KeysAndValuesErrAsTheirTypesSay) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  const auto backend = create_backend({.device = "ref"});
  const std::vector<float> exact = attended(*backend, DType::kF32, seed);
  const auto error = [&](KvTypes types) { return difference(attended(*backend, types, seed), exact); };
  const double bytes = error(DType::kQ8_0), nibbles = error(DType::kQ4_0), mixed = error(kBytesAndNibbles),
               swapped = error({DType::kQ4_0, DType::kQ8_0});
  EXPECT_GT(mixed, 3 * bytes);
  EXPECT_LT(mixed, 0.9 * nibbles);
  EXPECT_NEAR(std::hypot(mixed, swapped), std::hypot(nibbles, bytes), 0.2 * nibbles);
}

// Keys with large channels, as the biases and the rope of real models make them: 2 of 64 channels are 20 deviations.
// The step of both groups of 32 is then 2.5 deviations without a rotation. With a rotation, the channels become at most
// 2 * 20 / 8 = 5 deviations in each column. The oracle is attention in double over keys and values in f32.
TEST(KvTypes, RotatedKeysKeepSmallChannels) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  constexpr int kDim = 64, kTokens = 120;
  constexpr AttentionShape kHeads{.n_heads = 4, .n_kv_heads = 2, .head_dim = kDim};
  const auto backend = create_backend({.device = "ref"});
  const auto attend = [&](KvTypes types, bool rotates) {
    OpRig rig(*backend, seed);
    KvCache& kv =
        rig.cache_and_batch({{0, kTokens}}, {.n_layers = 2, .n_kv_heads = 2, .head_dim = kDim, .dtype = types});
    const Tensor q = rig.values(kTokens, 4 * kDim, 1.0f), k = rig.values(kTokens, 2 * kDim, 1.0f),
                 v = rig.values(kTokens, 2 * kDim, 1.0f), y = rig.output(kTokens, 4 * kDim);
    for (int64_t t = 0; t < kTokens; ++t)
      for (const int channel : {9, 40, kDim + 9, kDim + 40}) k.f32(t)[channel] += 20;
    if (rotates) backend->hadamard(q, kv.shape.key_rotation()), backend->hadamard(k, kv.shape.key_rotation());
    backend->kv_write(kv, 1, k, v);
    backend->attention(y, q, kv, attention_args(kHeads));
    return std::vector<float>(y.f32(), y.f32() + kTokens * 4 * kDim);
  };
  const std::vector<float> exact = attend(DType::kF32, false);
  const KvTypes nibbles{DType::kQ4_0, DType::kF32};
  const double plain = difference(attend(nibbles, false), exact), rotated = difference(attend(nibbles, true), exact);
  EXPECT_LT(rotated, 0.6 * plain) << plain;
}

TEST(KvTypes, RotateKeysOfNibbles) {
  const auto rotation = [](int head_dim, KvTypes types, bool latents = false) {
    return KvShape{.head_dim = head_dim, .dtype = types, .values_are_keys = latents}.key_rotation();
  };
  EXPECT_EQ(rotation(64, DType::kQ4_0), 64);
  EXPECT_EQ(rotation(256, DType::kQ4_0), 256);
  EXPECT_EQ(rotation(96, DType::kQ4_0), 32);
  EXPECT_EQ(rotation(80, DType::kQ4_0), 16);
  EXPECT_EQ(rotation(1024, DType::kQ4_0), 512);
  EXPECT_EQ(rotation(576, DType::kQ4_0, true), 1);
  for (const KvTypes types : {KvTypes(DType::kF16), KvTypes(DType::kQ8_0), kBytesAndNibbles})
    EXPECT_EQ(rotation(64, types), 1);
}

// Attention after qkv(), fused or not, sees queries and keys that are rotated alike.
TEST(KvTypes, QkvRotatesQueriesAndKeys) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  for (const char* device : {"ref", "cpu"}) {
    const auto backend = create_backend({.device = device, .n_threads = 2});
    backend->reserve(kCaseLimits);
    const auto attend = [&](KvTypes types) {
      OpRig rig(*backend, seed);
      const OpRun op = qkv_case({.heads = {.n_heads = 4, .n_kv_heads = 2, .head_dim = 96, .dtype = types},
                                 .dim = 128,
                                 .q = Format::F32,
                                 .k = Format::F32,
                                 .v = Format::F32,
                                 .head_norms = true,
                                 .rot_dim = 96},
                                {{0, 40}, {0, 1}})
                           .prepare(rig);
      op.run();
      std::vector<float> result(static_cast<size_t>(op.outputs[0].rows * op.outputs[0].cols));
      backend->download(result.data(), op.outputs[0]);
      return result;
    };
    const double error = difference(attend(DType::kQ4_0), attend(DType::kF32));
    EXPECT_LT(error, 0.3) << device;
  }
}

TEST(KvTypes, HaveNames) {
  for (const char* name : {"f16", "bf16", "f32", "q8_0", "q4_0", "q8_0/q4_0", "fp8"})
    EXPECT_EQ(kv_type_name(parse_kv_type(name)), name);
  EXPECT_TRUE(parse_kv_type("q8_0/q4_0") == kBytesAndNibbles);
  for (const char* name : {"", "q3", "q4_0/q8_0", "f16/q8_0", "q8_0/", "q8_0/q8_0"})
    EXPECT_THROW(parse_kv_type(name), UsageError) << name;
}

// NaN and infinities survive the cache, although bytes cannot hold them.
TEST(KvTypes, BytesKeepWhatIsNoNumber) {
  for (const char* device : {"ref", "cpu"}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      const auto backend = create_backend({.device = device, .n_threads = 1});
      const KvShape shape{
          .n_layers = 1, .n_kv_heads = 1, .head_dim = 64, .block_size = 16, .n_blocks = 1, .dtype = DType::kQ8_0};
      const auto kv = backend->make_kv(shape);
      const std::vector<int32_t> token = {0}, position = {0}, q_start = {0, 1}, len = {1}, table = {0};
      backend->begin({token, position, q_start, len, table, 1, token});
      std::vector<float> host(64, 1.0f), out(64);
      const Tensor q = backend->alloc(DType::kF32, 1, 64), v = backend->alloc(DType::kF32, 1, 64),
                   y = backend->alloc(DType::kF32, 1, 64);
      backend->upload(q, host.data());
      host[40] = bad;
      backend->upload(v, host.data());
      backend->kv_write(*kv, 0, q, v);
      backend->attention(y, q, *kv, {.n_heads = 1, .n_kv_heads = 1, .head_dim = 64, .scale = 1});
      backend->download(out.data(), y);
      for (int i = 0; i < 32; ++i) EXPECT_NEAR(out[i], 1.0f, 1e-3) << device;  // its scale is f16
      EXPECT_FALSE(std::isfinite(out[40])) << device;
    }
  }
}

// Numbers between two E4M3 numbers become the nearer one, on both backends. The cache holds one value, and attention
// reads a single key.
TEST(KvTypes, E4M3IsTheNearest) {
  std::vector<float> numbers;  // all E4M3 numbers, in order
  for (int code = 0; code < 0x7F; ++code) numbers.push_back(quant::float_from_e4m3(static_cast<uint32_t>(code)));
  EXPECT_EQ(numbers.front(), 0);
  EXPECT_EQ(numbers.back(), 448);
  std::vector<std::pair<float, float>> cases = {
      {1e9f, 448}, {std::numeric_limits<float>::infinity(), 448}, {448.5f, 448}};  // from, to
  for (size_t i = 0; i + 1 < numbers.size(); ++i) {
    const float low = numbers[i], high = numbers[i + 1], middle = (low + high) / 2;
    cases.insert(cases.end(), {{low, low},
                               {std::nextafter(middle, 0.0f), low},
                               {middle, i % 2 == 0 ? low : high},
                               {std::nextafter(middle, 1e9f), high}});
  }
  while (cases.size() % 64 != 0) cases.emplace_back(0.0f, 0.0f);
  for (const char* device : {"ref", "cpu"}) {
    const auto backend = create_backend({.device = device, .n_threads = 1});
    const KvShape shape{
        .n_layers = 1, .n_kv_heads = 1, .head_dim = 64, .block_size = 16, .n_blocks = 1, .dtype = DType::kE4M3};
    const auto kv = backend->make_kv(shape);
    const std::vector<int32_t> token = {0}, position = {0}, q_start = {0, 1}, len = {1}, table = {0};
    const Tensor q = backend->alloc(DType::kF32, 1, 64), v = backend->alloc(DType::kF32, 1, 64),
                 y = backend->alloc(DType::kF32, 1, 64);
    for (const float sign : {1.0f, -1.0f}) {
      for (size_t first = 0; first < cases.size(); first += 64) {
        std::vector<float> host(64, 1.0f), out(64);
        backend->begin({token, position, q_start, len, table, 1, token});
        backend->upload(q, host.data());
        for (int i = 0; i < 64; ++i) host[i] = sign * cases[first + i].first;
        backend->upload(v, host.data());
        backend->kv_write(*kv, 0, q, v);
        backend->attention(y, q, *kv, {.n_heads = 1, .n_kv_heads = 1, .head_dim = 64, .scale = 1});
        backend->download(out.data(), y);
        for (int i = 0; i < 64; ++i) EXPECT_EQ(out[i], sign * cases[first + i].second) << device << ": " << host[i];
      }
    }
  }
}

TEST(KvTypes, E4M3KeepsWhatIsNoNumber) {
  for (const float sign : {1.0f, -1.0f})
    EXPECT_EQ(quant::e4m3_from_float(std::copysign(std::nanf(""), sign)) & 0x7F, 0x7F);
  EXPECT_TRUE(std::isnan(quant::float_from_e4m3(0x7F)));
}

}  // namespace
}  // namespace ingot
