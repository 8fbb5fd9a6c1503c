// Constraints that take long: other requests do not wait for them. The property test (engine_property_test.cc) draws
// such constraints under random schedules.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>

#include "collector.h"
#include "drawn_constraint.h"
#include "engine/engine.h"

namespace ingot {
namespace {

constexpr int kVocab = 40;
constexpr std::chrono::minutes kPatience{2};

// A machine whose full calls last until the test opens the gate. A quick call always needs too much work.
class GatedMachine final : public Automaton {
 public:
  struct Gate {
    std::promise<void> opens;
    std::shared_future<void> is_open = opens.get_future().share();
    std::atomic<int> n_calls{0};
  };
  explicit GatedMachine(std::shared_ptr<Gate> gate) : gate_(std::move(gate)) {}

  size_t n_bytes() const override { return 0; }
  GrammarState start() override { return {1, 0, 0}; }
  GrammarState step(GrammarState state, uint8_t byte) override {
    meter_->spend(kQuickEffort.max_work + 1);
    meter_->limit(WorkMeter::kMaxWork);  // the whole call has enough
    ++gate_->n_calls;
    gate_->is_open.wait();
    return state.place < 5 && byte == DrawnMachine::kFirst ? GrammarState{state.place + 1, 0, 0} : GrammarState{};
  }
  bool accepts(GrammarState state) override { return state.place == 5; }

 private:
  const std::shared_ptr<Gate> gate_;
};

class SlowConstraint : public testing::TestWithParam<bool> {
 protected:
  SlowConstraint() : runner_(options()) {}

  static FakeOptions options() {
    FakeOptions fake;
    fake.info = {.n_vocab = kVocab,
                 .n_ctx = 64,
                 .block_size = 4,
                 .pools = {{.n_blocks = 100}},
                 .max_batch_tokens = 64,
                 .max_seqs = 8,
                 .max_logits = 40};
    fake.info.overlaps = GetParam();
    return fake;
  }
  // n_forced: 4 tokens "0000".
  Request slow_request() {
    std::vector<std::string> bytes;
    for (int i = 0; i < kVocab; ++i) bytes.emplace_back(1, static_cast<char>(DrawnMachine::kFirst + i));
    auto vocabulary = std::make_shared<GrammarVocabulary>(std::move(bytes), std::vector<int32_t>());
    Request request{.prompt = {3, 1, 4}};
    request.constraint = std::make_shared<Constraint>(std::make_unique<GatedMachine>(gate_), std::move(vocabulary));
    return request;
  }

  std::shared_ptr<GatedMachine::Gate> gate_ = std::make_shared<GatedMachine::Gate>();
  FakeRunner runner_;
};

INSTANTIATE_TEST_SUITE_P(, SlowConstraint, testing::Bool(),
                         [](const auto& param) { return param.param ? "overlapped" : "one_by_one"; });

// A sink that tells when its request has ended.
class Ending final : public Collector {
 public:
  void on_finish(const Finish& f) override {
    Collector::on_finish(f);
    ended.set_value();
  }
  std::promise<void> ended;
};

std::shared_ptr<Ending> submit_ending(Engine& engine, Request request) {
  const auto sink = std::make_shared<Ending>();
  request.sink = sink;
  engine.submit(std::move(request));
  return sink;
}

bool ends(Ending& sink) { return sink.ended.get_future().wait_for(kPatience) == std::future_status::ready; }

TEST_P(SlowConstraint, OtherRequestsDoNotWait) {
  Engine engine(runner_);
  engine.start();
  const auto slow = submit_ending(engine, slow_request());
  while (gate_->n_calls == 0) std::this_thread::yield();  // a worker is inside the machine
  Request plain{.prompt = {1, 2}, .max_tokens = 30};
  const auto other = submit_ending(engine, plain);
  ASSERT_TRUE(ends(*other));
  EXPECT_EQ(other->tokens, expected_output(plain, runner_.info()).tokens);
  EXPECT_TRUE(slow->tokens.empty());
  gate_->opens.set_value();
  ASSERT_TRUE(ends(*slow));
  EXPECT_EQ(slow->tokens, Tokens(4, 0));
  EXPECT_EQ(slow->finish->reason, FinishReason::kStop) << slow->finish->error;
  engine.stop();
  EXPECT_EQ(runner_.violations(), std::vector<std::string>());
}

// Requests of the same grammar share its machine, but their ends do not wait for a worker inside the machine either.
TEST_P(SlowConstraint, ARequestEndsWhileAWorkerIsBusy) {
  Engine engine(runner_);
  engine.start();
  const auto sink = std::make_shared<Ending>();
  Request request = slow_request();
  request.sink = sink;
  const RequestId id = engine.submit(std::move(request));
  while (gate_->n_calls == 0) std::this_thread::yield();
  engine.cancel(id);
  ASSERT_TRUE(ends(*sink));
  EXPECT_EQ(sink->finish->reason, FinishReason::kCancelled);
  EXPECT_EQ(engine.gauges().blocks_used, 0);
  gate_->opens.set_value();
}

TEST_P(SlowConstraint, TheEngineStopsAfterTheCall) {
  Engine engine(runner_);
  engine.start();
  std::vector<std::shared_ptr<Ending>> sinks;
  const Request request = slow_request();
  for (int i = 0; i < 4; ++i) sinks.push_back(submit_ending(engine, request));
  while (gate_->n_calls == 0) std::this_thread::yield();
  std::thread stopper([&] { engine.stop(); });
  for (const auto& sink : sinks) {
    EXPECT_TRUE(ends(*sink));
    EXPECT_EQ(sink->finish->reason, FinishReason::kCancelled);
  }
  gate_->opens.set_value();
  stopper.join();
}

// A job that runs out of memory, or whose constraint does too much work, ends its request alone.
TEST_P(SlowConstraint, AFailedJobEndsItsRequest) {
  EngineOptions options;
  std::vector<std::function<void()>> jobs;
  options.run_slow = [&](std::function<void()> job) {
    if (jobs.size() == 1) throw std::bad_alloc();
    jobs.push_back(std::move(job));
    jobs.back()();
  };
  options.quick.max_work = 0;
  Engine engine(runner_, options);
  Request request{.prompt = {1}, .max_tokens = 20};
  request.constraint = drawn_constraint(1, kVocab, 1);
  const auto failed = submit(engine, request), other = submit(engine, Request{.prompt = {1}, .max_tokens = 20});
  run(engine);
  EXPECT_EQ(failed->finish->reason, FinishReason::kError);
  EXPECT_EQ(other->tokens.size(), 20u);
  jobs.clear();
  request.constraint = drawn_constraint(1, kVocab, WorkMeter::kMaxWork / 8);
  const auto too_much = submit(engine, request);
  run(engine);
  EXPECT_EQ(too_much->finish->reason, FinishReason::kError);
  EXPECT_NE(too_much->finish->error.find("too much work"), std::string::npos) << too_much->finish->error;
}

}  // namespace
}  // namespace ingot
