// What the benches measure: a model, or a known shape with random weights.
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

void add_bench_subject(CLI::App& verb, BenchSubject& subject);  // MODEL, --shape, --type, --device, --kv-type, --trace
std::string bench_name(const Ranks& runner, const BenchSubject& subject);

// Options as runner_options() makes them, changed as the bench needs it.
std::unique_ptr<Ranks> load_bench_runner(const BenchSubject& subject, const RunnerOptions& options);

// Bytes that a step of one token for each sequence must read.
double decode_bytes(const Ranks& runner, int n_seqs, double kv_len);

// Others on the machine take from what a measurement finds: so it is made again before every row, and the best one
// counts.
void raise_peak(Peak& peak, Ranks& runner);

// Tokens that any model has, the same each time.
std::vector<int32_t> bench_tokens(size_t n, int n_vocab);

// p of 0 to 1: the value that this share of them does not exceed; 0 when there are none. Sorts.
double percentile(std::vector<double>& values, double p);

// Each a verb of `ingot bench`.
void add_bench_batch(CLI::App& bench);
void add_bench_engine(CLI::App& bench);
void add_bench_grammar(CLI::App& bench);
void add_bench_serve(CLI::App& bench);

}  // namespace ingot
