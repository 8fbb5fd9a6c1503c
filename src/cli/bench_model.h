// The subject of a bench: a model, or a known shape with random weights.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cli/options.h"

namespace ingot {

struct BenchSubject {
  ModelOptions model;
  std::string shape, type = "Q4_0";
};

void add_bench_subject(CLI::App& command,
                       BenchSubject& subject);  // MODEL, --shape, --type, --device, --kv-type, --trace
std::string bench_name(const Ranks& runner, const BenchSubject& subject);

// `options` are those of runner_options(), changed as the bench needs.
std::unique_ptr<Ranks> load_bench_runner(const BenchSubject& subject, const RunnerOptions& options);

// The bytes that a step with one token for each sequence must read.
double decode_bytes(const Ranks& runner, int n_seqs, double kv_len);

// Other programs on the machine reduce a measured peak. So the peak is measured again before every row, and the best
// value counts.
void raise_peak(Peak& peak, Ranks& runner);

// The same tokens each time; every model has them.
std::vector<int32_t> bench_tokens(size_t n, int n_vocab);

// The value that a share p (0 to 1) of the values does not exceed; 0 if there are no values. Sorts the values.
double percentile(std::vector<double>& values, double p);

// Each function adds a command of `ingot bench`.
void add_bench_batch(CLI::App& bench);
void add_bench_engine(CLI::App& bench);
void add_bench_grammar(CLI::App& bench);
void add_bench_history(CLI::App& bench);
void add_bench_reduce(CLI::App& bench);
void add_bench_serve(CLI::App& bench);

}  // namespace ingot
