// Runs every case of the op table against ref, on every instruction set of this machine, and compares fused ops with
// their default bodies.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/ref/ref_backend.h"
#include "backend/wrapped.h"
#include "base/error.h"
#include "ops_cases.h"
#include "test_seed.h"

namespace ingot {
namespace {

constexpr size_t kFew = 64;  // outputs

Results run_reserved(const OpCase& c, Backend& backend, uint64_t seed, bool unfused) {
  StepLimits limits = kCaseLimits;
  limits.max_tokens = 128;
  backend.reserve(limits);
  return run_case(c, backend, seed, unfused);
}

// Describes the first error of `got`; empty if there is none.
std::string complaint(const Results& got, const Results& want, double tolerance, double slack) {
  for (size_t o = 0; o < want.size(); ++o) {
    double squares = 0, error_squares = 0, worst = 0;
    size_t worst_at = 0;
    for (size_t i = 0; i < want[o].size(); ++i) {
      const double error = std::abs(double{got[o][i]} - want[o][i]);
      squares += double{want[o][i]} * want[o][i];
      error_squares += error * error;
      if (!(error <= worst)) worst = error, worst_at = i;
    }
    const double n = static_cast<double>(want[o].size());
    // The errors of a few outputs do not average out: all outputs may be small by chance, and one element may cause the
    // error. With any number of outputs, one element may err by the whole slack.
    const double rms = n < kFew ? std::max(1.0, std::sqrt(squares / n)) : std::sqrt(squares / n);
    const double error_rms = std::sqrt(error_squares / n), allowed = (n < kFew ? 4 : 1) * tolerance * rms;
    if (!std::isfinite(rms)) return fmt::format("ref's output {} is not finite", o);
    if (!(error_rms <= allowed + slack / std::sqrt(n)))
      return fmt::format("output {}: root mean square error {} of {}", o, error_rms, rms);
    if (!(worst <= 10 * allowed + slack))
      return fmt::format("output {} [{}]: {}, want {}; rms {}", o, worst_at, got[o][worst_at], want[o][worst_at], rms);
  }
  return "";
}

// Treats the last 32 columns of x as zeros in every matmul, like a kernel that misses a block of k.
class DropsABlock final : public Wrapped {
 public:
  using Wrapped::Wrapped;
  void matmul(Tensor y, Tensor x, const Weight& w, Tensor bias) override {
    std::vector<float> copy(x.rows * x.cols);
    inner().download(copy.data(), x);
    for (int64_t row = 0; row < x.rows; ++row)
      std::fill_n(copy.begin() + (row + 1) * x.cols - std::min<int64_t>(x.cols, 32), std::min<int64_t>(x.cols, 32),
                  0.0f);
    const Tensor dropped = inner().alloc(DType::kF32, x.rows, x.cols);
    inner().upload(dropped, copy.data());
    inner().matmul(y, dropped, w, bias);
  }

 private:
  void around(const char*, const Tensor&, const std::function<void()>& call) override { call(); }
};

struct Group {
  std::string isa;
  std::string op;
};
void PrintTo(const Group& g, std::ostream* out) { *out << g.op << " on " << g.isa; }

std::vector<Group> groups() {
  std::map<std::string, int> ops;
  for (const OpCase& c : all_cases()) ++ops[c.op];
  std::vector<Group> all;
  for (const cpu::Kernels* kernels : cpu::available_kernels())
    for (const auto& [op, count] : ops) all.push_back({kernels->isa, op});
  return all;
}

class Ops : public testing::TestWithParam<Group> {
 protected:
  // Each case makes a new backend, so that one case's memory does not add to the next.
  std::unique_ptr<Backend> cpu(int n_threads) const {
    return create_cpu_backend({.device = "cpu", .n_threads = n_threads, .isa = GetParam().isa});
  }
  template <class F>
  void each_case(F&& f) const {
    const uint64_t seed = test_seed();
    for (const OpCase& c : all_cases()) {
      if (c.op != GetParam().op || !runs_on(*cpu(1), c)) continue;
      SCOPED_TRACE(c.name + ", seed " + std::to_string(seed));
      f(c, seed);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
};

// A matrix unit rounds the weights of prompts to bf16; a gate multiplies two results.
double tolerance_on(const std::string& isa, const OpCase& c) {
  const bool in_bf16 = cpu::choose_kernels(isa).block_tiles != nullptr;
  return in_bf16 ? std::max(c.tolerance, std::min(c.loose, 2.5 * kBf16Error)) : c.tolerance;
}

bool has_small_weights(const OpCase& c) {
  for (const char* format : {"IQ1_", "IQ2_", "IQ3_", "TQ1_0"})
    if (c.name.find(format) != c.name.npos) return true;
  return false;
}

TEST_P(Ops, MatchRef) {
  each_case([&](const OpCase& c, uint64_t seed) {
    const double tolerance = tolerance_on(GetParam().isa, c);
    const Results want = run_reserved(c, *create_ref_backend(), seed, false);
    for (const int n_threads : {1, 3})
      EXPECT_EQ(complaint(run_reserved(c, *cpu(n_threads), seed, false), want, tolerance, c.slack), "");
    if (!has_small_weights(c)) return;
    const auto small = create_cpu_backend({.n_threads = 2, .isa = GetParam().isa, .small_weights = true});
    EXPECT_EQ(complaint(run_reserved(c, *small, seed, false), want, tolerance, c.slack), "") << "small weights";
  });
}

// Both quantize the same activations in the same way. Only the order of sums differs, and how scores pass through exp.
TEST_P(Ops, FusedMatchesItsDefault) {
  each_case([&](const OpCase& c, uint64_t seed) {
    EXPECT_EQ(
        complaint(run_reserved(c, *cpu(2), seed, false), run_reserved(c, *cpu(2), seed, true), kHalfError, c.slack),
        "");
  });
}

std::string group_name(const testing::TestParamInfo<Group>& info) { return info.param.isa + "_" + info.param.op; }
INSTANTIATE_TEST_SUITE_P(, Ops, testing::ValuesIn(groups()), group_name);

// The tolerances still detect errors: if 32 columns of k are dropped, every case made of matmuls fails. Cases with very
// few outputs are exempt, because chance may hide the error.
TEST(OpTable, NoticesADroppedBlock) {
  const uint64_t seed = test_seed();
  int n_cases = 0;
  for (const OpCase& c : all_cases()) {
    if (!std::set<std::string>{"matmul", "matmul_add", "gate_up", "norm_matmul", "qkv"}.contains(c.op)) continue;
    const Results want = run_reserved(c, *create_ref_backend(), seed, false);
    if (want[0].size() < kFew) continue;
    DropsABlock mutant(create_cpu_backend({}));
    EXPECT_NE(complaint(run_reserved(c, mutant, seed, true), want, c.tolerance, c.slack), "")
        << c.name << ", seed " << seed;
    ++n_cases;
  }
  EXPECT_GT(n_cases, 500);
}

// Tiles of f32 activations that are too long for the caches are multiplied in parts (kernels/matmul.cc).
// Against the formula: each frequency turns by the position on its own axis.
TEST(Rope, HasAPositionOnEachAxis) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  for (const char* device : {"ref", "cpu"}) {
    const auto backend = create_backend({.device = device});
    OpRig rig(*backend, seed);
    const int n = rig.begin_with_axes({{0, 3}, {40, 1}, {7, 5}});
    const Batch batch = rig.batch();
    constexpr int kFrequencies = 12;
    const Tensor angles = rig.output(n, 2 * kFrequencies), freq = inverse_frequencies(rig, 2 * kFrequencies);
    std::vector<int32_t> of_frequencies;
    for (int i = 0; i < kFrequencies; ++i) of_frequencies.push_back(i < 4 ? 0 : i < 9 ? 1 : 2);
    const Tensor axes = backend->alloc(DType::kI32, 1, kFrequencies);
    backend->upload(axes, of_frequencies.data());
    backend->rope_angles(angles, freq, 0.5f, axes);
    for (int t = 0; t < n; ++t)
      for (int i = 0; i < kFrequencies; ++i) {
        const int32_t position = batch.rope_positions[static_cast<size_t>(of_frequencies[i] * n + t)];
        const double angle = position * std::pow(10000.0, -i / double{kFrequencies});
        EXPECT_NEAR(angles.f32(t)[i], 0.5 * std::cos(angle), 1e-4) << device << " " << t << " " << i;
        EXPECT_NEAR(angles.f32(t)[kFrequencies + i], 0.5 * std::sin(angle), 1e-4) << device << " " << t << " " << i;
      }
  }
}

TEST(CpuBackend, AddsUpLongRowsInParts) {
  const uint64_t seed = test_seed();
  for (const Format format : {Format::F32, Format::F16})
    for (const OpCase& c : {matmul_case(format, {36, 70, 8704}, true), matmul_add_case(format, {36, 70, 8704}, true)}) {
      const Results want = run_reserved(c, *create_ref_backend(), seed, false);
      for (const cpu::Kernels* kernels : cpu::available_kernels())
        for (const int n_threads : {1, 2}) {
          const auto backend = create_cpu_backend({.n_threads = n_threads, .isa = kernels->isa});
          EXPECT_EQ(complaint(run_reserved(c, *backend, seed, false), want, c.tolerance, 0), "")
              << c.name << " on " << kernels->isa << ", seed " << seed;
        }
    }
}

TEST(CpuBackend, RefusesAnUnknownInstructionSet) {
  EXPECT_THROW(create_cpu_backend({.isa = "mmx"}), UsageError);
}

TEST(CpuBackend, SaysWhatItIs) {
  for (const cpu::Kernels* kernels : cpu::available_kernels()) {
    const auto backend = create_cpu_backend({.n_threads = 3, .isa = kernels->isa});
    EXPECT_EQ(backend->description(), std::string("cpu: 3 threads, ") + kernels->isa);
    EXPECT_EQ(backend->n_threads(), 3);
  }
}

// The measured rates depend on the machine and its load, so only their presence and the kind of multiplication are
// checked.
TEST(CpuBackend, MeasuresThePeakOfAFormat) {
  for (const cpu::Kernels* kernels : {cpu::available_kernels().front(), cpu::available_kernels().back()}) {
    SCOPED_TRACE(kernels->isa);
    const auto backend = create_cpu_backend({.n_threads = 2, .isa = kernels->isa});
    for (const Format format : {Format::F16, Format::BF16, Format::Q6_K}) {
      const Peak peak = backend->measure_peak(format);
      EXPECT_GT(peak.matmul_gflop_s, 0);
      EXPECT_GT(peak.read_gb_s, 0);
      const bool bf16 = format == Format::BF16 && kernels->bf16_dot;
      const char* dense = bf16 ? "bf16" : kernels->int16_tile > 0 ? "int16" : "f32";
      const char* codes = kernels->block_tiles != nullptr ? "bf16" : "int8";
      EXPECT_EQ(peak.matmul_kind, info(format).unpack != nullptr ? codes : dense);
    }
  }
}

}  // namespace
}  // namespace ingot
