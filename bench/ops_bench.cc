// Times the ops at the shapes of real models, with the functions of the op table, relative to this machine's peak,
// which is measured first. Usage: ops_bench [--benchmark_filter=REGEX ...] [THREADS [ISA] | cuda | cuda:N]. A full run
// takes a minute. On a GPU it times only attention and draws, which `ingot bench` does not show separately; launch and
// synchronization are included.
//
// %peak is the least time that a case's operations or bytes can take, whichever is longer, divided by the measured
// time. Decoding reads every weight from memory once per token, so these cases alternate between several copies that
// together exceed the caches.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <map>
#include <string>

#include "backend/device_name.h"
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
constexpr double kMoreThanCaches = 128 << 20;  // bytes

BackendOptions options;

std::unique_ptr<Backend> make_backend() {
  auto backend = create_backend(options);
  const bool gpu = is_cuda(options.device);
  backend->reserve({.max_tokens = gpu ? 8192 : 512,
                    .max_seqs = gpu ? 256 : 16,
                    .max_logits = 1,
                    .max_kv_len = gpu ? 32768 : 8192,
                    .max_width = 8192,
                    .max_heads = 32,
                    .head_dim = 128,
                    .n_vocab = 16});
  return backend;
}

void time_case(benchmark::State& state, const OpCase& c, const Peak& peak, int n_copies) {
  const auto backend = make_backend();
  OpRig rig(*backend, 1);
  std::vector<OpRun> ops;
  for (int i = 0; i < n_copies; ++i) ops.push_back(c.prepare(rig));
  for (const OpRun& op : ops) op.run();
  backend->synchronize();
  size_t next = 0;
  for (auto _ : state) {
    ops[next].run();
    backend->synchronize();
    next = next + 1 == ops.size() ? 0 : next + 1;
  }
  const double least_seconds = std::max(c.bytes / peak.read_gb_s, c.flops / peak.matmul_gflop_s) * 1e-9;
  constexpr auto kRate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["GB/s"] = {c.bytes * 1e-9, kRate};
  state.counters["GFLOP/s"] = {c.flops * 1e-9, kRate};
  state.counters["%peak"] = {100 * least_seconds, kRate};
}

void add(const ModelShape& model, const OpCase& c, const Peak& peak, bool cold = false) {
  const int n_copies = cold ? static_cast<int>(kMoreThanCaches / c.bytes) + 1 : 1;
  benchmark::RegisterBenchmark((std::string(model.name) + " " + c.name).c_str(),
                               [=](benchmark::State& state) { time_case(state, c, peak, n_copies); })
      ->Unit(benchmark::kMicrosecond)
      ->UseRealTime();
}

// The peak for the cases of a format.
Peak peak_of(Format format, Backend& backend) {
  static std::map<std::string, Peak> peaks;
  const std::string kind = info(format).unpack != nullptr ? "quantized formats" : info(format).name;
  if (!peaks.contains(kind)) {
    const Peak peak = peaks[kind] = backend.measure_peak(format);
    benchmark::AddCustomContext("peak for " + kind, fmt::format("{:.1f} GB/s read, {:.0f} GFLOP/s {}", peak.read_gb_s,
                                                                peak.matmul_gflop_s, peak.matmul_kind));
  }
  return peaks[kind];
}

void add_cases() {
  const auto backend = make_backend();
  benchmark::AddCustomContext("backend", backend->description());
  for (const ModelShape& m : kModels) {
    for (const Format f : kFormats) {
      if (m.dim % info(f).block_size != 0) continue;
      const Peak peak = peak_of(f, *backend);
      for (const int64_t n : {1, 4, 512}) {
        add(m, gate_up_case(f, f, {n, m.ffn, m.dim}, Activation::kSilu), peak, n < 512);
        add(m, matmul_add_case(f, {n, m.dim, m.ffn}), peak, n < 512);
      }
    }
    const Peak peak = peak_of(Format::F32, *backend);
    const AttentionShape heads{m.n_heads, m.n_kv_heads, m.head_dim};
    for (const auto& seqs : {std::vector<SeqShape>{{0, 512}}, {{1024, 128}}, std::vector<SeqShape>(16, {4096, 1})})
      add(m, attention_case(heads, seqs), peak);
    add(m, norm_case(512, m.dim, NormKind::kRms, false, false), peak, true);
    add(m, act_mul_case(512, m.ffn, Activation::kSilu, false), peak, true);
  }
}

// A layer of experts, and one of its three products. The several copies of the weights exceed the caches; a token reads
// only the experts that it chose.
void add_expert_layers() {
  const auto backend = make_backend();
  const ModelShape m = {"granite-1b-a400m", 1024, 16, 8, 64, 512};
  for (const Format f : {Format::Q8_0, Format::Q4_K}) {
    const Peak peak = peak_of(f, *backend);
    for (const int64_t n : {1, 4, 512}) {
      const ExpertShape shape{n, 8, 32, m.dim, m.ffn};
      add(m, moe_case(f, f, shape, Activation::kSilu), peak, n < 512);
      add(m, moe_matmul_case(f, shape, true, false), peak, n < 512);
    }
  }
}

// One draw from each of 256 rows of logits. Normally twenty logits stand out, as in a model's rows. flat: all logits
// are similar.
void time_draws(benchmark::State& state, const SamplingParams& params, bool flat, const Peak& peak) {
  constexpr int kRows = 256, kVocab = 128256;
  const auto backend = make_backend();
  OpRig rig(*backend, 1);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, flat ? 1.0f : 2.0f);
  std::vector<float> host(size_t{kRows} * kVocab);
  for (float& v : host) v = normal(random);
  for (int row = 0; !flat && row < kRows; ++row)
    for (int i = 0; i < 20; ++i)
      host[size_t{kVocab} * row + random() % kVocab] = 14.0f + static_cast<float>(random() % 64) / 10.0f;
  const Tensor logits = backend->alloc(DType::kF32, kRows, kVocab);
  backend->upload(logits, host.data());
  std::vector<SampleRow> rows(kRows, {.params = &params});
  for (auto _ : state) {
    for (SampleRow& row : rows) ++row.position;
    backend->sample(logits, rows);
    backend->wait();
  }
  const double bytes = 4.0 * kRows * kVocab;
  constexpr auto kRate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["GB/s"] = {bytes * 1e-9, kRate};
  state.counters["%peak"] = {100 * bytes / peak.read_gb_s * 1e-9, kRate};
}

void add_gpu_cases() {
  const auto backend = make_backend();
  benchmark::AddCustomContext("backend", backend->description());
  const Peak peak = backend->measure_peak(Format::F16);
  benchmark::AddCustomContext("peak", fmt::format("{:.0f} GB/s read, {:.0f} GFLOP/s {}", peak.read_gb_s,
                                                  peak.matmul_gflop_s, peak.matmul_kind));
  const ModelShape m = {"llama-3.1-8b", 4096, 32, 8, 128, 14336};
  for (const auto& seqs :
       {std::vector<SeqShape>{{0, 8192}}, {{0, 2048}}, {{8191, 1}}, std::vector<SeqShape>(64, {1024, 1})})
    add(m, attention_case({m.n_heads, m.n_kv_heads, m.head_dim}, seqs), peak);
  // Drafts, and a short message, far into a context.
  for (const int n : {4, 8, 64, 256})
    add(m, attention_case({m.n_heads, m.n_kv_heads, m.head_dim}, {{32768 - n, n}}), peak);
  // A step that mixes the last prompt tokens of two requests with the decodes of others.
  std::vector<SeqShape> mixed(132, {1125, 1});
  for (const int q_len : {1000, 916}) mixed.push_back({0, q_len});
  for (const DType dtype : {DType::kF16, DType::kE4M3})
    add(m, attention_case({m.n_heads, m.n_kv_heads, m.head_dim, dtype}, mixed), peak);
  // Decode with wider heads, and over latents.
  for (const auto& seqs : {std::vector<SeqShape>{{32767, 1}}, std::vector<SeqShape>(16, {8191, 1})}) {
    add(m, attention_case({8, 2, 256}, seqs), peak);
    add(m, attention_case({16, 2, 512}, seqs), peak);
    for (const int n_heads : {16, 20, 64, 128})
      add(m, attention_case({.n_heads = n_heads, .n_kv_heads = 1, .head_dim = 576, .latent = true}, seqs), peak);
  }
  add(m, attention_case({.n_heads = 16, .n_kv_heads = 1, .head_dim = 576, .latent = true}, {{0, 2048}}), peak);
  const std::pair<const char*, SamplingParams> draws[] = {
      {"the defaults", {}},
      {"top-p 0.95", {.top_k = 0, .min_p = 0}},
      {"temperature", {.top_k = 0, .top_p = 1, .min_p = 0}},
      {"penalties and top-p", {.top_k = 0, .min_p = 0, .repetition_penalty = 1.1f}},
  };
  for (const auto& [name, params] : draws)
    for (const bool flat : {false, true})
      benchmark::RegisterBenchmark(
          fmt::format("draw 256 x 128256, {}, {} logits", name, flat ? "flat" : "peaked").c_str(),
          [=, p = params](benchmark::State& state) { time_draws(state, p, flat, peak); })
          ->Unit(benchmark::kMicrosecond)
          ->UseRealTime();
}

// Prints one table. Names omit the settings that are the same for all cases.
class Report : public benchmark::ConsoleReporter {
 public:
  Report() : ConsoleReporter(OO_Tabular) {}
  void ReportRuns(const std::vector<Run>& runs) override {
    std::vector<Run> plain = runs;
    for (Run& run : plain) run.run_name.time_type.clear();
    ConsoleReporter::ReportRuns(plain);
  }
};

}  // namespace
}  // namespace ingot

int main(int argc, char** argv) {
  std::string min_time = "--benchmark_min_time=0.1";  // unless the command line says otherwise
  std::vector<char*> args(argv, argv + argc);
  args.insert(args.begin() + 1, min_time.data());
  int n_args = static_cast<int>(args.size());
  benchmark::Initialize(&n_args, args.data());
  const bool gpu = n_args > 1 && ingot::is_cuda(args[1]);
  if (gpu) ingot::options.device = args[1];
  if (n_args > 1 && !gpu) ingot::options.n_threads = std::atoi(args[1]);
  if (n_args > 2) ingot::options.isa = args[2];
  try {
    gpu ? ingot::add_gpu_cases() : ingot::add_cases();
    if (!gpu) ingot::add_expert_layers();
  } catch (const ingot::Error& e) {
    fmt::print(stderr, "ops_bench: {}\n", e.what());
    return 1;
  }
  ingot::Report report;
  benchmark::RunSpecifiedBenchmarks(&report);
}
