// The flags that run one model on several devices or in several processes started by mpirun or srun.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace ingot {

class Ranks;
struct EmbedOptions;
struct RunnerOptions;

struct ParallelFlags {
  int tp = 1;
  bool ep = false;
  int timeout_s = 10;
};

void add_parallel_options(CLI::App& app, ParallelFlags& flags);

// Throws UsageError if the flags contradict each other. n_stages: the value of --pp. `named`: the value of --device.
void set_parallel(const ParallelFlags& flags, int n_stages, const std::string& named, RunnerOptions& runner);
// The same for a model that makes vectors: ranks in this process.
void set_parallel(const ParallelFlags& flags, const std::string& named, EmbedOptions& options);

// True for every process started by mpirun except the first.
bool is_follower();
// Call before a model is loaded. Throws Error unless all processes have the same program, model and options. `model`:
// fingerprint_of, or the name of a shape.
void meet_ranks(const std::string& model, const RunnerOptions& runner);
// Call after a model is loaded. A follower runs the batches of the first process until that process ends, then exits.
void follow_first(Ranks& runner);

}  // namespace ingot
