// The flags that run one model on several devices, and the processes that mpirun or srun started for it.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace ingot {

class Ranks;
struct RunnerOptions;

struct ParallelFlags {
  int tp = 1;
  int timeout_s = 10;
};

void add_parallel_options(CLI::App& app, ParallelFlags& flags);

// Splits a list of devices, such as cuda:0,cuda:2.
std::vector<std::string> device_list(const std::string& devices);

// Throws UsageError if the flags do not fit each other. `device`: what --device says.
void set_parallel(const ParallelFlags& flags, const std::string& device, RunnerOptions& runner);

// True for all processes that mpirun started except the first: such a process only follows.
bool is_follower();
// Before a model is loaded: throws Error unless all processes have the same program, model and options. The model:
// fingerprint_of, or the name of a shape.
void meet_ranks(const std::string& model, const RunnerOptions& runner);
// After a model is loaded. In a follower: runs the batches of the first process until it ends, and ends this process.
void follow_first(Ranks& runner);

}  // namespace ingot
