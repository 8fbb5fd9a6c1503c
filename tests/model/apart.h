// Ranks as processes have them: each in a thread, with its own communicators.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backend/thread_communicator.h"
#include "base/error.h"
#include "model/devices/ranks.h"

namespace ingot {

// n_ranks in all. Stages are groups of ranks, as processes are, or devices of each rank.
struct Layout {
  int n_ranks = 2, n_stages = 1;
  bool stages_in_rank = false;
  int n_of_layer() const { return stages_in_rank ? n_ranks : n_ranks / n_stages; }  // ranks that share a layer
  std::string name() const {
    return "ranks" + std::to_string(n_ranks) + "_stages" + std::to_string(n_stages) + (stages_in_rank ? "_within" : "");
  }
};

using WrapCommunicator = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>;

// The options of each rank. `wrap` may replace the communicators that ranks use in a step.
inline std::vector<ParallelOptions> options_of_ranks(const Layout& layout, const WrapCommunicator& wrap = {}) {
  const auto meeting = [&] { return std::make_shared<ThreadRanks>(layout.n_ranks, std::chrono::seconds(10)); };
  const auto wrapped = [&](std::unique_ptr<Communicator> one) { return wrap ? wrap(std::move(one)) : std::move(one); };
  const auto steps = meeting();
  std::vector<std::shared_ptr<ThreadRanks>> of_devices;
  for (int i = 0; layout.stages_in_rank && i < layout.n_stages; ++i) of_devices.push_back(meeting());
  std::vector<ParallelOptions> all(static_cast<size_t>(layout.n_ranks));
  for (int r = 0; r < layout.n_ranks; ++r) {
    ParallelOptions& own = all[static_cast<size_t>(r)];
    own.communicator = wrapped(ThreadRanks::communicator(steps, r));
    if (!layout.stages_in_rank) own.n_stages = layout.n_stages;
    for (const auto& one : of_devices) own.of_devices.push_back(wrapped(ThreadRanks::communicator(one, r)));
  }
  return all;
}

// The first stages have the fewer layers.
inline std::vector<int> even_layers(int n_layers, int n_stages) {
  std::vector<int> layers;
  for (int s = 0; s < n_stages; ++s) layers.push_back((s + 1) * n_layers / n_stages - s * n_layers / n_stages);
  return layers;
}

// Sets the stages of an even split.
inline void set_stages(RunnerOptions& options, const Layout& layout, int n_layers) {
  if (layout.n_stages == 1) return;
  options.layers_on.layers_of_device = even_layers(n_layers, layout.n_stages);
  const std::string device = options.backend.device;
  for (int i = 1; layout.stages_in_rank && i < layout.n_stages; ++i) options.backend.device += "," + device;
}

// Loads each rank with `load`, then runs `lead` with rank 0. As in processes, an error of one rank ends all. Returns
// the ranks' errors.
inline std::vector<std::string> run_apart(const std::vector<ParallelOptions>& ranks,
                                          const std::function<std::unique_ptr<Ranks>(const ParallelOptions&)>& load,
                                          const std::function<void(Ranks&)>& lead) {
  std::vector<std::string> errors(ranks.size());
  std::vector<std::unique_ptr<Ranks>> runners(ranks.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        runners[r] = load(ranks[r]);
        r == 0 ? lead(*runners[r]) : runners[r]->run_as_follower();
        if (r == 0) runners[r].reset();
      } catch (const Error& error) {
        errors[r] = error.what();
        end_all_ranks(ranks[r], std::current_exception());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace ingot
