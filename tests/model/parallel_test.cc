// Several ranks in threads give the logits of one rank, for all golden models. Models that cannot be divided among
// ranks are refused.
#include "model/parallel.h"

#include <gmock/gmock.h>

#include <random>
#include <set>
#include <thread>

#include "backend/thread_communicator.h"
#include "base/device_lost.h"
#include "hf_models.h"
#include "model/rank_facts.h"
#include "model/shards.h"
#include "rank_models.h"
#include "test_seed.h"

namespace ingot {
namespace {

RunnerOptions options_for(const std::string& name, const std::string& device, int n_ranks) {
  return rank_options(name, device, n_ranks, /*whole_experts=*/false);
}

std::unique_ptr<Ranks> start(const fs::path& path, const std::string& device, int n_ranks) {
  return start_ranks_of(path, options_for(path.stem(), device, n_ranks));
}

class Parallel : public testing::TestWithParam<std::string> {};

// Experts of 32 columns, in blocks of 32.
bool has_small_experts(const std::string& name) { return name == "gpt_oss_mxfp4" || name == "qwen3moe_q8_0"; }

// Two ranks must meet the bound of the goldens of one rank; so must four if the model has enough heads.
TEST_P(Parallel, LogitsEqualTransformers) {
  const Golden golden = read_golden(GetParam());
  const fs::path path = kModels / (golden.name + ".gguf");
  for (const int n : {2, 4}) {
    std::unique_ptr<Ranks> runner;
    try {
      runner = start(path, "ref", n);
    } catch (const UsageError& error) {  // the model is too small
      EXPECT_THAT(error.what(),
                  testing::AnyOf(testing::HasSubstr("ranks are too many for golden " + golden.name + ": its"),
                                 testing::HasSubstr("ranks cannot share")));
      EXPECT_TRUE(n == 4 || has_small_experts(golden.name)) << error.what();
      continue;
    }
    EXPECT_LT(largest_difference(all_logits(*runner, golden.tokens, 512), golden.logits), 1e-4) << n;
    EXPECT_LT(largest_difference(all_logits(*runner, golden.tokens, 7), golden.logits), 1e-4) << n;
  }
}

// Like LogitsEqualTransformers, for ranks on the CPU, which has other kernels and fused steps that a rank does not use.
TEST_P(Parallel, CpuLogitsAreNearThoseOfOneRank) {
  const Golden golden = read_golden(GetParam());
  if (!keeps_activations(golden.name)) return;
  const auto runner = start(kModels / (golden.name + ".gguf"), "cpu", 2);
  for (const int chunk : {512, 1})
    EXPECT_LT(largest_difference(all_logits(*runner, golden.tokens, chunk), golden.logits), 1e-4) << chunk;
}

// Two stages, each divided between two ranks.
TEST_P(Parallel, StagesOfRanks) {
  const Golden golden = read_golden(GetParam());
  std::unique_ptr<Ranks> runner;
  try {
    runner = start_stages_of_ranks(golden.name, false);
  } catch (const UsageError& error) {  // the model is too small
    EXPECT_TRUE(has_small_experts(golden.name)) << error.what();
    return;
  }
  EXPECT_EQ(runner->info().n_stages, 2);
  for (const int chunk : {512, 7})
    EXPECT_LT(largest_difference(all_logits(*runner, golden.tokens, chunk), golden.logits), 1e-4) << chunk;
}

INSTANTIATE_TEST_SUITE_P(Models, Parallel, testing::ValuesIn(golden_names()), [](const auto& i) { return i.param; });

class HfParallel : public testing::TestWithParam<std::string> {};

// The tensors of Hugging Face checkpoints are divided at other positions.
TEST_P(HfParallel, LogitsEqualTransformers) {
  const Golden golden = read_golden(GetParam());
  const auto runner = start(kHfModels / golden.name, "ref", 2);
  EXPECT_LT(largest_difference(all_logits(*runner, golden.tokens, 512), golden.logits), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, HfParallel, testing::ValuesIn(hf_names()), [](const auto& i) { return i.param; });

// A communicator whose calls begin after random delays.
class Delayed final : public Communicator {
 public:
  Delayed(std::unique_ptr<Communicator> inner, unsigned seed) : inner_(std::move(inner)), random_(seed) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void all_reduce(float* x, int64_t n) override { delay(), inner_->all_reduce(x, n); }
  void all_gather(void* all, const void* own, size_t n) override { delay(), inner_->all_gather(all, own, n); }
  void exchange(void* all, const void* own, size_t n) override { delay(), inner_->exchange(all, own, n); }
  void send(std::span<const uint8_t> message) override { delay(), inner_->send(message); }
  std::vector<uint8_t> receive() override { return delay(), inner_->receive(); }
  void abort(std::exception_ptr fault) override { inner_->abort(std::move(fault)); }
  void check() override { inner_->check(); }
  std::chrono::milliseconds limit() const override { return inner_->limit(); }

 private:
  void delay() { std::this_thread::sleep_for(std::chrono::microseconds(random_() % 4 == 0 ? random_() % 500 : 0)); }
  std::unique_ptr<Communicator> inner_;
  std::mt19937 random_;
};

// Runs each rank as a process would, with its own communicators for steps and for the sums of each stage. `lead` runs
// in rank 0. Returns the ranks' errors.
std::vector<std::string> run_apart(
    const std::string& name, int n, const std::function<void(Ranks&)>& lead,
    const std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>& wrap, int n_stages = 1) {
  std::vector<std::shared_ptr<ThreadRanks>> ranks;  // for steps, then for each stage
  for (int i = 0; i < 1 + n_stages; ++i) ranks.push_back(std::make_shared<ThreadRanks>(n, std::chrono::seconds(10)));
  std::vector<std::string> errors(static_cast<size_t>(n));
  std::vector<std::unique_ptr<Ranks>> runners(static_cast<size_t>(n));
  std::vector<std::thread> threads;
  for (size_t r = 0; r < runners.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        RunnerOptions options = options_for(name, "ref", 1);
        options.parallel.communicator = ThreadRanks::communicator(ranks[0], static_cast<int>(r));
        for (int i = 1; i < 1 + n_stages; ++i)
          options.parallel.of_devices.push_back(wrap(ThreadRanks::communicator(ranks[i], static_cast<int>(r))));
        const auto checkpoint = open_checkpoint((kModels / (name + ".gguf")).string());
        if (n_stages > 1) {
          options.backend.device = "ref,ref";
          const int n_layers = checkpoint->config().n_layers;
          options.layers_on.layers_of_device = {n_layers / 2, n_layers - n_layers / 2};
        }
        runners[r] = start_ranks(checkpoint->config(), checkpoint->weights(), options, nullptr);
        r == 0 ? lead(*runners[r]) : runners[r]->run_as_follower();
        if (r == 0) runners[r].reset();
      } catch (const Error& error) {
        errors[r] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

class ParallelRun : public testing::TestWithParam<int> {};  // number of stages

TEST_P(ParallelRun, DelaysChangeNothing) {
  const Golden golden = read_golden("qwen35moe");  // experts, states and norms
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::vector<float> logits;
  const auto errors = run_apart(
      golden.name, 2, [&](Ranks& runner) { logits = all_logits(runner, golden.tokens, 5); },
      [&](auto inner) { return std::make_unique<Delayed>(std::move(inner), seed); }, GetParam());
  EXPECT_THAT(errors, testing::Each(""));
  EXPECT_EQ(logits, all_logits(*start(kModels / "qwen35moe.gguf", "ref", 2), golden.tokens, 5));
}

// A communicator that fails in its rank's n-th sum.
class Failing final : public Communicator {
 public:
  Failing(std::unique_ptr<Communicator> inner, int left) : inner_(std::move(inner)), left_(left) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void all_reduce(float* x, int64_t n) override {
    if (rank() == 1 && left_-- == 0) throw Error("the memory is full");
    inner_->all_reduce(x, n);
  }
  void all_gather(void* all, const void* own, size_t n) override { inner_->all_gather(all, own, n); }
  void exchange(void* all, const void* own, size_t n) override { inner_->exchange(all, own, n); }
  void send(std::span<const uint8_t> message) override { inner_->send(message); }
  std::vector<uint8_t> receive() override { return inner_->receive(); }
  void abort(std::exception_ptr fault) override { inner_->abort(std::move(fault)); }
  void check() override { inner_->check(); }
  std::chrono::milliseconds limit() const override { return inner_->limit(); }

 private:
  std::unique_ptr<Communicator> inner_;
  int left_;
};

TEST_P(ParallelRun, AFaultInAStepIsALostDeviceForAll) {
  const Golden golden = read_golden("llama");
  for (const int at : {0, 1, 3}) {
    bool is_lost = false;
    const auto errors = run_apart(
        golden.name, 2,
        [&](Ranks& runner) {
          try {
            all_logits(runner, golden.tokens, 4);
          } catch (const DeviceLost&) {
            is_lost = true;
            throw;
          }
        },
        [&](auto inner) { return std::make_unique<Failing>(std::move(inner), at); }, GetParam());
    EXPECT_TRUE(is_lost);
    EXPECT_THAT(errors, testing::Each("rank 1 of 2: the memory is full")) << at;
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, ParallelRun, testing::Values(1, 2),
                         [](const auto& i) { return std::to_string(i.param); });

// Ranks that choose different numbers of sequences use the smallest.
TEST(ParallelStart, RanksAgreeOnTheirSequences) {
  const auto ranks = std::make_shared<ThreadRanks>(3, std::chrono::seconds(10));
  const Config config = open_checkpoint((kModels / "llama.gguf").string())->config();
  std::vector<MemoryPlan> plans(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&, r] {
      const RunnerOptions options{.n_ctx = 64, .max_seqs = r == 1 ? 32 : 64, .spare_logits = 5};
      MemoryPlan& plan = plans[static_cast<size_t>(r)];
      plan = plan_memory(config, {}, size_t{1} << 30, options);
      agree(*ThreadRanks::communicator(ranks, r), plan);
    });
  for (std::thread& thread : threads) thread.join();
  for (const MemoryPlan& plan : plans) {
    EXPECT_EQ(plan.max_seqs, 32);
    EXPECT_EQ(plan.limits.max_seqs, 32);
    EXPECT_EQ(plan.limits.max_logits, 32 + 5);
  }
}

TEST(ParallelStart, RanksOnTheCpuChooseTheirSequences) {
  const auto checkpoint = open_checkpoint((kModels / "llama.gguf").string());
  RunnerOptions options = options_for("llama", "cpu", 2);
  options.max_seqs = 0;
  EXPECT_EQ(start_ranks(checkpoint->config(), checkpoint->weights(), options, nullptr)->info().max_seqs, 16);
}

// If a rank cannot load, the whole run reports its error.
TEST(ParallelStart, AFaultOfOneRankWhileLoading) {
  const auto checkpoint = open_checkpoint((kModels / "llama.gguf").string());
  RunnerOptions options = options_for("llama", "ref", 2);
  options.parallel.devices = {"ref", "nothing"};
  try {
    start_ranks(checkpoint->config(), checkpoint->weights(), options, nullptr);
    FAIL() << "was accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("unknown device 'nothing'"));
  }
}

TEST(RankFactsTest, RanksThatDifferAreRefusedByName) {
  const RankFacts same{.version = "1.0", .model = "abc", .options = "context 64", .place = "host a, process 7"};
  struct Case {
    RankFacts other;
    const char* error;
  } cases[] = {{same, ""},
               {{"1.1", "abc", "context 64", "host a, process 7"}, "rank 2 of 3 (host a, process 7) is ingot 1.1, and rank 0 is ingot 1.0"},
               {{"1.0", "xyz", "context 64", "host a, process 7"}, "rank 2 of 3 (host a, process 7) has another model file than rank 0"},
               {{"1.0", "abc", "context 65", "host a, process 7"}, "has other options than rank 0 (context 65, not context 64)"}};
  for (const Case& one : cases) {
    const auto ranks = std::make_shared<ThreadRanks>(3, std::chrono::seconds(10));
    std::vector<std::string> errors(3);
    std::vector<std::thread> threads;
    for (int r = 0; r < 3; ++r)
      threads.emplace_back([&, r] {
        const auto communicator = ThreadRanks::communicator(ranks, r);
        try {
          check_alike(*communicator, r == 2 ? one.other : same);
        } catch (const Error& error) {
          errors[static_cast<size_t>(r)] = error.what();
          communicator->abort(std::current_exception());
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(errors, testing::Each(testing::HasSubstr(one.error)));
    EXPECT_EQ(errors[0].empty(), std::string(one.error).empty());
  }
}

TEST(RankFactsTest, FingerprintsTellModelsApart) {
  std::set<std::string> all;
  for (const std::string& name : hf_names()) {
    const auto path = (kHfModels / name).string();
    EXPECT_TRUE(all.insert(fingerprint_of(*open_checkpoint(path))).second) << name;
    EXPECT_TRUE(all.insert(fingerprint_of(*open_checkpoint((kModels / (name + ".gguf")).string()))).second) << name;
    EXPECT_TRUE(all.contains(fingerprint_of(*open_checkpoint(path))));
  }
  const HfCopy copy("llama");  // one weight differs
  std::string bytes = copy.read("model.safetensors");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  copy.write("model.safetensors", bytes);
  EXPECT_FALSE(all.contains(fingerprint_of(*open_checkpoint(copy.path().string()))));
}

}  // namespace
}  // namespace ingot
