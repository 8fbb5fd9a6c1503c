// Every case of the op table, on every instruction set of this machine, against ref; and fused verbs against their own
// default bodies.
#include <gtest/gtest.h>

#include <map>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/isa.h"
#include "backend/ref/ref_backend.h"
#include "base/error.h"
#include "ops_cases.h"

namespace ingot {
namespace {

using Results = std::vector<std::vector<float>>;

Results run_case(const OpCase& c, Backend& backend, uint64_t seed, bool unfused) {
  OpRig rig(backend, seed, unfused);
  backend.reserve({.max_tokens = 128, .max_seqs = 8, .max_logits = 8, .max_kv_len = 4096, .max_width = 4100, .max_heads = 64,
                   .head_dim = 256, .n_vocab = 16});
  const OpRun op = c.prepare(rig);
  op.run();
  Results results;
  for (const Tensor& t : op.outputs) {
    results.emplace_back(t.rows * t.cols);
    backend.download(results.back().data(), t);
  }
  return results;
}

void expect_close(const Results& got, const Results& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t o = 0; o < got.size(); ++o) {
    ASSERT_EQ(got[o].size(), want[o].size());
    double squares = 0, error_squares = 0, worst = 0;
    size_t worst_at = 0;
    for (size_t i = 0; i < got[o].size(); ++i) {
      const double error = std::abs(double{got[o][i]} - want[o][i]);
      squares += double{want[o][i]} * want[o][i];
      error_squares += error * error;
      if (!(error <= worst)) worst = error, worst_at = i;
    }
    const double n = static_cast<double>(got[o].size());
    // A handful of outputs do not average out: theirs may all be small by chance, and the error that of one unlucky element.
    const double rms = n < 64 ? std::max(1.0, std::sqrt(squares / n)) : std::sqrt(squares / n);
    const double error_rms = std::sqrt(error_squares / n), allowed = (n < 64 ? 4 : 1) * tolerance * rms;
    ASSERT_TRUE(std::isfinite(rms)) << "ref's output " << o;
    EXPECT_TRUE(error_rms <= allowed) << "output " << o << ": root mean square error " << error_rms << " of " << rms;
    EXPECT_TRUE(worst <= 10 * allowed)
        << "output " << o << " [" << worst_at << "]: " << got[o][worst_at] << ", want " << want[o][worst_at];
  }
}

struct Group {
  std::string isa;
  std::string verb;
};
void PrintTo(const Group& g, std::ostream* out) { *out << g.verb << " on " << g.isa; }

std::vector<Group> groups() {
  std::map<std::string, int> verbs;
  for (const OpCase& c : all_cases()) ++verbs[c.verb];
  std::vector<Group> all;
  for (const cpu::Kernels* kernels : cpu::available_kernels())
    for (const auto& [verb, count] : verbs) all.push_back({kernels->isa, verb});
  return all;
}

class Ops : public testing::TestWithParam<Group> {
 protected:
  // The backend and what it holds are made anew for each case, so that one case's memory does not add to the next.
  std::unique_ptr<Backend> cpu(int n_threads) const {
    return create_cpu_backend({.device = "cpu", .n_threads = n_threads, .isa = GetParam().isa});
  }
  template <class F>
  void each_case(F&& f) const {
    const uint64_t seed = std::random_device{}();
    for (const OpCase& c : all_cases()) {
      if (c.verb != GetParam().verb) continue;
      SCOPED_TRACE(c.name + ", seed " + std::to_string(seed));
      f(c, seed);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
};

TEST_P(Ops, MatchRef) {
  each_case([&](const OpCase& c, uint64_t seed) {
    const Results want = run_case(c, *create_ref_backend(), seed, false);
    for (const int n_threads : {1, 3}) expect_close(run_case(c, *cpu(n_threads), seed, false), want, c.tolerance);
  });
}

// The same activations quantized the same way: only the order of sums differs, and a score's way through exp.
TEST_P(Ops, FusedMatchesItsDefault) {
  each_case([&](const OpCase& c, uint64_t seed) {
    expect_close(run_case(c, *cpu(2), seed, false), run_case(c, *cpu(2), seed, true), kHalfError);
  });
}

std::string group_name(const testing::TestParamInfo<Group>& info) { return info.param.isa + "_" + info.param.verb; }
INSTANTIATE_TEST_SUITE_P(, Ops, testing::ValuesIn(groups()), group_name);

TEST(CpuBackend, RefusesAnUnknownInstructionSet) {
  EXPECT_THROW(create_cpu_backend({.isa = "mmx"}), UsageError);
}

TEST(CpuBackend, SaysWhatItIs) {
  for (const cpu::Kernels* kernels : cpu::available_kernels()) {
    const auto backend = create_cpu_backend({.n_threads = 3, .isa = kernels->isa});
    EXPECT_EQ(backend->description(), std::string("cpu: 3 threads, ") + kernels->isa);
  }
}

}  // namespace
}  // namespace ingot
