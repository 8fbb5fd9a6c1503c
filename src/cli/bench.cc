// ingot bench: prefill and decode speed of a model, or of a known shape with random weights, and what share of this
// machine's measured peak that is. Rows are llama-bench's; tokenizing and sampling are left out, as there.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/system.h"
#include "cli/bench_report.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cli/verbs.h"
#include "model/score.h"
#include "model/shapes.h"

namespace ingot {
namespace {

struct BenchOptions {
  ModelOptions model;
  std::string shape, type = "Q4_0", output = "md";
  std::vector<int> n_prompt = {512}, n_gen = {128}, threads = {0}, depth = {0}, parallel = {1};
  int n_repeats = 5;
};

// One row: n tokens after `depth` others, all at once (prefill) or one by one (decode), of so many sequences.
struct Test {
  bool prefill = true;
  int n = 0;
  int depth = 0;
  int n_seqs = 1;
};

std::unique_ptr<Ranks> load_runner(BenchOptions& o, int n_threads, int n_ctx, int n_kv_tokens) {
  RunnerOptions runner = runner_options(o.model);
  runner.backend.n_threads = n_threads;
  runner.n_ctx = n_ctx;
  runner.max_seqs = std::ranges::max(o.parallel);
  runner.max_batch_tokens = std::max(runner.max_batch_tokens, runner.max_seqs);
  runner.n_kv_tokens = n_kv_tokens;
  const auto checkpoint = o.shape.empty() ? open_model_file(o.model) : nullptr;  // which may be downloaded first
  ProgressBar bar("loading");
  const LoadProgress progress = [&](size_t done, size_t total) { bar.update(done, total); };
  if (checkpoint) return std::move(load_model(checkpoint, runner, progress).runner);
  const std::optional<Format> format = format_from_name(o.type);
  if (!format) throw UsageError("unknown type '{}': use one such as F16, Q8_0, Q4_0 or Q4_K", printable(o.type));
  const Config config = config_of_shape(o.shape);
  return std::make_unique<Ranks>(config, dummy_source(config, *format, 1), runner, progress);
}

// Logits of the last token of every step, and no step before the one before is done: as llama-bench does it, and as a text is
// made, whose next token comes from them.
void feed(Ranks& runner, Lockstep& sequences, const std::vector<int32_t>& tokens, int n_seqs, int n, int chunk) {
  for (int begin = 0; begin < n; begin += chunk) {
    const int n_step = std::min(chunk, n - begin);
    sequences.feed(std::span(tokens).subspan(begin, n_seqs * n_step), n_step - 1);
    if (chunk == 1) runner.backend().synchronize();
  }
}

double seconds_of(Ranks& runner, const Test& test, const std::vector<int32_t>& tokens) {
  Lockstep sequences(runner, test.n_seqs);
  const int chunk = runner.info().max_batch_tokens / test.n_seqs;
  feed(runner, sequences, tokens, test.n_seqs, test.depth, chunk);
  runner.backend().synchronize();  // a device is still at it
  const auto start = std::chrono::steady_clock::now();
  feed(runner, sequences, tokens, test.n_seqs, test.n, test.prefill ? chunk : 1);
  runner.logits();  // waits for a device
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Bytes that a step of one token for each sequence must read, and operations that one prefilled token must do, at a mean position.
double decode_bytes(const Ranks& runner, int n_seqs, double kv_len) {
  const Weights& w = runner.weights();
  const double lookup_only = w.model.tied ? 0.0 : static_cast<double>(w.model.embedding.bytes());
  const double weights = static_cast<double>(w.active_bytes) - lookup_only;
  return weights + n_seqs * kv_len * static_cast<double>(runner.kv_shape().token_bytes());
}

double prefill_ops(const Ranks& runner, double kv_len) {
  const Config& c = runner.config();
  const double attention = 4.0 * c.n_layers * c.q_dim() * kv_len;
  double matrices = c.n_layers * (2.0 * c.dim * c.q_dim() + 2.0 * c.dim * c.kv_dim());
  for (int i = 0; i < c.n_layers; ++i) {
    const double width = c.layer(i).experts ? static_cast<double>(c.experts.ffn_dim) * c.experts.n_used + c.experts.shared_dim : c.ffn_dim;
    matrices += 3.0 * c.dim * width;
  }
  return 2 * matrices + attention;
}

BenchRow measure(Ranks& runner, const Test& test, int n_repeats, const Peak& peak) {
  std::vector<int32_t> tokens(static_cast<size_t>(test.n + test.depth) * test.n_seqs);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>((i * 7919 + 1) % runner.info().n_vocab);
  seconds_of(runner, test.prefill ? test : Test{false, std::min(test.n, 4), test.depth, test.n_seqs}, tokens);  // warms up
  std::vector<double> rates;
  for (int i = 0; i < n_repeats; ++i) rates.push_back(static_cast<double>(test.n) * test.n_seqs / seconds_of(runner, test, tokens));
  BenchRow row{.test = fmt::format("{}{}", test.prefill ? "pp" : "tg", test.n), .rates = rates};
  if (test.n_seqs > 1) row.test += fmt::format(" x{}", test.n_seqs);
  if (test.depth > 0) row.test += fmt::format(" @ d{}", test.depth);
  const double kv_len = test.depth + test.n / 2.0;
  if (test.prefill) {
    row.achieved = row.mean() * prefill_ops(runner, kv_len) * 1e-9;
    row.unit = "GFLOP/s";
    row.peak = peak.matmul_gflop_s;
    row.peak_kind = peak.matmul_kind;
  } else {
    row.achieved = row.mean() / test.n_seqs * decode_bytes(runner, test.n_seqs, kv_len) * 1e-9;
    row.unit = "GB/s";
    row.peak = peak.read_gb_s;
    row.peak_kind = "read";
  }
  return row;
}

// Others on the machine take from what a measurement finds: so it is made again before every row, and the best one counts.
void raise_peak(Peak& peak, Ranks& runner) {
  const Peak now = runner.backend().measure_peak(runner.weights().layers[0].w_gate.format);
  peak = {std::max(peak.read_gb_s, now.read_gb_s), std::max(peak.matmul_gflop_s, now.matmul_gflop_s), now.matmul_kind};
}

void bench(BenchOptions& o) {
  if (o.model.path.size() && o.shape.size()) throw UsageError("give either a model file or --shape, not both");
  std::vector<Test> tests;
  for (int depth : o.depth) {
    for (int n : o.n_prompt)
      if (n > 0) tests.push_back({true, n, depth});
    for (int n : o.n_gen)
      for (int n_seqs : o.parallel)
        if (n > 0) tests.push_back({false, n, depth, n_seqs});
  }
  int n_ctx = 1;
  int64_t n_kv_tokens = 1;
  for (const Test& test : tests) {
    n_ctx = std::max(n_ctx, test.n + test.depth);
    const int64_t whole_blocks = (test.n + test.depth + o.model.block_size - 1) / o.model.block_size * o.model.block_size;
    n_kv_tokens = std::max(n_kv_tokens, whole_blocks * test.n_seqs);
  }
  if (n_kv_tokens > 1 << 30) throw UsageError("{} tokens of context in all are too many: use a smaller -d, -n or --parallel", n_kv_tokens);
  BenchReport report(o.output);
  for (int n_threads : o.threads) {
    InterruptGuard guard;
    const std::unique_ptr<Ranks> runner = load_runner(o, n_threads, n_ctx, static_cast<int>(n_kv_tokens));
    const Weight& matrix = runner->weights().layers[0].w_gate;
    Peak peak;
    raise_peak(peak, *runner);
    const BenchModel model = {.name = printable(runner->config().name.empty() ? "model" : runner->config().name) + " " +
                                      (o.shape.empty() ? info(matrix.format).name : o.type),
                              .bytes = runner->weights().file_bytes,
                              .n_parameters = runner->weights().n_parameters,
                              .backend = runner->backend().name(),
                              .description = runner->backend().description(),
                              .n_threads = runner->backend().n_threads()};
    report.begin(model, peak);
    for (const Test& test : tests) {
      if (InterruptGuard::interrupted()) throw Error("interrupted");
      raise_peak(peak, *runner);
      report.add(model, measure(*runner, test, o.n_repeats, peak));
    }
  }
  report.end();
}

}  // namespace

void add_bench(CLI::App& app) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* verb = app.add_subcommand("bench", "Measure prefill and decode speed");
  add_model_argument(*verb, o->model);
  verb->add_option("--shape", o->shape, "random weights of a known shape instead of a file: " + shape_names());
  verb->add_option("--type", o->type, "format of those weights")->capture_default_str();
  verb->add_option("-p,--n-prompt", o->n_prompt, "prompt lengths to measure: 512,2048; 0: none")->check(CLI::Range(0, 1 << 24))->delimiter(',')->capture_default_str();
  verb->add_option("-n,--n-gen", o->n_gen, "numbers of tokens to generate; 0: none")->check(CLI::Range(0, 1 << 24))->delimiter(',')->capture_default_str();
  verb->add_option("-d,--n-depth", o->depth, "tokens already in the context")->check(CLI::Range(0, 1 << 24))->delimiter(',')->capture_default_str();
  verb->add_option("--parallel,--npl", o->parallel, "sequences that generate at once")->check(CLI::Range(1, 4096))->delimiter(',')->capture_default_str();
  verb->add_option("-r,--repetitions", o->n_repeats, "repeats of each row")->check(CLI::Range(1, 1000))->capture_default_str();
  verb->add_option("-t,--threads", o->threads, "threads; several numbers measure each; 0: all cores")->check(CLI::Range(0, 1024))->delimiter(',')->capture_default_str();
  verb->add_option("-o,--output", o->output, "md, csv or json")->check(CLI::IsMember({"md", "csv", "json"}))->capture_default_str();
  verb->add_option("--device", o->model.device, "cpu, cuda or ref")->capture_default_str();
  verb->add_option("-b,--batch-size,--chunk", o->model.chunk, "most tokens in one step")->check(CLI::Range(1, 1 << 16))->capture_default_str();
  verb->add_option("--kv-type,--cache-type", o->model.kv_type, "type of the KV cache: f16, bf16 or f32")->capture_default_str();
  verb->add_option("--trace", o->model.trace_path, "write the time of every verb to this file");
  add_log_option(*verb, o->model);
  verb->footer("Examples:\n  ingot bench model.gguf -p 512,2048 -n 128\n  ingot bench --shape llama-3.2-1b --type Q4_K -t 1,2 -o json\n"
               "  ingot bench --shape llama-3.2-1b -p 0 -n 32 -d 1024 --parallel 1,8,64");
  verb->callback([o] { bench(*o); });
}

}  // namespace ingot
