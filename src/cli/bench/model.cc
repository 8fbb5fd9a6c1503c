#include "cli/bench/model.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "cli/terminal/terminal.h"
#include "model/config/kind.h"
#include "model/devices/rank_facts.h"
#include "model/files/load_quantizer.h"
#include "model/program/kv_caches.h"
#include "model/program/shapes.h"

namespace ingot {

void add_bench_subject(CLI::App& command, BenchSubject& o) {
  add_model_argument(command, o.model);
  command.add_option("--shape", o.shape, "use random weights of a known shape instead of a file: " + shape_names());
  command.add_option("--type", o.type, "format of the random weights (with --shape)")->capture_default_str();
  command.add_option("--device", o.model.device, "device to compute on: cpu, cuda, cuda:1 (the second GPU) or ref")
      ->capture_default_str();
  add_quantize_option(command, o.model);
  add_gpu_memory_option(command, o.model);
  add_split_options(command, o.model.split);
  add_parallel_options(command, o.model.parallel);
  add_kernels_option(command, o.model);
  add_weights_option(command, o.model);
  command
      .add_option("--kv-type,--cache-type", o.model.kv_type,
                  "type of the KV cache: f16, bf16, f32, fp8, q8_0, q8_0/q4_0 (keys/values) or q4_0")
      ->capture_default_str();
  command.add_option("--block-size", o.model.block_size, "number of tokens in a block of the KV cache")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  add_trace_options(command, o.model);
  add_log_option(command, o.model);
}

std::unique_ptr<Ranks> load_bench_runner(const BenchSubject& o, const RunnerOptions& options) {
  if (!o.model.path.empty() && !o.shape.empty()) throw UsageError("give either a model file or --shape, not both");
  const auto checkpoint = o.shape.empty() ? open_model_file(o.model) : nullptr;  // may download the model first
  if (options.parallel.communicator)
    meet_ranks(checkpoint ? fingerprint_of(*checkpoint) : o.shape + " " + o.type, options);
  ProgressBar bar("loading");
  const LoadProgress progress = [&](size_t done, size_t total) { bar.update(done, total); };
  std::unique_ptr<Ranks> runner;
  if (checkpoint) {
    runner = load_model(checkpoint, options, progress).runner;
    follow_first(*runner);
    return runner;
  }
  const std::optional<Format> format = format_from_name(o.type);
  if (!format) throw UsageError("unknown type '{}': use one such as F16, Q8_0, Q4_0 or Q4_K", printable(o.type));
  const Config config = config_of_shape(o.shape);
  runner = start_ranks(config, quantized_source(dummy_source(config, *format, 1), config, options.quantize), options,
                       progress);
  follow_first(*runner);
  return runner;
}

// The format of the model's largest matrix.
static Format format_of(const Ranks& runner) {
  const std::vector<const Weight*> all = layer_matrices(runner.weights(), runner.config());
  const auto size_of = [](const Weight* w) { return w->n_experts * w->n_out * w->n_in; };
  const auto largest = std::ranges::max_element(all, {}, size_of);
  return largest == all.end() ? Format::F32 : (*largest)->format;
}

std::string bench_name(const Ranks& runner, const BenchSubject& o) {
  const std::string name = printable(runner.config().name.empty() ? "model" : runner.config().name);
  const std::string type = o.shape.empty() ? info(format_of(runner)).name : o.type;
  return name + " " + type + (o.model.quantize.empty() || o.shape.empty() ? "" : " as " + o.model.quantize);
}

double decode_bytes(const Ranks& runner, int n_seqs, double kv_len) {
  const Config& c = runner.config();
  const std::vector<KvCacheKind> kinds = kv_caches(c);
  double read = 0;  // by a sequence in all layers
  for (int i = 0; i < c.n_layers; ++i)
    for (const PartKind* kind : parts_of(c, i)) {
      if (!kind->keeps_kv) continue;
      const KvShape& cache = runner.memory().kv[static_cast<size_t>(kv_cache_of(c, kinds, i, *kind))];
      const int window = c.layer(i).window;
      const double n_tokens = window > 0 ? std::min<double>(kv_len, window) : kv_len;
      read += n_tokens * static_cast<double>(cache.token_bytes()) / cache.n_layers;
    }
  return bytes_of_step(runner.weights(), c.experts, n_seqs) + n_seqs * read;
}

void raise_peak(Peak& peak, Ranks& runner) {
  const Peak now = runner.backend().measure_peak(format_of(runner));
  peak = {std::max(peak.read_gb_s, now.read_gb_s), std::max(peak.matmul_gflop_s, now.matmul_gflop_s), now.matmul_kind};
}

std::vector<int32_t> bench_tokens(size_t n, int n_vocab) {
  std::vector<int32_t> tokens(n);
  for (size_t i = 0; i < n; ++i) tokens[i] = static_cast<int32_t>((i * 7919 + 1) % static_cast<size_t>(n_vocab));
  return tokens;
}

double percentile(std::vector<double>& values, double p) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double place = std::ceil(p * static_cast<double>(values.size())) - 1;
  return values[static_cast<size_t>(std::clamp(place, 0.0, static_cast<double>(values.size() - 1)))];
}

}  // namespace ingot
