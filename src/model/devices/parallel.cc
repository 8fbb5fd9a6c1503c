#include "model/devices/parallel.h"

#include <algorithm>
#include <array>
#include <map>
#include <thread>

#include "backend/device_name.h"
#include "backend/thread_communicator.h"
#include "base/device_lost.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread_start.h"
#include "base/threads.h"
#include "model/config/shards.h"
#include "model/devices/message.h"
#include "model/devices/ranks.h"
#include "model/files/tensor_finder.h"

namespace ingot {

std::string rank_device(const RunnerOptions& options, int rank) {
  return backend_of_rank(options.backend, options.parallel, rank).device;
}

BackendOptions backend_of_rank(const BackendOptions& all, const ParallelOptions& parallel, int rank) {
  BackendOptions own = all;
  if (!parallel.devices.empty()) {
    own.device = parallel.devices[static_cast<size_t>(rank)];
  } else if (is_cuda(all.device)) {
    own.device = fmt::format("cuda:{}", cuda_index(all.device) + rank);
  }
  if (parallel.n_ranks > 1 && !is_cuda(own.device)) {
    const int n_threads = all.n_threads > 0 ? all.n_threads : default_threads();
    own.n_threads = std::max(1, n_threads / parallel.n_ranks);
  }
  return own;
}

namespace {

// How the ranks of this process communicate: about steps, and for the sums of each stage of a pipeline. Stages work at
// the same time, so each has its own.
struct Meetings {
  explicit Meetings(const RunnerOptions& options)
      : steps(std::make_shared<ThreadRanks>(options.parallel.n_ranks, options.parallel.limit)) {
    const std::string devices = rank_device(options, 0);
    const auto n_stages = std::ranges::count(devices, ',') + 1;
    for (int i = 0; n_stages > 1 && i < n_stages; ++i)
      of_stages.push_back(std::make_shared<ThreadRanks>(options.parallel.n_ranks, options.parallel.limit));
  }
  std::shared_ptr<ThreadRanks> steps;
  std::vector<std::shared_ptr<ThreadRanks>> of_stages;  // empty: one stage
};

// The options of one rank in this process.
RunnerOptions options_of(const RunnerOptions& all, const Meetings& meetings, int rank) {
  const int n = meetings.steps->size();
  RunnerOptions own = all;
  own.parallel.communicator = ThreadRanks::communicator(meetings.steps, rank);
  for (const auto& stage : meetings.of_stages)
    own.parallel.of_devices.push_back(ThreadRanks::communicator(stage, rank));
  own.parallel.ranks_of_host = n;
  own.backend = backend_of_rank(all.backend, all.parallel, rank);
  // Either all ranks trace ops or none, because a traced rank records no steps, and ranks record steps together.
  if (rank > 0 && !own.trace_ops) own.trace = nullptr;
  return own;
}

class FollowerThreads final : public Followers {
 public:
  FollowerThreads(const Meetings& meetings, const std::vector<Config>& configs, WeightSource& source,
                  const RunnerOptions& options)
      : runners_(configs.size()) {
    for (size_t r = 1; r < configs.size(); ++r) sources_.push_back(source.again());
    threads_.reserve(configs.size());
    try {
      for (size_t r = 1; r < configs.size(); ++r) {
        const RunnerOptions own = options_of(options, meetings, static_cast<int>(r));
        threads_.push_back(start_thread("a rank", [&] {
          return options.parallel.start([this, r, config = configs[r], own] { load_and_follow(r, config, own); });
        }));
      }
    } catch (...) {  // the ranks that have started wait for the others
      end_all_ranks(options_of(options, meetings, 0).parallel, std::current_exception());
      join();
      throw;
    }
  }
  ~FollowerThreads() override { join(); }

 private:
  void join() {
    for (std::thread& thread : threads_) thread.join();
  }

  // A runner lives until all threads have ended, because the others may read its memory.
  void load_and_follow(size_t r, const Config& config, const RunnerOptions& options) {
    try {
      runners_[r] = std::make_unique<Ranks>(config, std::move(sources_[r - 1]), options, nullptr);
      runners_[r]->run_as_follower();
    } catch (...) {
      end_all_ranks(options.parallel, std::current_exception());
      if (runners_[r]) runners_[r]->disconnect();
    }
  }

  std::vector<std::unique_ptr<WeightSource>> sources_;
  std::vector<std::unique_ptr<Ranks>> runners_;
  std::vector<std::thread> threads_;
};

// The rank of this process.
std::unique_ptr<Ranks> start_process(const Config& config, std::unique_ptr<WeightSource> source,
                                     const RunnerOptions& options, const LoadProgress& progress) {
  RunnerOptions of_rank = options;
  ParallelOptions& p = of_rank.parallel;
  const int n = p.n_of_stage();
  if (p.n_stages > 1) p.of_devices = {p.communicator->group(n)};
  if (n == 1) return std::make_unique<Ranks>(config, std::move(source), of_rank, progress);
  const int64_t block = largest_block(*source, config, p.whole_experts);
  const Config own = config_of_rank(config, p.communicator->rank() % n, n, block, p.whole_experts);
  return std::make_unique<Ranks>(own, std::move(source), of_rank, progress);
}

std::string shares_of(const std::vector<Config>& configs) {
  std::string text;
  for (const Config& c : configs) text += fmt::format("{}{}", text.empty() ? "" : ", ", c.n_heads);
  return text;
}

}  // namespace

std::unique_ptr<Ranks> start_ranks(const Config& config, std::unique_ptr<WeightSource> source,
                                   const RunnerOptions& options, const LoadProgress& progress) {
  const ParallelOptions& p = options.parallel;
  if ((p.communicator || p.n_ranks > 1) && (options.layers_on.asks() || !options.split.device.empty()))
    throw UsageError(
        "several ranks run the whole model on their devices: leave out the options that place layers or experts");
  if (p.communicator) return start_process(config, std::move(source), options, progress);
  if (p.n_ranks == 1) return std::make_unique<Ranks>(config, std::move(source), options, progress);
  std::vector<Config> configs;
  const int64_t block = largest_block(*source, config, p.whole_experts);
  for (int r = 0; r < p.n_ranks; ++r) configs.push_back(config_of_rank(config, r, p.n_ranks, block, p.whole_experts));
  log_info("{} ranks, with {} heads", p.n_ranks, shares_of(configs));
  const Meetings meetings(options);
  const RunnerOptions own = options_of(options, meetings, 0);
  auto followers = std::make_unique<FollowerThreads>(meetings, configs, *source, options);
  try {
    auto first = std::make_unique<Ranks>(configs[0], std::move(source), own, progress);
    first->take(std::move(followers));
    return first;
  } catch (...) {
    end_all_ranks(own.parallel, std::current_exception());
    throw;
  }
}

void end_all_ranks(const ParallelOptions& own, const std::exception_ptr& fault) {
  own.communicator->abort(fault);
  for (const auto& communicator : own.of_devices) communicator->abort(fault);
}

std::vector<std::vector<uint8_t>> exchange_messages(Communicator& ranks, std::span<const uint8_t> own) {
  const auto n_ranks = static_cast<size_t>(ranks.size());
  const uint64_t n = own.size();
  std::vector<uint64_t> lengths(n_ranks);
  ranks.exchange(lengths.data(), &n, sizeof(n));
  const size_t longest = *std::ranges::max_element(lengths);
  std::vector<uint8_t> padded(own.begin(), own.end()), all(n_ranks * longest);
  padded.resize(longest);
  if (longest > 0) ranks.exchange(all.data(), padded.data(), longest);
  std::vector<std::vector<uint8_t>> messages;
  for (size_t r = 0; r < n_ranks; ++r) {
    const auto first = all.begin() + static_cast<int64_t>(r * longest);
    messages.emplace_back(first, first + static_cast<int64_t>(lengths[r]));
  }
  return messages;
}

std::vector<std::string> unused_by_all(Communicator& ranks, const std::vector<std::string>& own) {
  MessageWriter names;
  names.add_one(own.size());
  for (const std::string& name : own) names.add(std::span<const char>(name));
  const auto messages = exchange_messages(ranks, names.bytes);
  if (ranks.rank() > 0) return {};
  std::map<std::string, int> n_ranks;  // that have not used the tensor
  for (const auto& message : messages) {
    MessageReader of_rank(message);
    for (auto n = of_rank.next_one<size_t>(); n > 0; --n) {
      const std::vector<char> name = of_rank.next<char>();
      ++n_ranks[std::string(name.begin(), name.end())];
    }
  }
  std::vector<std::string> unused;
  for (const auto& [name, n] : n_ranks)
    if (n == ranks.size()) unused.push_back(name);
  return unused;
}

void await_all(Communicator& ranks) {
  std::vector<char> all(static_cast<size_t>(ranks.size()));
  ranks.exchange(all.data(), "", 1);
}

void agree(Communicator& ranks, MemoryPlan& plan) {
  std::array<int, 5 + kMaxTables> own = {plan.n_ctx, plan.states.n_slots, plan.max_batch_tokens, plan.max_seqs,
                                         plan.limits.max_logits};
  for (size_t i = 0; i < plan.kv.size(); ++i) own[5 + i] = plan.kv[i].n_blocks;
  std::vector<std::array<int, own.size()>> all(static_cast<size_t>(ranks.size()));
  ranks.exchange(all.data(), own.data(), sizeof(own));
  std::array least = own;
  for (const auto& other : all)
    for (size_t i = 0; i < least.size(); ++i) least[i] = std::min(least[i], other[i]);
  plan.n_ctx = plan.limits.max_kv_len = least[0];
  plan.states.n_slots = least[1];
  plan.max_batch_tokens = plan.limits.max_tokens = least[2];
  plan.max_seqs = plan.limits.max_seqs = least[3];
  plan.limits.max_logits = least[4];
  for (size_t i = 0; i < plan.kv.size(); ++i) {
    plan.kv[i].n_blocks = least[5 + i];
    for (DevicePlan& device : plan.devices) device.kv[i].n_blocks = least[5 + i];
  }
  for (DevicePlan& device : plan.devices) device.states.n_slots = least[1];
}

}  // namespace ingot
