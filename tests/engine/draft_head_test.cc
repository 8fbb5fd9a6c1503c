// Guesses of a draft head, which the engine asks for all sequences at once. With right and wrong guesses, a request has
// the same output as without guesses. The fake runner checks that the head follows every token.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "devices.h"
#include "draft_cases.h"
#include "model/devices/ranks.h"
#include "model/files/checkpoint.h"
#include "text/grammar/rules/compile.h"

namespace ingot {
namespace {

class DraftHeads : public testing::TestWithParam<DraftCase> {
 protected:
  FakeOptions options(double right) const {
    FakeOptions fake = GetParam().options(512, 600);
    fake.info.draft_head = DraftHeadKind::kMtp;
    fake.head_right = right;
    // A step takes 500 us.
    fake.before_wait = [] { fake_time += std::chrono::microseconds(500); };
    return fake;
  }
  static Clock::time_point now() { return fake_time; }
};

Request guessed_request(std::vector<int32_t> prompt, int max_tokens) {
  Request request{
      .prompt = std::move(prompt), .max_tokens = max_tokens, .proposer = std::make_shared<DraftHeadProposer>()};
  request.sampling.n_logprobs = 0;
  return request;
}

TEST_P(DraftHeads, RightGuessesSaveSteps) {
  FakeRunner runner(options(1));
  Engine engine(runner, {.now = now});
  const Request request = guessed_request({1, 2, 3}, 300);
  const auto sink = submit(engine, request);
  run(engine);
  expect_whole(*sink, request, runner.info());
  EXPECT_GT(engine.gauges().n_accepted_tokens, 200);
  EXPECT_EQ(engine.gauges().n_accepted_tokens, engine.gauges().n_draft_tokens);
  EXPECT_EQ(runner.violations(), std::vector<std::string>());
}

TEST_P(DraftHeads, WrongGuessesEnd) {
  FakeRunner runner(options(0));
  Engine engine(runner, {.now = now});
  const Request request = guessed_request({1, 2, 3}, 500);
  const auto sink = submit(engine, request);
  run(engine);
  expect_whole(*sink, request, runner.info());
  EXPECT_EQ(engine.gauges().n_accepted_tokens, 0);
  EXPECT_LT(engine.gauges().n_draft_tokens, 80);
  EXPECT_GE(engine.gauges().n_draft_tokens, 2);
  EXPECT_EQ(runner.violations(), std::vector<std::string>());
}

// Failed trials become rarer: after 8 tokens, 16 more, and so on. Later answers begin with 128.
TEST_P(DraftHeads, TrialsInVainBecomeRare) {
  FakeOptions fake = options(0);
  fake.info.n_ctx = 8192, fake.info.pools = {{.n_blocks = 2100}}, fake.check_every = 100;
  FakeRunner runner(fake);
  Engine engine(runner, {.now = now});
  const auto drafts_of = [&](int n_tokens) {
    const int64_t before = engine.gauges().n_drafts;
    submit(engine, guessed_request({1, 2, 3}, n_tokens));
    run(engine);
    return engine.gauges().n_drafts - before;
  };
  drafts_of(500);
  const int64_t some = drafts_of(1000), many = drafts_of(8000);
  EXPECT_GE(some, 2);
  EXPECT_LE(many, some + 3);
}

// Answers that are too short for their own trial share trials, because later answers may be predictable.
TEST_P(DraftHeads, ShortAnswersAreTried) {
  FakeRunner runner(options(0));
  Engine engine(runner, {.now = now});
  const auto drafts_of = [&](int n_answers) {
    const int64_t before = engine.gauges().n_drafts;
    for (int i = 0; i < n_answers; ++i) {
      submit(engine, guessed_request({i % 90, 2, 3}, 20));
      run(engine);
    }
    return engine.gauges().n_drafts - before;
  };
  drafts_of(10);
  const int64_t later = drafts_of(256);  // 5 times 1,024 tokens
  EXPECT_GE(later, 3);
  EXPECT_LE(later, 5);
}

// The figures at the end. All steps take the same time, so the gain is the number of tokens per step.
TEST_P(DraftHeads, TheGainIsMeasured) {
  FakeRunner runner(options(1));
  Engine engine(runner, {.now = now});
  const auto sink = submit(engine, guessed_request({1, 2, 3}, 400));
  run(engine);
  const Usage& usage = sink->finish->usage;
  const double tokens_a_step = static_cast<double>(usage.output_tokens) / usage.sampling_steps;
  EXPECT_NEAR(usage.draft_gain, tokens_a_step, 0.2 * usage.draft_gain);
  EXPECT_GT(usage.draft_gain, 3);
  EXPECT_EQ(usage.draft_gain, engine.gauges().plain_seconds / engine.gauges().step_seconds);
  Request plain = guessed_request({1, 2, 3}, 100);
  plain.proposer = nullptr;
  const auto without = submit(engine, plain);
  run(engine);
  EXPECT_EQ(without->finish->usage.draft_gain, 0);
}

// One call of the head guesses for all decoding sequences.
TEST_P(DraftHeads, GuessesForAllSequencesAtOnce) {
  size_t most = 0;
  FakeOptions fake = options(1);
  fake.before_draft = [&](std::span<const DraftRow> rows) { most = std::max(most, rows.size()); };
  FakeRunner runner(fake);
  Engine engine(runner, {.now = now});
  std::vector<Request> requests;
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 5; ++i) {
    requests.push_back(guessed_request({i, 1, 2}, 200));
    sinks.push_back(submit(engine, requests.back()));
  }
  run(engine);
  for (size_t i = 0; i < sinks.size(); ++i) expect_whole(*sinks[i], requests[i], runner.info());
  EXPECT_EQ(most, 5u);
  EXPECT_GT(engine.gauges().n_accepted_tokens, 500);
}

// The fake runner detects wrong entries of the head. This test detects an output that depends on guesses.
TEST_P(DraftHeads, NoScheduleChangesTheOutput) {
  Random random;
  SCOPED_TRACE(random.seed());
  int64_t n_preempted = 0, n_cached = 0, n_accepted = 0, n_wrong = 0;
  for (int round = 0; round < 20; ++round) {
    FakeOptions fake = options(0.8);
    fake.info.n_ctx = 128;
    fake.info.pools[0].n_blocks = 40;
    FakeRunner runner(fake);
    Engine engine(runner, {.chunk = random.integer(3, 40), .now = now});
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Collector>> sinks;
    for (int i = 0; i < 18; ++i) {
      Request request = random.request(runner.info(), nullptr);
      request.prompt.resize(std::min<size_t>(request.prompt.size(), 40));
      if (i % 3 > 0) request.prompt = requests.back().prompt;
      request.max_tokens = random.integer(30, 60);
      request.min_tokens = 0;
      if (i % 4 > 0) request.sampling.seed = 0;
      if (i % 5 > 0) request.proposer = std::make_shared<DraftHeadProposer>(i % 2 * random.integer(0, 7));
      requests.push_back(request);
      sinks.push_back(submit(engine, request));
      if (random.chance(0.3)) engine.step();
    }
    run(engine);
    for (size_t i = 0; i < sinks.size(); ++i) expect_whole(*sinks[i], requests[i], runner.info());
    ASSERT_EQ(runner.violations(), std::vector<std::string>());
    EXPECT_EQ(engine.gauges().blocks_used + engine.gauges().states_used, 0);
    n_preempted += engine.gauges().n_preemptions;
    n_cached += engine.gauges().n_cached_tokens;
    n_accepted += engine.gauges().n_accepted_tokens;
    n_wrong += engine.gauges().n_draft_tokens - engine.gauges().n_accepted_tokens;
  }
  EXPECT_GT(n_preempted, 10);
  EXPECT_GT(n_cached, 100);
  EXPECT_GT(n_accepted, 100);
  EXPECT_GT(n_wrong, 100);
}

// Guesses that the constraint refuses are cut off. The head also follows chunks of forced text.
TEST_P(DraftHeads, ConstraintsHold) {
  FakeRunner runner(options(1));
  Engine engine(runner, {.now = now});
  std::vector<std::string> texts;
  for (int i = 0; i < 100; ++i) texts.push_back(i < 26 ? std::string(1, static_cast<char>('a' + i)) : "");
  const auto vocabulary = std::make_shared<GrammarVocabulary>(texts, std::vector<int32_t>{99});
  Request request = guessed_request({1, 2, 3}, 200);
  request.constraint = std::make_shared<Constraint>(compile_regex("([a-z][a-m]xyz){99}"), vocabulary);
  const Request plain = [&] {
    Request copy = request;
    copy.proposer = nullptr;
    return copy;
  }();
  const auto sink = submit(engine, request);
  run(engine);
  const auto without = submit(engine, plain);
  run(engine);
  EXPECT_EQ(sink->finish->reason, FinishReason::kLength) << sink->finish->error;
  EXPECT_EQ(sink->tokens, without->tokens);
  EXPECT_EQ(runner.violations(), std::vector<std::string>());
}

// A fixed number of drafts, up to the last token that fits.
TEST_P(DraftHeads, EndAtMaxTokensAndAtAnyStopToken) {
  FakeRunner runner(options(1));
  const std::vector<int32_t> all = expected_output(guessed_request({9, 8, 7}, 12), runner.info()).tokens;
  for (int n = 1; n <= 12; ++n) {
    for (const bool by_stop : {false, true}) {
      SCOPED_TRACE(n);
      Engine engine(runner);
      Request request = guessed_request({9, 8, 7}, by_stop ? 40 : n);
      request.proposer = std::make_shared<DraftHeadProposer>(5);
      if (by_stop) request.stop_tokens = {all[n - 1]};
      const auto sink = submit(engine, request);
      run(engine);
      expect_whole(*sink, request, runner.info());
      EXPECT_EQ(engine.gauges().blocks_used + engine.gauges().states_used, 0);
    }
  }
  Request whole = guessed_request({1, 2, 3}, -1);  // to the end of the context
  whole.proposer = std::make_shared<DraftHeadProposer>(7);
  Engine engine(runner);
  const auto sink = submit(engine, whole);
  run(engine);
  expect_whole(*sink, whole, runner.info());
  EXPECT_GT(engine.gauges().n_accepted_tokens, 400);
  EXPECT_EQ(runner.violations(), std::vector<std::string>());
}

TEST_P(DraftHeads, AFailureEndsOnlyTheDrafts) {
  FakeOptions fake = options(1);
  int n_calls = 0;
  fake.before_draft = [&](std::span<const DraftRow>) {
    if (++n_calls == 2) throw std::runtime_error("no power");
  };
  FakeRunner runner(fake);
  Engine engine(runner, {.now = now});
  const Request with = guessed_request({1, 2, 3}, 200), plain = [] {
    Request request = guessed_request({4, 5}, 200);
    request.proposer = nullptr;
    return request;
  }();
  const auto failed = submit(engine, with);
  const auto whole = submit(engine, plain);
  run(engine);
  expect_whole(*failed, with, runner.info());
  expect_whole(*whole, plain, runner.info());
  EXPECT_EQ(engine.gauges().blocks_used, 0);
}

// The heads of tests/data/heads, with --deterministic. The text and its log-probabilities equal those without drafts,
// bit for bit, also after cached prefixes and with n > 1.
class RealHeads : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(RealHeads, GiveTheSameText) {
  const auto& [file, device] = GetParam();
  if (!has_device(device)) GTEST_SKIP() << "no GPU";
  const std::string path = std::string(INGOT_TEST_DATA) + "/heads/" + file;
  const auto checkpoint = open_checkpoint(path);
  RunnerOptions options{.backend = {.device = device, .n_threads = 2, .deterministic = true},
                        .n_ctx = 128,
                        .max_batch_tokens = 32,
                        .max_seqs = 4,
                        .max_logits = 40,
                        .block_size = 4,
                        .n_kv_tokens = 256,
                        .n_snapshots = 8,
                        .mtp_head = MtpHead::kNeeded};
  if (file.starts_with("eagle")) options.eagle_head = open_checkpoint(path + "_head");
  Ranks runner(checkpoint->config(), checkpoint->weights(), options, nullptr);
  Random random;
  SCOPED_TRACE(random.seed());
  std::vector<Request> requests;
  for (int i = 0; i < 40; ++i) {
    Request request = i % 3 == 2 ? requests.back() : guessed_request({}, random.integer(1, 40));
    if (i % 3 < 2)
      for (int n = random.integer(1, 50); n > 0; --n)
        request.prompt.push_back(random.integer(0, runner.info().n_vocab - 1));
    request.sampling.seed = static_cast<uint64_t>(i);
    request.sampling.temperature = i % 2 == 0 ? 0 : 0.8f;
    requests.push_back(request);
  }
  const auto outputs = [&](int n_drafts, int64_t* n_accepted) {
    Engine engine(runner);
    std::vector<std::shared_ptr<Collector>> sinks;
    for (Request request : requests) {
      request.proposer = n_drafts > 0 ? std::make_shared<DraftHeadProposer>(n_drafts) : nullptr;
      sinks.push_back(submit(engine, request));
    }
    run(engine);
    *n_accepted = engine.gauges().n_accepted_tokens;
    EXPECT_EQ(engine.gauges().n_draft_tokens > 0, n_drafts > 0);
    std::vector<std::pair<std::vector<int32_t>, std::vector<float>>> all;
    for (const auto& sink : sinks) all.emplace_back(sink->tokens, sink->logprobs);
    return all;
  };
  int64_t n_accepted = 0;
  const auto without = outputs(0, &n_accepted);
  EXPECT_EQ(n_accepted, 0);
  for (const int n_drafts : {1, 4}) EXPECT_EQ(outputs(n_drafts, &n_accepted), without) << n_drafts;
}

INSTANTIATE_TEST_SUITE_P(Models, RealHeads,
                         testing::Combine(testing::Values("llama_nextn", "glm4_moe.gguf", "deepseek3", "qwen3next",
                                                          "qwen35.gguf", "mimo", "eagle3", "eagle3_moe"),
                                          testing::Values("cpu", "cuda")),
                         [](const auto& test) {
                           const std::string& file = std::get<0>(test.param);
                           return file.substr(0, file.find('.')) + "_" + std::get<1>(test.param);
                         });

INSTANTIATE_TEST_SUITE_P(Engines, DraftHeads, draft_cases(), draft_case_name);

}  // namespace
}  // namespace ingot
