// Several ranks run one model: each computes its share of every layer (shards.h) on its own device. Rank 0 has the
// engine. It sends each batch to the others, which run the same program. The ranks are threads of this process, or
// processes that were started together (a Communicator of the options). Processes may also be the stages of a pipeline:
// each has some of the layers, or a share of each of them.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/communicator.h"
#include "base/thread_start.h"

namespace ingot {

class Ranks;
class WeightSource;
struct BackendOptions;
struct Config;
struct MemoryPlan;
struct RunnerOptions;

struct ParallelOptions {
  int n_ranks = 1;             // threads of this process
  bool whole_experts = false;  // each rank has some of the experts, not a part of every expert
  // Of each rank; a list with commas if the rank's layers are stages of a pipeline. Empty: BackendOptions::device, and
  // the GPUs after it.
  std::vector<std::string> devices;
  // A rank has failed if others wait for it longer.
  std::chrono::milliseconds limit{10'000};

  std::shared_ptr<Communicator> communicator;  // of this rank
  // With a communicator: the ranks are the stages of a pipeline, or this many groups of ranks. The ranks of a group
  // share each layer of their stage.
  int n_stages = 1;
  int n_of_stage() const { return communicator->size() / n_stages; }
  int stage() const { return communicator->rank() / n_of_stage(); }
  std::vector<std::shared_ptr<Communicator>> of_devices;  // of this rank's devices, for sums; empty: communicator
  int ranks_of_host = 1;                                  // how many share this host's memory
  ThreadStarter start = start_std_thread;                 // of ranks that are threads
};

// Loads a model for one rank or for several. If the ranks are processes, each calls this function.
std::unique_ptr<Ranks> start_ranks(const Config& config, std::unique_ptr<WeightSource> source,
                                   const RunnerOptions& options,
                                   const std::function<void(size_t done, size_t total)>& progress);

// The device of a rank of this process, or the list of its devices.
std::string rank_device(const RunnerOptions& options, int rank);
// The options of the backend of a rank of this process. Ranks on the CPU share the cores.
BackendOptions backend_of_rank(const BackendOptions& all, const ParallelOptions& parallel, int rank);

// The ranks of one model that run in threads of this process, except rank 0. Ends and joins them when destroyed.
class Followers {
 public:
  virtual ~Followers() = default;
};

// Makes the current and later calls of all ranks throw this fault. `own`: of one rank.
void end_all_ranks(const ParallelOptions& own, const std::exception_ptr& fault);
// Reduces the plan to the numbers that fit on every rank.
void agree(Communicator& ranks, MemoryPlan& plan);
// The messages of all ranks, which may differ in length.
std::vector<std::vector<uint8_t>> exchange_messages(Communicator& ranks, std::span<const uint8_t> own);
// On rank 0: the tensors that no rank has used. `own`: those that this rank has not used.
std::vector<std::string> unused_by_all(Communicator& ranks, const std::vector<std::string>& own);
// Returns when all ranks have called it. From then on, ranks wait for each other only for a limited time.
void await_all(Communicator& ranks);

}  // namespace ingot
