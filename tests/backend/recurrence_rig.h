// The tests of recurrent layers: random numbers, the steps of some sequences, and the backends of all instruction sets
// and of the GPU.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/cuda/create_cuda.h"
#include "backend/ref/ref_backend.h"
#include "base/error.h"
#include "test_seed.h"

namespace ingot {

class LayerRandom {
 public:
  explicit LayerRandom(uint64_t seed) : engine_(seed) {}
  int integer(int low, int high) { return std::uniform_int_distribution(low, high)(engine_); }
  std::vector<float> normal(int64_t n, float mean, float deviation) {
    std::normal_distribution<float> draw(mean, deviation);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& v : values) v = draw(engine_);
    return values;
  }

 private:
  std::mt19937_64 engine_;
};

inline Tensor upload(Backend& backend, int64_t rows, int64_t cols, const std::vector<float>& values) {
  const Tensor t = backend.alloc(DType::kF32, rows, cols);
  backend.upload(t, values.data());
  return t;
}

inline std::vector<float> values_of(Backend& backend, const Tensor& t) {
  std::vector<float> values(static_cast<size_t>(t.rows * t.cols));
  backend.download(values.data(), t);
  return values;
}

struct Steps {
  std::vector<int32_t> positions, q_start, kv_len, state_in, state_out, tokens;
  // n tokens of each sequence after `past` tokens.
  void add(int past, int n, int in, int out) {
    if (q_start.empty()) q_start.push_back(0);
    for (int i = 0; i < n; ++i) positions.push_back(past + i);
    q_start.push_back(static_cast<int32_t>(positions.size()));
    kv_len.push_back(past + n);
    state_in.push_back(past == 0 ? -1 : in);
    state_out.push_back(out);
    tokens.assign(positions.size(), 0);
  }
  Batch batch() const {
    return {.tokens = tokens,
            .positions = positions,
            .q_start = q_start,
            .kv_len = kv_len,
            .state_in = state_in,
            .state_out = state_out};
  }
};

// Three sequences. Each has two slots, and may stay in one.
class GrowingSequences {
 public:
  // 1 to 9 more tokens of each sequence, or n_long of the second one if it is not 0.
  Steps next(LayerRandom& random, int n_long = 0) {
    Steps steps;
    for (int seq = 0; seq < kSeqs; ++seq) {
      const int n = n_long > 0 && seq == 1 ? n_long : random.integer(1, 9), out = 2 * seq + random.integer(0, 1);
      steps.add(past_[seq], n, at_[seq], out);
      past_[seq] += n, at_[seq] = out;
    }
    return steps;
  }
  static constexpr int kSeqs = 3, kSlots = 2 * kSeqs;

 private:
  int past_[kSeqs] = {}, at_[kSeqs] = {};
};

// Sums over the state have rounding errors in proportion to their terms.
inline void expect_close_rows(const std::vector<float>& got, const std::vector<float>& want, int64_t width,
                              double tolerance = 2e-5) {
  ASSERT_EQ(got.size(), want.size());
  double all_squares = 0;
  for (const float value : want) all_squares += double{value} * value;
  // The terms of a row may cancel, but not their roundings, so a row counts as at least a tenth of the usual length.
  const double n_rows = static_cast<double>(want.size()) / static_cast<double>(width),
               least = want.empty() ? 0 : 0.1 * std::sqrt(all_squares / n_rows);
  for (size_t row = 0; row < got.size(); row += static_cast<size_t>(width)) {
    double squares = 0, errors = 0;
    for (size_t i = row; i < row + static_cast<size_t>(width); ++i)
      squares += double{want[i]} * want[i], errors += std::pow(double{got[i]} - want[i], 2);
    ASSERT_LE(std::sqrt(errors), tolerance * (1e-3 + std::max(least, std::sqrt(squares))))
        << "token " << row / static_cast<size_t>(width);
  }
}

// The backend of an instruction set, or of "cuda"; null if there is none.
inline std::unique_ptr<Backend> backend_named(const std::string& name) {
  if (name != "cuda") return create_cpu_backend({.n_threads = 2, .isa = name});
  try {
    return create_cuda_backend({.device = "cuda"});
  } catch (const UsageError&) {
    return nullptr;
  }
}

class RecurrenceRig : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!backend_) GTEST_SKIP() << "no GPU";
  }
  const uint64_t seed_ = test_seed();
  testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
  LayerRandom random_{seed_};
  std::unique_ptr<Backend> backend_ = backend_named(GetParam()), ref_ = create_ref_backend();
};

inline std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const cpu::Kernels* kernels : cpu::available_kernels()) names.emplace_back(kernels->isa);
  return names;
}

}  // namespace ingot
