// A pipeline of two devices: the same results as one device, several steps in flight, and faults of a stage.
#include <gmock/gmock.h>

#include <future>

#include "backend/blocks/embed.h"
#include "backend/blocks/head.h"
#include "backend/ops_rig.h"
#include "backend/wrapped.h"
#include "base/device_lost.h"
#include "base/error.h"
#include "model/devices/pipeline.h"
#include "test_seed.h"

namespace ingot {
namespace {

constexpr int kDim = 32, kVocab = 50;
constexpr StepLimits kLimits = {.max_tokens = 4,
                                .max_seqs = 4,
                                .max_logits = 4,
                                .max_kv_len = 16,
                                .max_width = 64,
                                .max_heads = 1,
                                .head_dim = 32,
                                .n_vocab = kVocab};

// Calls a function before each op.
class Interrupted final : public Wrapped {
 public:
  using Wrapped::Wrapped;
  std::function<void()> before = [] {};

 private:
  void around(const char*, const Tensor&, const std::function<void()>& call) override {
    before();
    call();
  }
};

// One step of `n` sequences, with a token each.
struct OneStep {
  OneStep(int32_t first_token, int n) {
    for (int i = 0; i < n; ++i) {
      tokens.push_back((first_token + i) % kVocab), positions.push_back(0), kv_len.push_back(1);
      q_start.push_back(i), blocks.push_back(i), rows.push_back(i);
      draws.push_back({.params = &params, .position = 1});
    }
    q_start.push_back(n);
  }
  Batch batch() const { return {tokens, positions, q_start, kv_len, blocks, 1, rows}; }
  const SamplingParams params{.temperature = 0};
  std::vector<int32_t> tokens, positions, q_start, kv_len, blocks, rows;
  std::vector<SampleRow> draws;
};

// A model of two stages, the embedding and the head, and the same model on one device.
class PipelineTest : public testing::Test {
 protected:
  void SetUp() override {
    const uint64_t seed = test_seed();
    RecordProperty("seed", std::to_string(seed));
    for (Interrupted* device : {&first_, &last_, &whole_}) {
      OpRig rig(*device, seed);  // the same weights on all devices
      const EmbedBlock embed{.table = rig.weight(Format::F16, kVocab, kDim)};
      const HeadBlock head{.norm = rig.norm(kDim), .output = rig.weight(Format::F16, kVocab, kDim), .n_vocab = kVocab};
      Program& program = device == &first_ ? embedding_ : device == &last_ ? head_ : both_;
      program.dim = kDim;
      if (device != &last_) program.blocks.emplace_back(embed);
      if (device != &first_) program.blocks.emplace_back(head);
      program.allocate(*device, kLimits);
      rigs_.push_back(std::move(rig));
    }
  }

  std::vector<int32_t> expected(const OneStep& step) {
    whole_.run(both_, step.batch());
    whole_.sample(both_.output(kLimits.max_tokens, kLimits.max_seqs, static_cast<int>(step.rows.size())), step.draws);
    return tokens_of(whole_.wait());
  }
  static std::vector<int32_t> tokens_of(const std::vector<Sampled>& drawn) {
    std::vector<int32_t> tokens;
    for (const Sampled& one : drawn) tokens.push_back(one.token);
    return tokens;
  }
  // Two steps in flight.
  void expect_both(Pipeline& p, const OneStep& a, const OneStep& b) {
    p.forward(a.batch());
    p.sample(a.draws);
    p.forward(b.batch());
    EXPECT_EQ(tokens_of(p.wait()), expected(a));
    p.sample(b.draws);
    EXPECT_EQ(tokens_of(p.wait()), expected(b));
  }
  Pipeline pipeline() {
    std::vector<std::unique_ptr<Stage>> stages;
    stages.push_back(std::make_unique<DeviceStage>(&first_, &embedding_));
    stages.push_back(std::make_unique<DeviceStage>(&last_, &head_));
    return Pipeline(std::move(stages), 2, size_t{kLimits.max_tokens} * kDim);
  }

  Interrupted first_{create_backend({.device = "ref"})}, last_{create_backend({.device = "ref"})},
      whole_{create_backend({.device = "ref"})};
  std::deque<OpRig> rigs_;  // own the weights
  Program embedding_, head_, both_;
};

TEST_F(PipelineTest, TwoStepsInFlight) {
  Pipeline p = pipeline();
  for (int32_t token = 0; token < 20; token += 2) expect_both(p, OneStep(token, 3), OneStep(token + 1, 2));
}

// The first stage begins the second step while the last stage is still at work on the first step.
TEST_F(PipelineTest, StagesWorkAtTheSameTime) {
  std::promise<void> second_step;
  int n_first = 0;
  first_.before = [&] {
    if (++n_first == 2) second_step.set_value();
  };
  bool is_waiting = true;
  last_.before = [&] {
    if (is_waiting) second_step.get_future().wait();
    is_waiting = false;
  };
  Pipeline p = pipeline();
  expect_both(p, OneStep(1, 1), OneStep(2, 1));
}

TEST_F(PipelineTest, LogitsOfAStepThatIsNotSampled) {
  Pipeline p = pipeline();
  for (int32_t token = 0; token < 5; ++token) {
    const OneStep step(token, 2);
    p.forward(step.batch());
    whole_.run(both_, step.batch());
    std::vector<float> logits(2 * kVocab);
    whole_.download(logits.data(), both_.output(2, 2, 2));
    EXPECT_EQ(p.logits(), logits);
  }
  const OneStep sampled(7, 1);
  p.forward(sampled.batch());
  p.sample(sampled.draws);
  EXPECT_EQ(tokens_of(p.wait()), expected(sampled));
}

TEST_F(PipelineTest, AFaultBelongsToItsStep) {
  for (Interrupted* device : {&first_, &last_}) {
    Pipeline p = pipeline();
    const OneStep a(1, 1), b(2, 1);
    int n_ops = 0;
    device->before = [&] {
      if (++n_ops == 1) throw Error("an op has failed");
    };
    p.forward(a.batch());
    EXPECT_THROW(p.logits(), Error);
    p.sample(a.draws);
    p.forward(b.batch());
    EXPECT_THROW(p.wait(), Error);
    p.sample(b.draws);
    EXPECT_EQ(tokens_of(p.wait()), expected(b));
    device->before = [] { throw DeviceLost("the device is lost"); };
    p.forward(a.batch());
    p.sample(a.draws);
    auto next = std::make_unique<OneStep>(3, 1);
    p.forward(next->batch());
    EXPECT_THROW(p.wait(), DeviceLost);
    next.reset();  // no stage reads the batch any more
    device->before = [] {};
  }
}

// The destructor ends the threads, whatever they wait for.
TEST_F(PipelineTest, EndsWithStepsInFlight) {
  const OneStep a(1, 1), b(2, 1);
  { const Pipeline idle = pipeline(); }
  {
    Pipeline p = pipeline();
    p.forward(a.batch());  // not sampled
  }
  {
    Pipeline p = pipeline();
    p.forward(a.batch());
    p.sample(a.draws);
    p.forward(b.batch());
  }
  Pipeline p = pipeline();
  p.forward(a.batch());
  p.sample(a.draws);
  p.drain();
  EXPECT_EQ(tokens_of(p.wait()), expected(a));
}

}  // namespace
}  // namespace ingot
