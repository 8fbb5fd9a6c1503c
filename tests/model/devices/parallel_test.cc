// Several ranks in threads give the logits of one rank, for all golden models. Models that cannot be divided among
// ranks are refused.
#include "model/devices/parallel.h"

#include <gmock/gmock.h>

#include <set>
#include <thread>

#include "backend/thread_communicator.h"
#include "model/hf_models.h"
#include "model/config/shards.h"
#include "model/devices/rank_facts.h"
#include "model/files/tensor_finder.h"
#include "model/program/decoder_program.h"
#include "model/rank_models.h"

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
  if (is_on_one_device(golden.name)) GTEST_SKIP() << "layers share keys or inputs";
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

// How many norms of a rank's layers are computed with the sum of the block before, and how many by their own block.
struct NormCount {
  int with_sum = 0, in_block = 0;
  bool operator==(const NormCount&) const = default;
};
NormCount norms_of(const std::string& name, int n_ranks) {
  const auto checkpoint = open_checkpoint((kModels / (name + ".gguf")).string());
  const Config whole = checkpoint->config();
  const auto source = checkpoint->weights();
  const Config config = n_ranks > 1 ? config_of_rank(whole, 0, n_ranks, largest_block(*source, whole)) : whole;
  const auto backend = create_backend({.device = "ref"});
  const Weights weights = load_weights(*source, config, *backend, nullptr);
  Program program = decoder_layers(config, weights, {}, backend.get(), 64);
  NormCount count;
  const void* next_norm = nullptr;
  program.for_each([&](Block& block) {
    if (const BlockPorts ports = block.ports(); ports.follows_sum != nullptr) {
      EXPECT_EQ(*ports.follows_sum, next_norm != nullptr);
      EXPECT_TRUE(!*ports.follows_sum || next_norm == ports.norm->weight.data);
      *ports.follows_sum ? ++count.with_sum : ++count.in_block;
    }
    const NormArgs* after = block.norm_after_sum();
    next_norm = after != nullptr ? after->weight.data : nullptr;
  });
  EXPECT_EQ(next_norm, nullptr) << "no block reads the norm of the last sum";
  return count;
}

TEST(ParallelStart, SumsComputeTheNextNorm) {
  EXPECT_EQ(norms_of("llama", 2), (NormCount{3, 1}));     // two layers
  EXPECT_EQ(norms_of("qwen3moe", 2), (NormCount{3, 1}));  // experts
  EXPECT_EQ(norms_of("llama", 1), (NormCount{0, 4}));     // no sums
  EXPECT_EQ(norms_of("gemma2", 2), (NormCount{0, 6}));    // three layers; the sum changes before it is added
}

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

// The ranks that have started end with an error, and so does the call.
TEST(ParallelStart, ARankWhoseThreadDoesNotStart) {
  for (int fails_at = 0; fails_at < 3; ++fails_at) {
    RunnerOptions options = rank_options("qwen2moe", "ref", 4, false);
    options.parallel.start = [n = 0, fails_at](std::function<void()> body) mutable {
      if (n++ == fails_at) throw std::system_error(EAGAIN, std::generic_category());
      return std::thread(std::move(body));
    };
    try {
      start_ranks_of(kModels / "qwen2moe.gguf", options);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("a rank could not be started")) << fails_at;
    }
  }
}

TEST(RankFactsTest, RanksThatDifferAreRefusedByName) {
  const RankFacts same{.version = "1.0", .model = "abc", .options = "context 64", .place = "host a, process 7"};
  struct Case {
    RankFacts other;
    const char* error;
  } cases[] = {{same, ""},
               {{"1.1", "abc", "context 64", "host a, process 7"},
                "rank 2 of 3 (host a, process 7) is ingot 1.1, and rank 0 is ingot 1.0"},
               {{"1.0", "xyz", "context 64", "host a, process 7"},
                "rank 2 of 3 (host a, process 7) has another model file than rank 0"},
               {{"1.0", "abc", "context 65", "host a, process 7"},
                "has other options than rank 0 (context 65, not context 64)"}};
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
