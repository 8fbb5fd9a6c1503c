// The model to measure: a model file, or a known shape with random weights.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cli/options/options.h"

namespace ingot {

struct BenchSubject {
  ModelOptions model;
  std::string shape, type = "Q4_0";
};

void add_bench_subject(CLI::App& command,
                       BenchSubject& subject);  // MODEL, --shape, --type, --device, --kv-type, --trace
std::string bench_name(const Ranks& runner, const BenchSubject& subject);

// `options`: the result of runner_options(), adapted to the benchmark.
std::unique_ptr<Ranks> load_bench_runner(const BenchSubject& subject, const RunnerOptions& options);

// The bytes that a decode step with one token for each sequence must read. Experts: see bytes_of_step().
double decode_bytes(const Ranks& runner, int n_seqs, double kv_len);

// Measures the peak again and keeps the larger value. Called before every row, because other programs on the machine
// may have reduced an earlier measurement.
void raise_peak(Peak& peak, Ranks& runner);

// The same tokens each time, with ids that every model has.
std::vector<int32_t> bench_tokens(size_t n, int n_vocab);

// The p-quantile (0 to 1) of the values; 0 if there are no values. Sorts the values.
double percentile(std::vector<double>& values, double p);

// Each function adds a command of `ingot bench`.
void add_bench_batch(CLI::App& bench);
void add_bench_engine(CLI::App& bench);
void add_bench_grammar(CLI::App& bench);
void add_bench_history(CLI::App& bench);
void add_bench_images(CLI::App& bench);
void add_bench_machine(CLI::App& bench);
void add_bench_reduce(CLI::App& bench);
void add_bench_serve(CLI::App& bench);
void add_bench_speech(CLI::App& bench);

}  // namespace ingot
