// Times the verbs at the shapes of real models, made by the functions of the op table, as shares of this machine's peak that is
// measured first. Usage: ops_bench [--benchmark_filter=REGEX ...] [THREADS [ISA]]; all of it takes a minute or two.
//
// Columns: GB/s of what has to be read or written once, GFLOP/s, and each of them in per cent of the peak for that format.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <map>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "ops_cases.h"

namespace ingot {
namespace {

struct ModelShape {
  const char* name;
  int dim, n_heads, n_kv_heads, head_dim, ffn;
};
constexpr ModelShape kModels[] = {
    {"smollm-135m", 576, 9, 3, 64, 1536},
    {"llama-3.2-1b", 2048, 32, 8, 64, 8192},
};
constexpr Format kFormats[] = {Format::F16, Format::BF16, Format::Q8_0, Format::Q4_0, Format::Q4_K, Format::Q6_K};

BackendOptions options;

std::unique_ptr<Backend> make_backend() {
  auto backend = create_cpu_backend(options);
  backend->reserve({.max_tokens = 512, .max_seqs = 1, .max_logits = 1, .max_kv_len = 8192, .max_width = 8192, .max_heads = 32,
                    .head_dim = 128, .n_vocab = 16});
  return backend;
}

void time_case(benchmark::State& state, const OpCase& c, const Peak& peak) {
  const auto backend = make_backend();
  OpRig rig(*backend, 1);
  const OpRun op = c.prepare(rig);
  op.run();
  for (auto _ : state) op.run();
  using benchmark::Counter;
  const auto rate = [&](const char* name, double amount, double unit) {
    if (amount > 0) state.counters[name] = Counter(amount / unit, Counter::kIsIterationInvariantRate);
  };
  rate("GB/s", c.bytes, 1e9);
  rate("%read", 100 * c.bytes, 1e9 * peak.read_gb_s);
  rate("GFLOP/s", c.flops, 1e9);
  rate(("%" + peak.matmul_kind).c_str(), 100 * c.flops, 1e9 * peak.matmul_gflop_s);
}

void add(const ModelShape& model, const OpCase& c, const Peak& peak) {
  benchmark::RegisterBenchmark((std::string(model.name) + " " + c.name).c_str(),
                               [=](benchmark::State& state) { time_case(state, c, peak); })
      ->Unit(benchmark::kMicrosecond)
      ->MinTime(0.15)
      ->UseRealTime();
}

// The peak that a format's cases are measured against; reading is the same for all.
Peak peak_of(Format format, Backend& backend) {
  static std::map<std::string, Peak> peaks;
  const std::string kind = info(format).unpack != nullptr ? "int8" : info(format).name;
  if (!peaks.contains(kind)) {
    const Peak peak = peaks[kind] = backend.measure_peak(format);
    benchmark::AddCustomContext(fmt::format("peak for {}", kind == "int8" ? "quantized formats" : kind),
                                fmt::format("{:.1f} GB/s read, {:.0f} GFLOP/s {}", peak.read_gb_s, peak.matmul_gflop_s, peak.matmul_kind));
  }
  return peaks[kind];
}

void add_cases() {
  const auto backend = make_backend();
  benchmark::AddCustomContext("backend", backend->description());
  for (const ModelShape& m : kModels) {
    for (const Format f : kFormats) {
      if (m.dim % info(f).block_size != 0) continue;
      for (const int64_t n : {1, 4, 512}) {
        add(m, gate_up_case(f, f, {n, m.ffn, m.dim}, Activation::kSilu), peak_of(f, *backend));
        add(m, matmul_add_case(f, {n, m.dim, m.ffn}), peak_of(f, *backend));
      }
    }
    const Peak f32 = peak_of(Format::F32, *backend);
    const AttentionShape heads{m.n_heads, m.n_kv_heads, m.head_dim};
    for (const auto& seqs : {std::vector<SeqShape>{{0, 512}}, {{512, 1}}, {{4096, 1}}, {{1024, 128}}})
      add(m, attention_case(heads, seqs), f32);
    for (const int64_t n : {1, 512}) {
      add(m, add_norm_case(n, m.dim), f32);
      add(m, norm_case(n, m.dim, NormKind::kRms, false, false), f32);
      add(m, act_mul_case(n, m.ffn, Activation::kSilu, false), f32);
    }
  }
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc > 1) ingot::options.n_threads = std::atoi(argv[1]);
  if (argc > 2) ingot::options.isa = argv[2];
  try {
    ingot::add_cases();
  } catch (const ingot::Error& e) {
    fmt::print(stderr, "ops_bench: {}\n", e.what());
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
}
