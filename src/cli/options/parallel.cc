#include "cli/options/parallel.h"

#include <algorithm>
#include <cstdlib>

#include "backend/backend.h"
#include "backend/device_name.h"
#include "base/error.h"
#include "base/threads.h"
#include "cli/mpi/processes.h"
#include "model/devices/device_spread.h"
#include "model/devices/rank_facts.h"
#include "model/devices/ranks.h"
#include "model/vectors/embedder.h"

namespace ingot {

void add_parallel_options(CLI::App& app, ParallelFlags& o) {
  app.add_option(
         "--tp,--tensor-parallel-size", o.tp,
         "number of tensor-parallel ranks; each rank computes a share of every layer on its own device: the GPUs from "
         "--device on, or a list such as --device cuda:0,cuda:2; with --device cpu, ranks share the cores")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_flag("--ep,--enable-expert-parallel", o.ep,
               "give each rank whole experts, not a part of every expert (with --tp, for mixtures of experts)");
  app.add_option("--rank-timeout", o.timeout_s,
                 "seconds without an answer before a rank counts as failed and all ranks end (with --tp or mpirun)")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
}

namespace {

// One rank of one stage for each process. The processes of a host get its GPUs in turn and share its cores.
void set_processes(const Processes& processes, const ParallelFlags& o, int n_stages,
                   const std::vector<std::string>& devices, RunnerOptions& runner) {
  const int size = processes.ranks->size();
  if (o.tp * n_stages != size)
    throw UsageError(
        "{} processes were started together, but --tp is {} and --pp is {}: use --tp {}, or --pp {}, or both so that "
        "their product is {}",
        size, o.tp, n_stages, size, size, size);
  if (static_cast<int>(devices.size()) > 1 && static_cast<int>(devices.size()) < processes.n_local)
    throw UsageError("{} processes run on this host, but --device names only {} devices: name one for each process",
                     processes.n_local, devices.size());
  std::string& device = runner.backend.device;
  if (devices.size() > 1) {
    device = devices[static_cast<size_t>(processes.local_rank)];
  } else if (is_cuda(device)) {
    device = fmt::format("cuda:{}", cuda_index(device) + processes.local_rank);
  } else if (runner.backend.n_threads == 0) {
    runner.backend.n_threads = std::max(1, default_threads() / processes.n_local);
  }
  runner.parallel.communicator = processes.ranks;
  runner.parallel.n_stages = n_stages;
  runner.parallel.ranks_of_host = processes.n_local;
}

}  // namespace

void set_parallel(const ParallelFlags& o, int n_stages, const std::string& named, RunnerOptions& runner) {
  const Processes* processes = started_together(std::chrono::seconds(o.timeout_s));
  const bool has_ranks = processes != nullptr || o.tp > 1;
  const std::string device = has_ranks ? chosen_device(named) : named;  // each rank needs its own GPU
  if (has_ranks) runner.backend.device = device;
  std::vector<std::string> devices = device_list(device);
  runner.parallel.limit = std::chrono::seconds(o.timeout_s);
  runner.parallel.n_ranks = o.tp;
  runner.parallel.whole_experts = o.ep;
  if (o.ep && o.tp == 1) throw UsageError("--ep divides the experts among the ranks of --tp: give --tp too");
  if (processes != nullptr) return set_processes(*processes, o, n_stages, devices, runner);
  if (o.tp == 1 && std::ssize(devices) != n_stages)
    throw UsageError(
        "--device names {} devices, but --pp is {}: the numbers must agree, as in --device cuda:0,cuda:1 --pp 2",
        devices.size(), n_stages);
  if (o.tp == 1) return;  // several devices share the layers (--pp)
  const auto n_wanted = static_cast<size_t>(o.tp * n_stages);
  if (devices.size() > 1 && devices.size() != n_wanted && n_stages == 1)
    throw UsageError("--device {} names {} devices, but --tp is {}: name one device for each rank", printable(device),
                     devices.size(), o.tp);
  if (devices.size() > 1 && devices.size() != n_wanted)
    throw UsageError(
        "--device {} names {} devices, but --tp is {} and --pp is {}: name one device for each rank of each stage",
        printable(device), devices.size(), o.tp, n_stages);
  spread_over_devices(device, o.tp, n_stages, runner);
}

void set_parallel(const ParallelFlags& o, const std::string& named, EmbedOptions& options) {
  if (started_together(std::chrono::seconds(o.timeout_s)) != nullptr)
    throw UsageError("a model that makes vectors runs in one process: start it without mpirun or srun, with --tp");
  RunnerOptions runner{.backend = options.backend};
  runner.backend.device = named;
  set_parallel(o, 1, named, runner);
  options.backend = runner.backend, options.parallel = runner.parallel;
}

bool is_follower() {
  const Processes* processes = started_together(ParallelOptions().limit);
  return processes != nullptr && processes->ranks->rank() > 0;
}

void meet_ranks(const std::string& model, const RunnerOptions& runner) {
  if (!runner.parallel.communicator) return;
  check_alike(*runner.parallel.communicator,
              {.version = INGOT_VERSION, .model = model, .options = options_text(runner), .place = process_place()});
}

void follow_first(Ranks& runner) {
  if (!is_follower()) return;
  runner.run_as_follower();
  end_processes(0);
  std::exit(0);
}

}  // namespace ingot
