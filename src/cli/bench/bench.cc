// ingot bench: prefill and decode speed of a model, or of a known shape with random weights, also as a share of this
// machine's measured peak. Rows have llama-bench's form and also exclude tokenizing and sampling.
#include <algorithm>
#include <chrono>
#include <set>

#include "base/error.h"
#include "base/threads.h"
#include "cli/bench/model.h"
#include "cli/bench/report.h"
#include "cli/options/commands.h"
#include "cli/terminal/terminal.h"
#include "model/config/kind.h"
#include "model/config/shards.h"
#include "model/devices/score.h"

namespace ingot {
namespace {

struct BenchOptions {
  BenchSubject subject;
  std::string output = "md";
  std::vector<int> n_prompt = {512}, n_gen = {128}, threads = {0}, depth = {0};
  int n_repeats = 5;
};

// One row: n tokens after `depth` earlier tokens, all at once (prefill) or one by one (decode).
struct Test {
  bool prefill = true;
  int n = 0;
  int depth = 0;
};

// Computes the logits of each step's last token, and waits for a step before starting the next step. This matches
// llama-bench and text generation, where the next token depends on the logits.
void feed(Ranks& runner, Lockstep& sequence, const std::vector<int32_t>& tokens, int n, int chunk) {
  for (int begin = 0; begin < n; begin += chunk) {
    const int n_step = std::min(chunk, n - begin);
    sequence.feed(std::span(tokens).subspan(begin, n_step), n_step - 1);
    if (chunk == 1) runner.backend().synchronize();
  }
}

double seconds_of(Ranks& runner, const Test& test, const std::vector<int32_t>& tokens) {
  Lockstep sequence(runner);
  const int chunk = runner.info().max_batch_tokens;
  feed(runner, sequence, tokens, test.depth, chunk);
  runner.backend().synchronize();  // the device may still be computing
  const auto start = std::chrono::steady_clock::now();
  feed(runner, sequence, tokens, test.n, test.prefill ? chunk : 1);
  runner.logits();  // waits for the device
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Operations for one prefilled token at a mean position: of the layers' matrices, and of attention.
double prefill_ops(const Ranks& runner, double kv_len) {
  const Config& c = runner.config();
  double ops = 0;
  for (int layer = 0; layer < c.n_layers; ++layer) {
    const LayerSizes sizes(c, layer);
    const Config& own = sizes;
    for (const PartKind* kind : parts_of(c, layer)) {
      if (kind->keeps_kv) ops += 4.0 * own.q_dim() * kv_len;
      std::set<Weight& (*)(void*)> seen;  // of several rows for one matrix, one exists
      for (const MatrixRow& row : kind->rows().matrices) {
        if (!applies(row, c, layer) || !seen.insert(row.member).second) continue;
        const int64_t count = row.count.used != nullptr ? row.count.used(own) : count_of(row, own);
        ops += 2.0 * count * size_of(row.n_out, own) * size_of(row.n_in, own);
      }
    }
  }
  return ops;
}

// "cuda"; "cuda x2" if two ranks share the model, "cuda, 2 stages" in a pipeline.
std::string backend_name(Ranks& runner) {
  std::string name = runner.backend().name();
  if (const auto& share = runner.config().share) name += fmt::format(" x{}", share->n_ranks);
  if (const int n = runner.info().n_stages; n > 1) name += fmt::format(", {} stages", n);
  return name;
}

BenchRow measure(Ranks& runner, const Test& test, int n_repeats, const Peak& peak) {
  const std::vector<int32_t> tokens = bench_tokens(static_cast<size_t>(test.n + test.depth), runner.info().n_vocab);
  seconds_of(runner, test.prefill ? test : Test{false, std::min(test.n, 4), test.depth}, tokens);  // warms up
  runner.backend().await_kernels();
  BenchRow row{.test = fmt::format("{}{}", test.prefill ? "pp" : "tg", test.n), .rates = {}};
  if (test.depth > 0) row.test += fmt::format(" @ d{}", test.depth);
  StatusLine status;
  for (int i = 0; i < n_repeats; ++i) {
    status.show(fmt::format("{}: {} of {}", row.test, i + 1, n_repeats));
    row.rates.push_back(test.n / seconds_of(runner, test, tokens));
  }
  const double kv_len = test.depth + test.n / 2.0;
  if (test.prefill) {
    row.achieved = row.mean() * prefill_ops(runner, kv_len) * 1e-9;
    row.unit = "GFLOP/s";
    row.peak = peak.matmul_gflop_s;
    row.peak_kind = peak.matmul_kind;
  } else {
    row.achieved = row.mean() * decode_bytes(runner, 1, kv_len) * 1e-9;
    row.unit = "GB/s";
    row.peak = peak.read_gb_s;
    row.peak_kind = "read";
  }
  return row;
}

void bench(BenchOptions& o) {
  std::vector<Test> tests;
  for (int depth : o.depth) {
    for (int n : o.n_prompt)
      if (n > 0) tests.push_back({true, n, depth});
    for (int n : o.n_gen)
      if (n > 0) tests.push_back({false, n, depth});
  }
  int n_ctx = 1;
  for (const Test& test : tests) n_ctx = std::max(n_ctx, test.n + test.depth);
  BenchReport report(o.output);
  for (int n_threads : o.threads) {
    InterruptGuard guard;
    RunnerOptions options = runner_options(o.subject.model);
    options.backend.n_threads = n_threads;
    options.n_ctx = n_ctx;
    const std::unique_ptr<Ranks> runner = load_bench_runner(o.subject, options);
    Peak peak;
    const BenchModel model = {.name = bench_name(*runner, o.subject),
                              .bytes = runner->weights().file_bytes,
                              .n_parameters = runner->weights().n_parameters,
                              .backend = backend_name(*runner),
                              .description = runner->description(),
                              .n_threads = runner->backend().n_threads()};
    report.begin(model);
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
  CLI::App* command = app.add_subcommand("bench", "Measure prefill and decode speed");
  add_bench_subject(*command, o->subject);
  command->add_option("-p,--n-prompt", o->n_prompt, "prompt lengths to measure, in tokens, such as 512,2048; 0: none")
      ->check(CLI::Range(0, 1 << 24))
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("-n,--n-gen", o->n_gen, "numbers of tokens to generate, such as 32,128; 0: none")
      ->check(CLI::Range(0, 1 << 24))
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("-d,--n-depth", o->depth, "numbers of tokens already in the context")
      ->check(CLI::Range(0, 1 << 24))
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("-r,--repetitions", o->n_repeats, "number of repetitions of each row")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("-t,--threads", o->threads, "numbers of threads to measure; 0: all cores")
      ->check(CLI::Range(0, kMaxThreads))
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("-o,--output", o->output, "output format: md, csv or json")
      ->check(CLI::IsMember({"md", "csv", "json"}))
      ->capture_default_str();
  command
      ->add_option("-b,--batch-size,--chunk", o->subject.model.chunk,
                   "maximum tokens per step; 0: 512 on the CPU, up to 2,048 on a GPU")
      ->check(CLI::Range(0, 1 << 16))
      ->capture_default_str();
  add_bench_batch(*command);
  add_bench_images(*command);
  add_bench_speech(*command);
  add_bench_engine(*command);
  add_bench_serve(*command);
  add_bench_machine(*command);
  add_bench_reduce(*command);
  add_bench_grammar(*command);
  add_bench_history(*command);
  command->footer(
      "Examples:\n  ingot bench model.gguf -p 512,2048 -n 128\n  ingot bench --shape llama-3.2-1b --type Q4_K -t 1,2 "
      "-o json\n"
      "  ingot bench batch model.gguf --npl 1,8,32      several sequences at once\n"
      "  ingot bench engine model.gguf --rate 10        requests at random times\n"
      "  ingot bench serve --url http://127.0.0.1:8080  a running server\n"
      "  ingot bench machine                            what memory and cores can do\n"
      "  ingot bench reduce --device cuda --tp 2        sums over several GPUs");
  command->callback([o, command] {
    if (command->get_subcommands().empty()) bench(*o);
  });
}

}  // namespace ingot
