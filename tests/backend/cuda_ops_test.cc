// Every case of the op table on the GPU, in f32 and in f16, against ref; fused verbs against their own default bodies; what a
// recorded step replays. Skipped where the build has no CUDA or the machine no GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "backend/cuda/create_cuda.h"
#include "backend/ref/ref_backend.h"
#include "base/error.h"
#include "ops_cases.h"

namespace ingot {
namespace {

using Results = std::vector<std::vector<float>>;

std::unique_ptr<Backend> gpu(const std::string& activations = "f16") {
  try {
    return create_cuda_backend({.device = "cuda", .activations = activations});
  } catch (const UsageError&) {
    return nullptr;
  }
}

constexpr StepLimits kLimits = {.max_tokens = 512, .max_seqs = 8, .max_logits = 8, .max_kv_len = 4096, .max_width = 4100,
                                .max_heads = 64, .head_dim = 256, .n_vocab = 16};

Results run_case(const OpCase& c, Backend& backend, uint64_t seed, bool unfused) {
  OpRig rig(backend, seed, unfused);
  const OpRun op = c.prepare(rig);
  op.run();
  Results results;
  for (const Tensor& t : op.outputs) {
    results.emplace_back(t.rows * t.cols);
    backend.download(results.back().data(), t);
  }
  return results;
}

// Root mean square of the error over that of `want`; infinite where an element is not finite. A handful of outputs may all be small by
// chance: then over 1, which is what inputs are like.
double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  double squares = 0, error_squares = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = double{got[i]} - want[i];
    if (!std::isfinite(error)) return INFINITY;
    squares += double{want[i]} * want[i];
    error_squares += error * error;
  }
  const double n = static_cast<double>(want.size()), size = std::sqrt(squares / n);
  return std::sqrt(error_squares / n) / (want.size() < 64 || size == 0 ? std::max(1.0, size) : size);
}

void expect_close(const Results& got, const Results& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t o = 0; o < got.size(); ++o) {
    const double spread = got[o].size() < 64 ? 4 : 1;  // few outputs do not average out
    EXPECT_LE(relative_error(got[o], want[o]), spread * tolerance) << "output " << o;
  }
}

// f16 keeps 11 bits of every activation and, of formats with small scales, 11 of the scale: 2^-11 / sqrt(3) each, some of them in
// one product; a score carries several through an exponential.
constexpr double kF16Error = 2e-3;

class CudaOps : public testing::TestWithParam<std::string> {
 protected:
  template <class F>
  void each_case(Backend& backend, F&& f) const {
    const uint64_t seed = std::random_device{}();
    backend.reserve(kLimits);
    for (const OpCase& c : all_cases()) {
      if (c.verb != GetParam() || (needs_experts(c) && !backend.runs_experts()) ||
          (needs_bytes(c) && !backend.keeps_kv_as(DType::kQ8_0)))
        continue;
      SCOPED_TRACE(c.name + ", seed " + std::to_string(seed));
      f(c, seed);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
};

TEST_P(CudaOps, MatchRef) {
  const auto f32 = gpu("f32"), f16 = gpu("f16");
  if (!f32) GTEST_SKIP() << "no GPU";
  f16->reserve(kLimits);
  each_case(*f32, [&](const OpCase& c, uint64_t seed) {
    const auto ref = create_ref_backend();
    ref->reserve(kLimits);
    const Results want = run_case(c, *ref, seed, false);
    SCOPED_TRACE("f32");
    expect_close(run_case(c, *f32, seed, false), want, std::max({c.tolerance, c.loose, kFloatError}));
    SCOPED_TRACE("f16");
    expect_close(run_case(c, *f16, seed, false), want, std::max({c.tolerance, c.loose, kF16Error}));
  });
}

TEST_P(CudaOps, FusedMatchesItsDefault) {
  const auto backend = gpu();
  if (!backend) GTEST_SKIP() << "no GPU";
  each_case(*backend, [&](const OpCase& c, uint64_t seed) {
    expect_close(run_case(c, *backend, seed, false), run_case(c, *backend, seed, true), kF16Error);
  });
}

std::vector<std::string> verbs() {
  std::map<std::string, int> names;
  for (const OpCase& c : all_cases()) ++names[c.verb];
  std::vector<std::string> all;
  for (const auto& [name, count] : names) all.push_back(name);
  return all;
}
INSTANTIATE_TEST_SUITE_P(, CudaOps, testing::ValuesIn(verbs()), [](const auto& i) { return i.param; });

// Activations as a model has them, in f16, through products of few and many rows.
TEST(CudaBackend, TakesF16Activations) {
  const auto backend = gpu(), ref = create_ref_backend();
  if (!backend) GTEST_SKIP() << "no GPU";
  const uint64_t seed = std::random_device{}();
  backend->reserve(kLimits);
  ref->reserve(kLimits);
  for (const Format format : all_formats())
    for (const int64_t n : {1, 2, 8, 9, 16, 40, 300}) {
      SCOPED_TRACE(std::string(info(format).name) + ", rows " + std::to_string(n) + ", seed " + std::to_string(seed));
      constexpr int64_t kIn = 1280, kOut = 336;
      OpRig here(*backend, seed), there(*ref, seed);
      const Tensor x = here.values(n, kIn), narrow = backend->alloc(DType::kF16, n, kIn), y = backend->alloc(DType::kF16, n, kOut);
      const Tensor wide = here.output(n, kOut), up = backend->alloc(DType::kF16, n, kOut);
      const Weight& w = here.weight(format, kOut, kIn);
      NormArgs ones{.weight = backend->alloc(DType::kF32, 1, kIn)};
      const std::vector<float> one(kIn, 1.0f);
      backend->upload(ones.weight, one.data());
      backend->norm(narrow, x, ones);
      backend->matmul(y, narrow, w);
      backend->matmul(wide, narrow, w);
      backend->add(wide, y);
      backend->gate_up(up, narrow, w, w, {}, {}, Activation::kSilu);
      backend->matmul_add(wide, narrow, w);
      backend->add(wide, up);
      Results got{std::vector<float>(n * kOut)};
      backend->download(got[0].data(), wide);

      const Tensor rx = there.values(n, kIn), ry = there.output(n, kOut), rup = there.output(n, kOut);
      there.output(n, kOut);
      const Weight& rw = there.weight(format, kOut, kIn);
      NormArgs ref_ones{.weight = ref->alloc(DType::kF32, 1, kIn)};
      ref->upload(ref_ones.weight, one.data());
      ref->norm(rx, rx, ref_ones);
      ref->matmul(ry, rx, rw, {});
      ref->gate_up(rup, rx, rw, rw, {}, {}, Activation::kSilu);
      Results want{std::vector<float>(n * kOut)};
      for (int64_t i = 0; i < n * kOut; ++i) want[0][i] = 3 * ry.f32()[i] + rup.f32()[i];
      expect_close(got, want, kF16Error);
    }
}

// The third run of a decode step is a replay, and sees the new batch.
TEST(CudaBackend, ReplaysAStep) {
  const auto backend = gpu();
  if (!backend) GTEST_SKIP() << "no GPU";
  OpRig rig(*backend, 7);
  const Weight& table = rig.weight(Format::F16, 50, 64);
  const Tensor x = rig.output(2, 64);
  std::vector<std::vector<float>> rows(50, std::vector<float>(64));
  const auto step = [&](std::vector<int32_t> tokens) {
    const std::vector<int32_t> positions{0, 0}, q_start{0, 1, 2}, kv_len{1, 1}, blocks{0, 1};
    backend->begin({tokens, positions, q_start, kv_len, blocks, 1, {}});
    backend->run([&] {
      backend->embed(x, table, 1.0f);
      backend->scale(x, 2.0f, 0.0f);
    });
    std::vector<float> got(128);
    backend->download(got.data(), x);
    return got;
  };
  std::map<int32_t, std::vector<float>> seen;
  for (int32_t i = 0; i < 12; ++i) {
    const int32_t a = i % 4, b = 5 + i % 3;
    const std::vector<float> got = step({a, b});
    for (const auto& [token, begin] : {std::pair{a, 0}, std::pair{b, 64}}) {
      const std::vector<float> row(got.begin() + begin, got.begin() + begin + 64);
      const bool first = seen.emplace(token, row).second;
      if (!first) {
        EXPECT_EQ(seen[token], row) << "step " << i;
      }
    }
  }
  EXPECT_NE(seen[0], seen[1]);
}

TEST(CudaBackend, SaysWhatIsWrong) {
  EXPECT_THROW(create_cuda_backend({.device = "cuda", .activations = "f8"}), UsageError);
  const auto backend = gpu();
  if (!backend) GTEST_SKIP() << "no GPU";
  EXPECT_THROW(backend->alloc(DType::kF32, 1 << 24, 1 << 24), Error);
  EXPECT_TRUE(backend->alloc(DType::kF32, 4, 4));  // and goes on
}

}  // namespace
}  // namespace ingot
