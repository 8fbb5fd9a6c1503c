// Times the verbs at the shapes of real models, made by the functions of the op table, and prints them against this machine's
// measured peak. Usage: ops_bench [FILTER] [THREADS] [ISA]; FILTER is a part of the case's name.
//
// Each time is the shortest of many runs: the machine may be shared, and what is compared is kernels, not neighbours.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "backend/peak.h"
#include "ops_cases.h"

namespace ingot {
namespace {

struct ModelShape {
  const char* name;
  int dim, n_heads, n_kv_heads, head_dim, ffn, n_vocab;
};
constexpr ModelShape kModels[] = {
    {"smollm-135m", 576, 9, 3, 64, 1536, 49152},
    {"qwen2.5-0.5b", 896, 14, 2, 64, 4864, 151936},
    {"llama-3.2-1b", 2048, 32, 8, 64, 8192, 128256},
};

std::vector<OpCase> bench_cases() {
  std::vector<OpCase> cases;
  const auto add = [&](const ModelShape& m, OpCase c) {
    c.name = std::string(m.name) + " " + c.name;
    cases.push_back(std::move(c));
  };
  for (const ModelShape& m : kModels) {
    for (const Format f : {Format::F16, Format::BF16, Format::Q8_0, Format::Q4_0, Format::Q4_K, Format::Q6_K, Format::IQ4_NL}) {
      if (m.dim % info(f).block_size != 0) continue;
      for (const int64_t n : {1, 4, 512}) {
        add(m, gate_up_case(f, f, {n, m.ffn, m.dim}, Activation::kSilu));
        add(m, matmul_add_case(f, {n, m.dim, m.ffn}));
      }
      add(m, matmul_case(f, {1, m.n_vocab, m.dim}));
    }
    const AttentionShape heads{m.n_heads, m.n_kv_heads, m.head_dim};
    for (const auto& seqs : {std::vector<SeqShape>{{0, 512}}, {{512, 1}}, {{4096, 1}}, {{1024, 128}}})
      add(m, attention_case(heads, seqs));
    for (const int64_t n : {1, 512}) {
      add(m, add_norm_case(n, m.dim));
      add(m, norm_case(n, m.dim, NormKind::kRms, false, false));
    }
  }
  return cases;
}

// The shortest time of a run, in seconds.
double best_time(const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  const auto deadline = Clock::now() + std::chrono::milliseconds(300);
  for (int i = 0; i < 3 || Clock::now() < deadline; ++i) {
    const auto start = Clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return best;
}

void bench(const std::string& filter, int n_threads, const std::string& isa) {
  const MachinePeak peak = measure_peak(n_threads, isa);
  std::printf("%s; peak read %.1f GB/s, f32 %.0f GFLOP/s, int8 %.0f GOP/s\n",
              create_cpu_backend({.n_threads = n_threads, .isa = isa})->description().c_str(), peak.read_gb_s, peak.f32_gflop_s,
              peak.int8_gop_s);
  std::printf("%-64s %10s %8s %5s %8s %5s %5s\n", "", "us", "GB/s", "%", "GFLOP/s", "%f32", "%int8");
  for (const OpCase& c : bench_cases()) {
    if (c.name.find(filter) == std::string::npos) continue;
    const auto backend = create_cpu_backend({.n_threads = n_threads, .isa = isa});
    backend->reserve({.max_tokens = 512, .max_seqs = 1, .max_logits = 1, .max_kv_len = 8192, .max_width = 8192, .max_heads = 32,
                      .head_dim = 128, .n_vocab = 16});
    OpRig rig(*backend, 1);
    const double seconds = best_time(c.prepare(rig).run);
    const double gb_s = c.bytes / seconds * 1e-9, gflop_s = c.flops / seconds * 1e-9;
    std::printf("%-64s %10.1f %8.1f %5.0f %8.0f %5.0f %5.0f\n", c.name.c_str(), seconds * 1e6, gb_s, 100 * gb_s / peak.read_gb_s,
                gflop_s, 100 * gflop_s / peak.f32_gflop_s, 100 * gflop_s / peak.int8_gop_s);
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  ingot::bench(argc > 1 ? argv[1] : "", argc > 2 ? std::atoi(argv[2]) : 0, argc > 3 ? argv[3] : "");
}
