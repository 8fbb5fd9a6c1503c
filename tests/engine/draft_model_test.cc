// A draft model's guesses, with fake models. The draft model is the model itself or a different model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "base/device_lost.h"
#include "collector.h"
#include "engine/engine.h"
#include "engine/speculate/draft_model.h"

namespace ingot {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

// Each step of the model takes step_us.
FakeOptions options(int n_ctx, int max_logits, int step_us) {
  FakeOptions fake;
  fake.info = {.n_vocab = 100,
               .n_ctx = n_ctx,
               .block_size = 4,
               .pools = {{.n_blocks = 400}},
               .max_batch_tokens = 64,
               .max_seqs = 4,
               .max_logits = max_logits};
  fake.before_wait = [step_us] { fake_time += std::chrono::microseconds(step_us); };
  return fake;
}

std::shared_ptr<DraftModel> draft_of(const FakeOptions& fake) {
  return std::make_shared<DraftModel>(std::make_unique<FakeRunner>(fake));
}

struct Answer {
  std::shared_ptr<Collector> sink = std::make_shared<Collector>();
  EngineGauges gauges;
};

Answer answer(DraftModel& draft, Request request, bool overlaps = false, const std::function<bool()>& is_drawn = {}) {
  FakeOptions fake = options(512, 20, 500);
  fake.info.overlaps = overlaps;
  fake.is_drawn = is_drawn;
  FakeRunner runner(fake);
  Engine engine(runner, {.now = [] { return fake_time; }});
  Answer result;
  request.sink = result.sink;
  request.proposer = draft.proposer();
  engine.submit(std::move(request));
  while (engine.step()) {}
  EXPECT_EQ(runner.violations(), std::vector<std::string>());
  result.gauges = engine.gauges();
  return result;
}

TEST(DraftModel, WritesWhatItsModelWrites) {
  const auto draft = draft_of(options(16, 0, 0));
  Request request{.prompt = {1, 2, 3}, .max_tokens = 8};
  const std::vector<int32_t> all = expected_output(request, options(16, 0, 0).info).tokens;
  EXPECT_EQ(draft->write(request.prompt, 8).tokens, all);
  EXPECT_THAT(draft->write(request.prompt, 15).tokens, SizeIs(13));  // the end of its context
  EXPECT_THAT(draft->write(std::vector<int32_t>(16, 1), 3).tokens, IsEmpty());
  EXPECT_THAT(draft->write(std::vector<int32_t>{1, 100, 2}, 3).tokens, IsEmpty());  // a token of the large model only
}

TEST(DraftModel, StopsAtAnImprobableToken) {
  const auto draft = draft_of(options(16, 0, 0));
  const std::vector<int32_t> prompt = {1, 2, 3};
  const Proposal all = draft->write(prompt, 8);
  ASSERT_THAT(all.probabilities, SizeIs(8));
  std::vector<float> asked;
  const Proposal some = draft->write(prompt, 8, [&](float p) {
    asked.push_back(p);
    return asked.size() < 3;
  });
  EXPECT_EQ(some.tokens, std::vector<int32_t>(all.tokens.begin(), all.tokens.begin() + 3));
  EXPECT_EQ(some.probabilities, asked);
  EXPECT_EQ(draft->write(prompt, 8).tokens, all.tokens);  // the stopped guess has left nothing behind
}

TEST(DraftModel, RightGuessesSaveSteps) {
  for (const bool overlaps : {false, true}) {
    const auto draft = draft_of(options(512, 0, 5));
    const Request request{.prompt = {1, 2, 3}, .max_tokens = 300};
    const Answer got = answer(*draft, request, overlaps);
    EXPECT_EQ(got.sink->tokens, expected_output(request, options(512, 0, 5).info).tokens);
    EXPECT_GT(got.gauges.n_accepted_tokens, 200);
    EXPECT_EQ(got.gauges.n_accepted_tokens + got.gauges.n_steps, 300);
  }
}

// While a device verifies a guess, the small model writes on. If the guess was right, the next guess has these tokens.
TEST(DraftModel, ThinksAhead) {
  int64_t n_steps = 0;
  FakeOptions small = options(64, 0, 0);
  small.before_forward = [&](int64_t) { ++n_steps; };
  const auto draft = draft_of(small);
  Request request{.prompt = {1, 2, 3}, .max_tokens = 20};
  const std::vector<int32_t> all = expected_output(request, small.info).tokens;
  const auto part = [&](int first, int n) {
    return std::vector<int32_t>(all.begin() + first, all.begin() + first + n);
  };
  const auto history_of = [&](int n) {
    std::vector<int32_t> history = request.prompt;
    history.insert(history.end(), all.begin(), all.begin() + n);
    return history;
  };
  const auto think = [&](int n) { draft->think_ahead([=]() mutable { return n-- == 0; }); };

  const auto guess = draft->begin(history_of(0));
  const Proposal first = draft->end(guess, 3, {});
  EXPECT_EQ(first.tokens, part(0, 3));
  EXPECT_FALSE(first.made_ahead);
  EXPECT_EQ(n_steps, 3);
  think(4);
  EXPECT_EQ(n_steps, 7);
  const auto next = draft->begin(history_of(4), guess);
  EXPECT_EQ(next, guess);
  const Proposal second = draft->end(next, 5, {});
  EXPECT_EQ(second.tokens, part(4, 3));  // those made ahead
  EXPECT_TRUE(second.made_ahead);
  EXPECT_EQ(n_steps, 7);
  think(1000);
  EXPECT_EQ(n_steps, 7 + kMaxDrafts + 1);  // enough for the longest guess

  // After a wrong draft, the guess begins anew. So it does for the sequence of another proposer.
  std::vector<int32_t> other = history_of(10);
  other.back() = (other.back() + 1) % 100;
  const auto corrected = draft->begin(other, next);
  EXPECT_NE(corrected, next);
  const Proposal third = draft->end(corrected, 9, {});
  EXPECT_FALSE(third.made_ahead);
  EXPECT_EQ(third.tokens, draft_of(small)->write(other, 9).tokens);
  think(4);
  const auto of_other = draft->begin(history_of(0));
  EXPECT_EQ(draft->end(of_other, 2, {}).tokens, part(0, 2));
}

// A guess that the device waits for has as many drafts as the small model makes during a step.
TEST(DraftModel, GuessesAreAsLongAsThoseMadeAhead) {
  const auto draft = draft_of(options(64, 0, 0));
  const std::vector<int32_t> one = {1}, two = {2};
  EXPECT_THAT(draft->end(draft->begin(one), 9, {}).tokens, SizeIs(9));
  draft->think_ahead([n = 6]() mutable { return n-- == 0; });  // a token and five drafts
  EXPECT_THAT(draft->end(draft->begin(two), 9, {}).tokens, SizeIs(5));
}

// Does nothing for two guesses at once, nor on a GPU.
TEST(DraftModel, ThinksAheadForOneSequenceOnly) {
  int64_t n_steps = 0;
  for (const bool overlaps : {false, true}) {
    FakeOptions small = options(64, 0, 0);
    small.before_forward = [&](int64_t) { ++n_steps; };
    small.info.overlaps = overlaps;
    const auto draft = draft_of(small);
    const auto first = draft->begin(std::vector<int32_t>{1, 2});
    if (!overlaps) {
      const auto second = draft->begin(std::vector<int32_t>{3});
      draft->end(first, 2, {});
      draft->end(second, 2, {});
    } else {
      draft->end(first, 2, {});
    }
    const int64_t before = n_steps;
    draft->think_ahead([] { return false; });
    EXPECT_EQ(n_steps, before);
  }
}

// The engine lets the small model think ahead until the device has drawn. The text is the same, whatever was right.
TEST(DraftModel, TheEngineThinksAhead) {
  const Request request{.prompt = {1, 2, 3}, .max_tokens = 300};
  const std::vector<int32_t> right = expected_output(request, options(512, 0, 5).info).tokens;
  for (const int n_wrong : {0, 7, 2}) {  // every n-th token
    for (const int n_polls : {0, 3, 100}) {
      FakeOptions other = options(512, 0, 5);
      other.writes = [&](const SampleRow& row) {
        const int32_t token = right[std::min<size_t>(row.position - 3, right.size() - 1)];
        return n_wrong > 0 && row.position % n_wrong == 0 ? (token + 1) % 100 : token;
      };
      auto owned = std::make_unique<FakeRunner>(other);
      FakeRunner& runner = *owned;
      const auto draft = std::make_shared<DraftModel>(std::move(owned));
      int64_t n_asked = 0;
      const Answer got = answer(*draft, request, true, [&] { return ++n_asked % (n_polls + 1) == 0; });
      EXPECT_EQ(got.sink->tokens, right);
      EXPECT_EQ(runner.violations(), std::vector<std::string>());
      EXPECT_GT(n_asked, 0);
      if (n_wrong == 0) {
        EXPECT_GT(got.gauges.n_accepted_tokens, 120);
      }
    }
  }
}

// For each guess, the small model computes only new tokens, not the whole history.
TEST(DraftModel, ComputesNewTokensOnly) {
  auto owned = std::make_unique<FakeRunner>(options(512, 0, 5));
  FakeRunner& runner = *owned;
  const auto draft = std::make_shared<DraftModel>(std::move(owned));
  const Request request{.prompt = std::vector<int32_t>(100, 7), .max_tokens = 300};
  const Answer got = answer(*draft, request);
  EXPECT_GT(got.gauges.n_accepted_tokens, 200);
  EXPECT_LT(runner.n_tokens(), 100 + 2 * 300);
  EXPECT_EQ(runner.violations(), std::vector<std::string>());
}

// The small model computes the guesses of several sequences in common steps.
TEST(DraftModel, SequencesShareItsSteps) {
  const auto n_steps_with = [](int n_seqs) {
    int64_t n_steps = 0;
    FakeOptions small = options(512, 0, 5);
    small.before_forward = [&](int64_t) { ++n_steps; };
    const auto draft = draft_of(small);
    FakeRunner runner(options(512, 40, 500));
    Engine engine(runner, {.now = [] { return fake_time; }});
    for (int32_t i = 0; i < n_seqs; ++i) {
      Request request{.prompt = {1, 2, i}, .max_tokens = 300, .sink = std::make_shared<Collector>()};
      request.proposer = draft->proposer();
      engine.submit(std::move(request));
    }
    while (engine.step()) {}
    EXPECT_EQ(runner.violations(), std::vector<std::string>());
    EXPECT_GT(engine.gauges().n_accepted_tokens, 200 * n_seqs);
    return n_steps;
  };
  EXPECT_LT(n_steps_with(4), 2 * n_steps_with(1));
}

// A different model's guesses are wrong. The engine stops asking for them, except for occasional trials.
TEST(DraftModel, WrongGuessesEnd) {
  FakeOptions other = options(512, 0, 5);
  other.writes = [](const SampleRow& row) { return static_cast<int32_t>((row.position * 7) % 100); };
  const Request request{.prompt = {1, 2, 3}, .max_tokens = 500};
  const Answer got = answer(*draft_of(other), request);
  EXPECT_EQ(got.sink->tokens, expected_output(request, options(512, 0, 5).info).tokens);
  EXPECT_LT(got.gauges.n_draft_tokens, 80);
  EXPECT_GE(got.gauges.n_draft_tokens, 2);
}

// An answer may begin with wrong guesses by chance. The engine tries again soon.
TEST(DraftModel, WrongGuessesAtTheBeginningAreForgiven) {
  const Request request{.prompt = {1, 2, 3}, .max_tokens = 300};
  const std::vector<int32_t> right = expected_output(request, options(512, 0, 5).info).tokens;
  FakeOptions other = options(512, 0, 5);
  other.writes = [&](const SampleRow& row) {
    const int32_t token = right[std::min<size_t>(row.position - 3, right.size() - 1)];
    return row.position < 20 ? (token + 1) % 100 : token;
  };
  const Answer got = answer(*draft_of(other), request);
  EXPECT_EQ(got.sink->tokens, right);
  EXPECT_GT(got.gauges.n_accepted_tokens, 180);
}

// The small model fails at each of its first steps, or its device is lost for good. The answers are whole, of later
// requests too.
TEST(DraftModel, AFailureEndsOnlyTheDrafts) {
  for (const bool is_lost : {false, true}) {
    for (int at = 0; at < 12; ++at) {
      FakeOptions failing = options(512, 0, 5);
      failing.before_forward = [&](int64_t step) {
        if (step < at) return;
        if (is_lost) throw DeviceLost("no power");
        throw std::runtime_error("no power");
      };
      const auto draft = draft_of(failing);
      for (int i = 0; i < 2; ++i) {
        const Request request{.prompt = {1, 2, 3}, .max_tokens = 50};
        const Answer got = answer(*draft, request);
        EXPECT_EQ(got.sink->finish->reason, FinishReason::kLength) << got.sink->finish->error;
        EXPECT_EQ(got.sink->tokens, expected_output(request, options(512, 0, 5).info).tokens) << is_lost << at;
        EXPECT_EQ(got.gauges.blocks_used, 0);
      }
    }
  }
}

}  // namespace
}  // namespace ingot
