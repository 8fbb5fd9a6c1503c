// ingot bench batch: prefill and decode of several sequences at once. Rows are as in llama.cpp's batched-bench: B
// prompts of PP tokens, then TG tokens for each prompt. "TG read" is the bandwidth of reading weights and KV cache, as
// a share of this machine's measured read bandwidth. Measures only the model; `ingot bench engine` includes the engine.
#include <fmt/format.h>

#include <chrono>

#include "base/error.h"
#include "base/json.h"
#include "base/threads.h"
#include "cli/bench/model.h"
#include "cli/terminal/terminal.h"
#include "model/devices/score.h"

namespace ingot {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct BatchOptions {
  BenchSubject subject;
  std::vector<int> n_prompt = {128, 512}, n_gen = {128}, n_seqs = {1, 8, 32};
  bool empty_prompts = false;  // run only the first token of a prompt
  bool json = false;
};

struct BatchRow {
  int n_prompt, n_gen, n_seqs;
  double prefill_s = 0, decode_s = 0;
  double read_share = 0;  // in decode: bytes read a second / the machine's peak; 0: unknown
  int n_kv() const { return n_seqs * (n_prompt + n_gen); }
  double prefill_rate() const { return prefill_s > 0 ? n_seqs * n_prompt / prefill_s : 0; }
  double decode_rate() const { return decode_s > 0 ? n_seqs * n_gen / decode_s : 0; }
};

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

// In generation, the next token depends on the logits, so each step waits for the previous step.
BatchRow measure(Ranks& runner, BatchRow row, double read_gb_s, bool empty_prompts) {
  const std::vector<int32_t> tokens = bench_tokens(static_cast<size_t>(row.n_kv()), runner.info().n_vocab);
  Lockstep sequences(runner, row.n_seqs);
  const int chunk = std::max(1, runner.info().max_batch_tokens / row.n_seqs);
  const int n_run = empty_prompts ? 1 : row.n_prompt;
  auto start = SteadyClock::now();
  for (int begin = 0; begin < n_run; begin += chunk) {
    const int n = std::min(chunk, n_run - begin);
    sequences.feed(std::span(tokens).first(static_cast<size_t>(n) * row.n_seqs), begin + n == n_run ? n - 1 : n);
  }
  runner.backend().synchronize();
  if (!empty_prompts) row.prefill_s = seconds_since(start);
  sequences.skip(row.n_prompt - n_run);
  start = SteadyClock::now();
  for (int i = 0; i < row.n_gen; ++i) {
    sequences.feed(std::span(tokens).subspan(static_cast<size_t>(i) * row.n_seqs, row.n_seqs), 0);
    runner.backend().synchronize();
  }
  row.decode_s = seconds_since(start);
  const double bytes = row.n_gen * decode_bytes(runner, row.n_seqs, row.n_prompt + row.n_gen / 2.0);
  if (read_gb_s > 0) row.read_share = bytes * 1e-9 / row.decode_s / read_gb_s;
  return row;
}

void print(const BatchRow& r) {
  const double total = r.prefill_s + r.decode_s;
  fmt::print("| {:5} | {:5} | {:4} | {:6} | {:8.3f} | {:9.2f} | {:8.3f} | {:9.2f} | {:8.3f} | {:9.2f} | {} |\n",
             r.n_prompt, r.n_gen, r.n_seqs, r.n_kv(), r.prefill_s, r.prefill_rate(), r.decode_s, r.decode_rate(), total,
             r.n_kv() / total, r.read_share > 0 ? fmt::format("{:7.0f}%", 100 * r.read_share) : "       ?");
  std::fflush(stdout);
}

nlohmann::ordered_json to_json(const BatchRow& r) {
  return {{"pp", r.n_prompt},
          {"tg", r.n_gen},
          {"pl", r.n_seqs},
          {"n_kv", r.n_kv()},
          {"t_pp", r.prefill_s},
          {"speed_pp", r.prefill_rate()},
          {"t_tg", r.decode_s},
          {"speed_tg", r.decode_rate()},
          {"t", r.prefill_s + r.decode_s},
          {"speed", r.n_kv() / (r.prefill_s + r.decode_s)},
          {"read_share", r.read_share}};
}

void bench_batch(BatchOptions& o) {
  std::vector<BatchRow> rows;
  int n_ctx = 1, max_seqs = 1;
  int64_t n_kv_tokens = 1;
  for (const int n_prompt : o.n_prompt) {
    for (const int n_gen : o.n_gen) {
      for (const int n_seqs : o.n_seqs) {
        const int n = n_prompt + n_gen, block = o.subject.model.block_size;
        rows.push_back({n_prompt, n_gen, n_seqs});
        n_ctx = std::max(n_ctx, n);
        max_seqs = std::max(max_seqs, n_seqs);
        n_kv_tokens = std::max<int64_t>(n_kv_tokens, int64_t{n_seqs} * ((n + block - 1) / block * block));
      }
    }
  }
  if (n_kv_tokens > 1 << 30)
    throw UsageError("{} tokens of context in all are too many: use a smaller --npp, --ntg or --npl", n_kv_tokens);
  InterruptGuard guard;
  RunnerOptions options = runner_options(o.subject.model);
  options.n_ctx = n_ctx;
  options.max_seqs = max_seqs;
  if (options.max_batch_tokens > 0) options.max_batch_tokens = std::max(options.max_batch_tokens, max_seqs);
  options.n_kv_tokens = static_cast<int>(n_kv_tokens);
  const std::unique_ptr<Ranks> runner = load_bench_runner(o.subject, options);
  if (!o.json) {
    fmt::print("{}; {}; steps of at most {} tokens\n\n", bench_name(*runner, o.subject),
               runner->description(), runner->info().max_batch_tokens);
    fmt::print(
        "|    PP |    TG |    B |   N_KV |   T_PP s |  S_PP t/s |   T_TG s |  S_TG t/s |      T s |     S t/s |  TG "
        "read |\n"
        "|-------|-------|------|--------|----------|-----------|----------|-----------|----------|-----------|--------"
        "--|\n");
  }
  const int n_warm = std::min(16, n_ctx - 1), n_warm_gen = std::min(2, n_ctx - n_warm);
  measure(*runner, {n_warm, n_warm_gen, 1}, 0, false);  // warms up
  Peak peak;
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const BatchRow& row : rows) {
    if (InterruptGuard::interrupted()) throw Error("interrupted");
    measure(*runner, {n_warm, n_warm_gen, row.n_seqs}, 0, false);  // compiles the kernels for this number of rows
    runner->backend().await_kernels();
    raise_peak(peak, *runner);
    const BatchRow measured = measure(*runner, row, peak.read_gb_s, o.empty_prompts);
    o.json ? json.push_back(to_json(measured)) : print(measured);
  }
  if (o.json) fmt::print("{}\n", json.dump(2));
}

}  // namespace

void add_bench_batch(CLI::App& bench) {
  auto o = std::make_shared<BatchOptions>();
  CLI::App* command = bench.add_subcommand("batch", "Measure prefill and decode of several sequences at once");
  add_bench_subject(*command, o->subject);
  const auto counts = [&](const char* names, std::vector<int>& values, int least, const char* text) {
    command->add_option(names, values, text)->check(CLI::Range(least, 1 << 24))->delimiter(',')->capture_default_str();
  };
  counts("--npp,-p", o->n_prompt, 1, "prompt lengths to measure, in tokens");
  counts("--ntg,-n", o->n_gen, 1, "numbers of tokens to generate for each prompt");
  counts("--npl,--parallel", o->n_seqs, 1, "numbers of sequences at once");
  command->add_option("-t,--threads", o->subject.model.n_threads, "number of threads; 0: all cores")
      ->check(CLI::Range(0, kMaxThreads))
      ->capture_default_str();
  command
      ->add_option("-b,--batch-size,--max-batch-tokens", o->subject.model.chunk,
                   "maximum tokens per step; 0: 512 on the CPU, up to 2,048 on a GPU")
      ->check(CLI::Range(0, 1 << 16))
      ->capture_default_str();
  command->add_flag(
      "--empty-prompts", o->empty_prompts,
      "compute only the first token of each prompt and fill the cache with zeros, to measure decode at great depth");
  command->add_flag("--json", o->json, "print JSON with the keys of llama.cpp's batched-bench");
  command->footer(
      "Examples:\n  ingot bench batch model.gguf --npp 128,512 --ntg 128 --npl 1,8,32\n"
      "  ingot bench batch model.gguf --empty-prompts --npp 1,32768 --ntg 24 --npl 1,16");
  command->callback([o] { bench_batch(*o); });
}

}  // namespace ingot
