// Ranks that are processes: tensor parallel, the stages of a pipeline, and both. The same bits as without processes, in
// any order of events; a fault of one rank ends all.
#include <gmock/gmock.h>

#include <random>

#include "model/apart.h"
#include "base/device_lost.h"
#include "model/files/wrapped_source.h"
#include "model/rank_models.h"
#include "test_seed.h"

namespace ingot {
namespace {

constexpr Layout kLayouts[] = {{2, 1}, {2, 2}, {3, 3}, {4, 2}, {2, 2, /*stages_in_rank=*/true}};
// All but the first, in which the ranks have no stages.
constexpr Layout kStages[] = {{2, 2}, {3, 3}, {4, 2}};

// Passes every call to another communicator.
class Passing : public Communicator {
 public:
  explicit Passing(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void all_reduce(float* x, int64_t n) override { before(), inner_->all_reduce(x, n); }
  void all_gather(void* all, const void* own, size_t n) override { before(), inner_->all_gather(all, own, n); }
  void exchange(void* all, const void* own, size_t n) override { inner_->exchange(all, own, n); }
  std::unique_ptr<Communicator> group(int n) override { return like(inner_->group(n)); }
  void pass(int to, int channel, std::span<const uint8_t> message) override {
    before(), inner_->pass(to, channel, message);
  }
  void take(int from, int channel, std::span<uint8_t> message) override {
    before(), inner_->take(from, channel, message);
  }
  void send(std::span<const uint8_t> message) override { before(), inner_->send(message); }
  std::vector<uint8_t> receive() override { return before(), inner_->receive(); }
  void abort(std::exception_ptr fault) override { inner_->abort(std::move(fault)); }
  void check() override { inner_->check(); }
  std::chrono::milliseconds limit() const override { return inner_->limit(); }

 protected:
  virtual void before() {}  // each call of a step
  virtual std::unique_ptr<Communicator> like(std::unique_ptr<Communicator> group) { return group; }

 private:
  const std::unique_ptr<Communicator> inner_;
};

// Calls begin after random delays.
class Delayed final : public Passing {
 public:
  Delayed(std::unique_ptr<Communicator> inner, unsigned seed) : Passing(std::move(inner)), random_(seed) {}

 private:
  void before() override {
    unsigned drawn;
    {
      const std::lock_guard lock(mutex_);
      drawn = static_cast<unsigned>(random_());
    }
    std::this_thread::sleep_for(std::chrono::microseconds(drawn % 4 == 0 ? drawn / 4 % 500 : 0));
  }
  std::unique_ptr<Communicator> like(std::unique_ptr<Communicator> group) override {
    return std::make_unique<Delayed>(std::move(group), static_cast<unsigned>(random_()));
  }
  std::mutex mutex_;
  std::mt19937 random_;
};

// Rank 1 fails in its n-th call of a step other than receive(): for an odd n, it has no memory.
class Failing final : public Passing {
 public:
  Failing(std::unique_ptr<Communicator> inner, std::shared_ptr<std::atomic<int>> left)
      : Passing(std::move(inner)), is_chosen_(rank() == 1), is_odd_(*left % 2 != 0), left_(std::move(left)) {}
  std::vector<uint8_t> receive() override {
    is_receiving_ = true;
    return Passing::receive();
  }

 private:
  void before() override {
    if (std::exchange(is_receiving_, false)) return;
    if (!is_chosen_ || (*left_)-- != 0) return;
    if (is_odd_) throw std::bad_alloc();
    throw Error("the kernel has failed");
  }
  static thread_local bool is_receiving_;
  const bool is_chosen_, is_odd_;
  const std::shared_ptr<std::atomic<int>> left_;
};
thread_local bool Failing::is_receiving_ = false;

// Loads a rank of a golden model.
auto loads(const std::string& name, const Layout& layout, const std::function<void(RunnerOptions&)>& change = {}) {
  return [=](const ParallelOptions& own) {
    const auto checkpoint = open_checkpoint((kModels / (name + ".gguf")).string());
    RunnerOptions options = rank_options(name, "ref", 1, false);
    options.parallel = own;
    set_stages(options, layout, checkpoint->config().n_layers);
    if (change) change(options);
    return start_ranks(checkpoint->config(), checkpoint->weights(), options, nullptr);
  };
}

std::vector<float> logits_of_threads(const Golden& golden, int n_ranks, int chunk) {
  const auto runner =
      start_ranks_of(kModels / (golden.name + ".gguf"), rank_options(golden.name, "ref", n_ranks, false));
  return all_logits(*runner, golden.tokens, chunk);
}

class Processes : public testing::TestWithParam<Layout> {};

TEST_P(Processes, DelaysChangeNothing) {
  const Golden golden = read_golden("qwen35moe");  // experts, states and norms
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::vector<float> logits;
  const auto wrap = [&](auto inner) { return std::make_unique<Delayed>(std::move(inner), seed); };
  const auto errors = run_apart(options_of_ranks(GetParam(), wrap), loads(golden.name, GetParam()),
                                [&](Ranks& runner) { logits = all_logits(runner, golden.tokens, 5); });
  EXPECT_THAT(errors, testing::Each(""));
  EXPECT_EQ(logits, logits_of_threads(golden, GetParam().n_of_layer(), 5));
}

TEST_P(Processes, AFaultInAStepIsALostDeviceForAll) {
  const Golden golden = read_golden("gemma3");
  const std::string name = rank_name(1, GetParam().n_ranks);
  for (const int at : {0, 1, 4}) {
    const std::string fault =
        name + (at % 2 != 0 ? " is out of memory: use a smaller model" : ": the kernel has failed");
    bool is_lost = false;
    const auto left = std::make_shared<std::atomic<int>>(at);
    const auto wrap = [&](auto inner) { return std::make_unique<Failing>(std::move(inner), left); };
    const auto errors =
        run_apart(options_of_ranks(GetParam(), wrap), loads(golden.name, GetParam()), [&](Ranks& runner) {
          try {
            all_logits(runner, golden.tokens, 4);
          } catch (const DeviceLost&) {
            is_lost = true;
            throw;
          }
        });
    EXPECT_TRUE(is_lost);
    EXPECT_THAT(errors, testing::Each(testing::StartsWith(fault))) << at;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Processes, testing::ValuesIn(kLayouts), [](const auto& i) { return i.param.name(); });

// Loads ranks whose options `change` makes wrong. Returns their errors.
std::vector<std::string> errors_of(const Layout& layout, const std::function<void(RunnerOptions&)>& change) {
  return run_apart(options_of_ranks(layout), loads("gemma3", layout, change), [](Ranks&) { FAIL() << "was loaded"; });
}

// All ranks end with the error of the rank that cannot load.
TEST(ProcessesLoad, ARankWithoutMemoryEndsAll) {
  const auto limit_rank_1 = [](RunnerOptions& options) {
    if (options.parallel.communicator->rank() == 1) options.memory_bytes = 4096;
  };
  for (const Layout& layout : {Layout{2, 1}, Layout{2, 2}, Layout{3, 3}, Layout{4, 2}})
    EXPECT_THAT(errors_of(layout, limit_rank_1),
                testing::Each(testing::MatchesRegex("the weights need .*, but the device has only 4.0 KiB free.*")))
        << layout.name();
}

TEST(ProcessesLoad, AStageWithoutLayersIsRefused) {
  const auto take_layers = [](RunnerOptions& options) { options.layers_on.layers_of_device = {3, 0, 4}; };
  EXPECT_THAT(errors_of({3, 3}, take_layers), testing::Each(testing::HasSubstr("stage 1 of 3 would have no layer")));
}

// A source that has one more tensor, which ingot does not know.
class WithForeignTensor final : public WrappedSource {
 public:
  using WrappedSource::WrappedSource;
  std::vector<std::string> unused() const override {
    std::vector<std::string> names = inner().unused();
    names.push_back("blk.0.foreign");
    return names;
  }
};

// Each process uses some of the tensors. A tensor that none uses may change the model's results.
TEST(ProcessesLoad, ATensorThatNoStageUsesIsRefused) {
  const Layout layout{2, 2};
  for (const int n_with : {1, 2}) {
    const auto load = [&](const ParallelOptions& own) {
      const auto checkpoint = open_checkpoint((kModels / "llama.gguf").string());
      RunnerOptions options = rank_options("llama", "ref", 1, false);
      options.parallel = own;
      std::unique_ptr<WeightSource> source = checkpoint->weights();
      if (own.communicator->rank() < n_with) source = std::make_unique<WithForeignTensor>(std::move(source));
      return start_ranks(checkpoint->config(), std::move(source), options, nullptr);
    };
    const std::string error = n_with == 2 ? "tensor 'blk.0.foreign' is in the file, but ingot does not use it" : "";
    EXPECT_THAT(run_apart(options_of_ranks(layout), load, [](Ranks&) {}), testing::Each(testing::HasSubstr(error)));
  }
}

// The stages are processes. Each has a part of the layers, and computes the same bits as one device would.
class RemoteStages : public testing::TestWithParam<std::string> {};

TEST_P(RemoteStages, LogitsAreThoseOfOneDevice) {
  const Golden golden = read_golden(GetParam());
  if (is_on_one_device(golden.name)) GTEST_SKIP() << "layers share keys or inputs";
  const Layout layout{2, 2};
  std::vector<float> logits, in_chunks;
  std::vector<size_t> bytes(2);
  const auto load = [&](const ParallelOptions& own) {
    auto runner = loads(golden.name, layout)(own);
    bytes[static_cast<size_t>(own.communicator->rank())] = runner->allocated_bytes();
    return runner;
  };
  const auto errors = run_apart(options_of_ranks(layout), load, [&](Ranks& runner) {
    EXPECT_EQ(runner.info().n_stages, 2);
    logits = all_logits(runner, golden.tokens, 512), in_chunks = all_logits(runner, golden.tokens, 7);
  });
  EXPECT_THAT(errors, testing::Each(""));
  EXPECT_EQ(logits, logits_of_threads(golden, 1, 512));
  EXPECT_EQ(in_chunks, logits_of_threads(golden, 1, 7));
  const size_t whole = load_golden(golden.name, {.device = "ref"}).allocated_bytes();
  EXPECT_LT(std::max(bytes[0], bytes[1]), whole) << "a process loads only its part";
}

INSTANTIATE_TEST_SUITE_P(Models, RemoteStages, testing::ValuesIn(golden_names()),
                         [](const auto& i) { return i.param; });

class StageChoice : public testing::TestWithParam<Layout> {};

// Without a wish, rank 0 divides the layers by the free memory of all ranks.
TEST_P(StageChoice, ALargerDeviceHasMoreLayers) {
  const Golden golden = read_golden("gemma3");
  const int n_of_stage = GetParam().n_of_layer();
  std::vector<float> logits;
  std::vector<int64_t> parameters(static_cast<size_t>(GetParam().n_ranks)), layers = parameters;
  const auto load = [&](const ParallelOptions& own) {
    auto runner = loads(golden.name, GetParam(), [&](RunnerOptions& options) {
      options.layers_on = {};
      options.memory_bytes = (own.communicator->rank() < n_of_stage ? 64 : 16) << 20;
    })(own);
    const auto rank = static_cast<size_t>(own.communicator->rank());
    parameters[rank] = runner->weights().n_parameters;
    for (std::vector<Block> parts : runner->weights().layers)
      layers[rank] += bool{parts.front().ports().norm->weight};
    return runner;
  };
  const auto errors = run_apart(options_of_ranks(GetParam()), load,
                                [&](Ranks& runner) { logits = all_logits(runner, golden.tokens, 16); });
  EXPECT_THAT(errors, testing::Each(""));
  EXPECT_LT(largest_difference(logits, golden.logits), 1e-4);
  for (size_t r = 0; r < parameters.size(); ++r)
    EXPECT_EQ(parameters[r], parameters[r % static_cast<size_t>(n_of_stage)]) << "of the whole model";
  EXPECT_GT(layers.front(), layers.back());
  EXPECT_GT(layers.back(), 0);
}

TEST_P(StageChoice, AModelThatFitsNowhereIsRefused) {
  const auto limit_all = [](RunnerOptions& options) { options.layers_on = {}, options.memory_bytes = 4096; };
  EXPECT_THAT(
      errors_of(GetParam(), limit_all),
      testing::Each(testing::MatchesRegex("the model needs .*, but only .* are free on rank 0 of .* and rank .*")));
}

INSTANTIATE_TEST_SUITE_P(Layouts, StageChoice, testing::ValuesIn(kStages),
                         [](const auto& i) { return i.param.name(); });

}  // namespace
}  // namespace ingot
