// Faults of a GPU. Without enough memory, the load or the requests of a step fail, and the engine works afterwards. A
// bad access in a kernel ends the engine, because the driver then refuses all calls of this process. Skipped if the
// build has no CUDA or the machine has no GPU.
#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/cuda/create_cuda.h"
#include "base/device_lost.h"
#include "base/error.h"
#include "tiny_models.h"

namespace ingot {
namespace {

constexpr const char* kModel = "qwen3";

std::unique_ptr<Ranks> load_on_gpu() {
  const auto file = std::make_shared<const Gguf>(Gguf::open(path_of(std::string(kModel) + ".gguf")));
  return std::make_unique<Ranks>(
      config_from_gguf(*file), gguf_source(file),
      RunnerOptions{.backend = {.device = "cuda"}, .n_ctx = 256, .max_batch_tokens = 128, .max_seqs = 4}, nullptr);
}

// Requests for all kinds of sampling, so that all buffers grow: greedy, random, with penalties and log-probabilities,
// on the host.
std::vector<std::shared_ptr<Collector>> submit_all_kinds(Engine& engine, const GreedyGolden& golden) {
  std::vector<std::shared_ptr<Collector>> sinks{submit(engine, golden.prompt, 12)};
  for (const SamplingParams& params :
       {SamplingParams{.temperature = 1, .seed = 1},
        SamplingParams{.temperature = 1, .repetition_penalty = 1.2f, .seed = 2, .n_logprobs = 5},
        SamplingParams{.temperature = 1, .typical_p = 0.9f, .seed = 3}}) {
    sinks.push_back(std::make_shared<Collector>());
    engine.submit(
        {.prompt = golden.prompt, .sampling = params, .max_tokens = 12, .ignore_eos = true, .sink = sinks.back()});
  }
  return sinks;
}

class CudaFaults : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_device("cuda")) GTEST_SKIP() << "no GPU";
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a separate process for each permanent fault
  }
  void TearDown() override {
    cuda::fail_allocation(-1);
    cuda::fail_recordings(0);
  }

  // Expects the model's answers to equal those of transformers.
  void expect_well(Ranks& runner) {
    Engine engine(runner);
    const auto sink = submit(engine, golden_.prompt, static_cast<int>(golden_.greedy.size()));
    run(engine);
    EXPECT_EQ(sink->tokens, golden_.greedy);
    EXPECT_TRUE(sink->finish && sink->finish->reason == FinishReason::kLength);
  }

  const GreedyGolden golden_{kModel};
};

TEST_F(CudaFaults, AnAllocationThatFailsCostsTheLoad) {
  constexpr int kMany = 1 << 20, kPoints = 20;
  cuda::fail_allocation(kMany);
  load_on_gpu();
  const int n = kMany - cuda::allocations_left();
  ASSERT_GT(n, kPoints);
  for (int i = 0; i < kPoints; ++i) {
    cuda::fail_allocation(i * n / kPoints);
    EXPECT_THROW(load_on_gpu(), Error) << "allocation " << i * n / kPoints << " of " << n;
    EXPECT_EQ(cuda::allocations_left(), -1);
  }
  expect_well(*load_on_gpu());
}

TEST_F(CudaFaults, AnAllocationThatFailsCostsAStepsRequests) {
  int n_failed = 0;
  for (int at = 0;; ++at) {
    const auto runner = load_on_gpu();
    cuda::fail_allocation(at);
    {
      Engine engine(*runner);
      const auto sinks = submit_all_kinds(engine, golden_);
      run(engine);
      for (const auto& sink : sinks) {
        ASSERT_TRUE(sink->finish);
        n_failed += sink->finish->reason == FinishReason::kError;
      }
      EXPECT_FALSE(engine.lost_device());
    }
    const bool reached = cuda::allocations_left() == -1;
    cuda::fail_allocation(-1);
    expect_well(*runner);
    if (!reached || HasFailure()) break;
  }
  EXPECT_GT(n_failed, 0);
}

// All steps then run op by op.
TEST_F(CudaFaults, RecordingsThatFailAtLoadCostOnlyTime) {
  constexpr int kMany = 1 << 20;
  cuda::fail_recordings(kMany);
  const auto runner = load_on_gpu();
  EXPECT_LT(cuda::failing_recordings(), kMany);
  for (int i = 0; i < 2; ++i) expect_well(*runner);
}

// Steps of several tokens run first and are recorded then, so the step that cannot be recorded has its results.
TEST_F(CudaFaults, ARecordingThatFailsCostsNoRequest) {
  const auto answers = [&](bool fails) {
    const auto runner = load_on_gpu();
    cuda::fail_recordings(fails ? 1 : 0);
    std::vector<std::vector<int32_t>> all;
    for (int i = 0; i < 3; ++i) {
      Engine engine(*runner);
      const std::vector<int32_t> prompt(golden_.prompt.begin() + i, golden_.prompt.begin() + i + 3);
      const auto sink = submit(engine, prompt, 8);
      run(engine);
      EXPECT_TRUE(sink->finish && sink->finish->reason == FinishReason::kLength);
      all.push_back(sink->tokens);
    }
    EXPECT_EQ(cuda::failing_recordings(), 0) << "the step is recordable";
    return all;
  };
  EXPECT_EQ(answers(true), answers(false));
}

// Makes the device read an invalid address before the n-th step.
class Breaking final : public Runner {
 public:
  Breaking(Ranks& inner, int at_step) : inner_(inner), at_step_(at_step) {}
  const RunnerInfo& info() const override { return inner_.info(); }
  void forward(const Batch& batch) override {
    if (n_steps_++ == at_step_)
      inner_.backend().scale({reinterpret_cast<void*>(0x1000), DType::kF32, 1, 64, 64}, 2.0f, 0.0f);
    inner_.forward(batch);
  }
  void sample(std::span<const SampleRow> rows) override { inner_.sample(rows); }
  std::vector<Sampled> wait() override { return inner_.wait(); }

 private:
  Ranks& inner_;
  const int at_step_;
  int n_steps_ = 0;
};

// Runs in a separate process. Like `ingot serve`, the process exits with this code when the GPU is lost.
[[noreturn]] void lose_device(const GreedyGolden& golden, int at_step) {
  const auto runner = load_on_gpu();
  Breaking breaking(*runner, at_step);
  Engine engine(breaking);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 8; ++i) sinks.push_back(submit(engine, golden.prompt, 40));  // four of the requests run at once
  engine.start();
  const auto begin = Clock::now();
  while (engine.fault().empty() && Clock::now() - begin < std::chrono::seconds(5))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  engine.stop();
  bool all = engine.lost_device();
  for (const auto& sink : sinks) all = all && sink->finish && sink->finish->reason == FinishReason::kError;
  std::fprintf(stderr, "%s\n", engine.fault().c_str());
  std::_Exit(all ? kExitLostDevice : 1);
}

TEST_F(CudaFaults, ABadAccessEndsTheEngine) {
  for (const int at_step : {0, 1, 6})
    EXPECT_EXIT(lose_device(golden_, at_step), testing::ExitedWithCode(kExitLostDevice), "illegal");
}

}  // namespace
}  // namespace ingot
