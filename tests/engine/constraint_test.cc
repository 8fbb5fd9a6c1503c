// Constrained requests among other requests, with drafts, after preemption and after a marker. The output matches the
// grammar, and equals the output computed token by token without an engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "collector.h"
#include "engine/engine.h"
#include "text/grammar/machine/schema_machine.h"
#include "text/grammar/rules/compile.h"

namespace ingot {
namespace {

using testing::HasSubstr;

constexpr int kVocab = 100;
constexpr int32_t kEnd = 0, kControl = 99;
constexpr const char* kSchema =
    R"({"type":"object","properties":{"a":{"type":"boolean"},"b":{"enum":["x","yy"]}},"required":["a","b"],)"
    R"("additionalProperties":false})";

// ASCII, some longer tokens, an end token and a control token.
std::shared_ptr<const GrammarVocabulary> vocabulary() {
  std::vector<std::string> bytes(kVocab);
  for (int i = 1; i <= 95; ++i) bytes[i] = std::string(1, static_cast<char>(' ' + i - 1));
  bytes[96] = "true";
  bytes[97] = "\":";
  bytes[98] = "k>";
  return std::make_shared<GrammarVocabulary>(std::move(bytes), std::vector<int32_t>{kEnd});
}

int32_t token_of(char c) { return c - ' ' + 1; }

std::shared_ptr<Constraint> constraint_of(std::unique_ptr<Automaton> automaton) {
  return std::make_shared<Constraint>(std::move(automaton), vocabulary());
}
std::shared_ptr<Constraint> schema() { return constraint_of(compile_schema(kSchema, {}, {.is_compact = true})); }
std::shared_ptr<Constraint> regex(const char* pattern) { return constraint_of(compile_regex(pattern)); }

std::string tokens_text(const std::vector<int32_t>& tokens) {
  std::string text;
  for (int32_t token : tokens) text += vocabulary()->bytes(token);
  return text;
}

Request request_of(std::shared_ptr<Constraint> constraint, uint64_t seed, int max_tokens = 60) {
  Request request{.prompt = {3, 1, 4}, .max_tokens = max_tokens, .stop_tokens = {kEnd}};
  request.sampling.seed = seed;
  request.constraint = std::move(constraint);
  return request;
}

// Without an engine: each token is the fake model's token, or the next one that the matcher accepts.
std::vector<int32_t> constrained_output(const Request& request) {
  Matcher matcher(request.constraint);
  std::vector<int32_t> history = request.prompt, output;
  while (static_cast<int>(output.size()) < request.max_tokens && !matcher.is_over()) {
    int32_t token = FakeRunner::next_token(history, request.sampling.seed, kVocab);
    while (!matcher.accept(token)) token = (token + 1) % kVocab;
    if (token == kEnd && !request.ignore_eos) break;
    output.push_back(token);
    history.push_back(token);
  }
  return output;
}

class Constrained : public testing::TestWithParam<bool> {
 protected:
  static FakeOptions options() {
    FakeOptions fake;
    fake.info = {.n_vocab = kVocab,
                 .n_ctx = 128,
                 .block_size = 4,
                 .pools = {{.n_blocks = 200}},
                 .max_batch_tokens = 64,
                 .max_seqs = 8,
                 .max_logits = 40};
    fake.info.overlaps = GetParam();
    return fake;
  }
  static void run(Engine& engine) {
    while (engine.step()) {}
  }
};

INSTANTIATE_TEST_SUITE_P(, Constrained, testing::Bool(),
                         [](const auto& param) { return param.param ? "overlapped" : "one_by_one"; });

TEST_P(Constrained, AnswersInABatchWithOthers) {
  FakeRunner runner(options());
  double mask_ms = 0;
  Engine engine(runner, {.on_step = [&](const StepStats& stats) { mask_ms += stats.mask_ms; }});
  const auto constraint = schema();
  std::vector<Request> requests;
  for (uint64_t seed = 0; seed < 6; ++seed) requests.push_back(request_of(seed % 2 == 0 ? constraint : nullptr, seed));
  std::vector<std::shared_ptr<Collector>> sinks;
  for (const Request& request : requests) sinks.push_back(submit(engine, request));
  run(engine);
  std::set<std::string> texts;
  for (size_t i = 0; i < sinks.size(); ++i) {
    ASSERT_TRUE(sinks[i]->finish);
    if (!requests[i].constraint) {
      EXPECT_EQ(sinks[i]->tokens, expected_output(requests[i], runner.info()).tokens);
      continue;
    }
    EXPECT_EQ(sinks[i]->tokens, constrained_output(requests[i]));
    EXPECT_EQ(sinks[i]->finish->reason, FinishReason::kStop) << sinks[i]->finish->error;
    texts.insert(tokens_text(sinks[i]->tokens));
  }
  for (const std::string& text : texts)
    EXPECT_THAT(text, testing::MatchesRegex(R"re(\{"a":(true|false),"b":"(x|yy)"\})re"));
  EXPECT_GT(texts.size(), 1u) << "each sequence has a way of its own";
  EXPECT_GT(mask_ms, 0);
}

TEST_P(Constrained, GoesOnAfterPreemption) {
  FakeOptions fake = options();
  fake.info.pools[0].n_blocks = 12;
  FakeRunner runner(fake);
  Engine engine(runner);
  const auto constraint = regex("[a-z]{30}");
  std::vector<std::shared_ptr<Collector>> sinks;
  for (uint64_t seed = 0; seed < 4; ++seed) sinks.push_back(submit(engine, request_of(constraint, seed, 40)));
  run(engine);
  int n_preempted = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    EXPECT_EQ(sinks[seed]->tokens, constrained_output(request_of(constraint, seed, 40)));
    EXPECT_EQ(tokens_text(sinks[seed]->tokens).size(), 30u);
    n_preempted += sinks[seed]->finish->usage.preemptions;
  }
  EXPECT_GT(n_preempted, 0);
}

// Drafts that the grammar refuses, drafts that the model would not have sampled, and right drafts.
TEST_P(Constrained, CutsDraftsThatAreRefused) {
  const auto constraint = regex("([a-c]{4} ){5}");
  const Request plain = request_of(constraint, 7);
  const std::vector<int32_t> expected = constrained_output(plain);
  ASSERT_EQ(tokens_text(expected).size(), 25u);
  for (int n_right = 0; n_right <= 4; ++n_right) {
    FakeRunner runner(options());
    Engine engine(runner);
    Request request = plain;
    request.proposer = fixed([&, n_right](std::span<const int32_t> history) {
      const auto from = expected.begin() + static_cast<ptrdiff_t>(history.size() - plain.prompt.size());
      std::vector<int32_t> drafts(from, expected.begin() + std::min<ptrdiff_t>(from - expected.begin() + n_right, 25));
      drafts.push_back(token_of('z'));  // never allowed
      drafts.push_back(token_of('a'));
      return drafts;
    });
    const auto sink = submit(engine, request);
    run(engine);
    EXPECT_EQ(sink->tokens, expected) << n_right;
    EXPECT_EQ(sink->finish->reason, FinishReason::kStop);
    EXPECT_EQ(engine.gauges().n_accepted_tokens, engine.gauges().n_draft_tokens) << "a refused draft was verified";
    if (n_right > 0) {
      EXPECT_GT(engine.gauges().n_accepted_tokens, 0);
    }
  }
}

TEST_P(Constrained, EndsOnlyWhereTheGrammarMay) {
  FakeRunner runner(options());
  Engine engine(runner);
  std::vector<std::shared_ptr<Collector>> sinks;
  const auto constraint = regex("a{3}(b{2})*");
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Request request = request_of(constraint, seed, 11);
    request.ignore_eos = seed % 2 == 1;
    request.sampling.logit_bias = {{token_of('b'), seed % 3 == 0 ? -std::numeric_limits<float>::infinity() : 0.0f}};
    sinks.push_back(submit(engine, request));
  }
  run(engine);
  for (size_t seed = 0; seed < sinks.size(); ++seed) {
    const std::string text = tokens_text(sinks[seed]->tokens);
    const bool is_banned = seed % 3 == 0, ignores = seed % 2 == 1;
    EXPECT_THAT(text, testing::MatchesRegex(is_banned ? "aaa" : "aaa(bb)*b?"));
    const Finish& finish = *sinks[seed]->finish;
    EXPECT_EQ(finish.reason == FinishReason::kLength, sinks[seed]->tokens.size() == 11u) << finish.error;
    if (ignores) {
      EXPECT_EQ(finish.reason, FinishReason::kLength);
    }
    if (finish.reason == FinishReason::kStop) {
      EXPECT_EQ(finish.stop_token, kEnd);
    }
  }
}

// The answer ends when the grammar allows nothing more, even if the request ignores end tokens.
TEST_P(Constrained, EndsWhereNothingCanFollow) {
  FakeRunner runner(options());
  Engine engine(runner);
  Request request = request_of(regex("yes|no"), 1);
  request.ignore_eos = true;
  request.min_tokens = 20;
  const auto sink = submit(engine, request);
  run(engine);
  EXPECT_THAT(tokens_text(sink->tokens), testing::AnyOf("yes", "no"));
  EXPECT_EQ(sink->finish->reason, FinishReason::kStop);
  EXPECT_EQ(sink->finish->stop_token, -1);
}

TEST_P(Constrained, ADeadEndEndsThatRequestAlone) {
  FakeRunner runner(options());
  Engine engine(runner);
  const auto dead = submit(engine, request_of(regex("aa\xc3\xa9"), 1));  // no token has these bytes
  Request banned_request = request_of(regex("ab"), 1);
  banned_request.sampling.logit_bias = {{token_of('b'), -std::numeric_limits<float>::infinity()}};
  const auto banned = submit(engine, banned_request);
  const auto other = submit(engine, request_of(regex("a{20}"), 1));
  run(engine);
  ASSERT_EQ(dead->finish->reason, FinishReason::kError);
  EXPECT_EQ(tokens_text(dead->tokens), "aa");
  EXPECT_TRUE(dead->finish->has_nan) << "what came before stands";
  EXPECT_THAT(dead->finish->error, HasSubstr("the constraint allows none"));
  ASSERT_EQ(banned->finish->reason, FinishReason::kError);
  EXPECT_THAT(banned->finish->error, HasSubstr("the biases"));
  EXPECT_EQ(tokens_text(other->tokens), std::string(20, 'a'));
  EXPECT_EQ(other->finish->reason, FinishReason::kStop);
}

// Counts the bytes read, and fails at the fifth byte like an automaton that has become too large.
class Growing final : public Automaton {
 public:
  size_t n_bytes() const override { return 0; }
  GrammarState start() override { return {1, 0, 0}; }
  GrammarState step(GrammarState state, uint8_t) override {
    if (state.place == 5) throw Error("the grammar has become too large");
    return {state.place + 1, 0, 0};
  }
  bool accepts(GrammarState) override { return false; }
};

TEST_P(Constrained, AFailureOfTheGrammarEndsThatRequestAlone) {
  FakeRunner runner(options());
  Engine engine(runner);
  const auto failed = submit(engine, request_of(constraint_of(std::make_unique<Growing>()), 1));
  const auto other = submit(engine, request_of(regex("a{20}"), 1));
  run(engine);
  ASSERT_EQ(failed->finish->reason, FinishReason::kError);
  EXPECT_EQ(failed->finish->error, "the grammar has become too large");
  EXPECT_EQ(tokens_text(other->tokens), std::string(20, 'a'));
}

// The marker is "ok>" in the text of any tokens, or a control token.
TEST_P(Constrained, BeginsBehindAMarker) {
  for (const bool is_token : {false, true}) {
    FakeRunner runner(options());
    Engine engine(runner);
    Request request = request_of(regex("a{4}"), 1);
    request.constraint_start = is_token ? ConstraintStart{"", kControl} : ConstraintStart{"ok>"};
    std::vector<int32_t> before = {token_of('o'), token_of('o')};
    if (is_token) before.push_back(kControl);
    if (!is_token) before.push_back(98);
    AnswerConstraint constraint(request.constraint, request.constraint_start);
    for (int32_t token : before) {
      EXPECT_EQ(constraint.mask(), nullptr);
      EXPECT_TRUE(constraint.accept(token));
    }
    ASSERT_NE(constraint.mask(), nullptr);
    const AnswerConstraint::Place place = constraint.place();
    EXPECT_FALSE(constraint.accept(token_of('b')));
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(constraint.accept(token_of('a')));
    EXPECT_TRUE(constraint.is_over());
    constraint.go_back(place);
    EXPECT_FALSE(constraint.is_over());
    EXPECT_TRUE(constraint.accept(token_of('a')));

    // Without the marker, the whole answer is unconstrained.
    request.constraint_start = {"\x01", -1};
    const auto sink = submit(engine, request);
    run(engine);
    Request free = request;
    free.constraint = nullptr;
    EXPECT_EQ(sink->tokens, expected_output(free, runner.info()).tokens);
  }
}

// The model samples the start token by itself. The grammar applies from there on.
TEST_P(Constrained, BeginsBehindWhatTheModelSaid) {
  FakeRunner runner(options());
  Engine engine(runner);
  Request request = request_of(regex("a{4}"), 5);
  request.stop_tokens = {};
  Request free = request;
  free.constraint = nullptr;
  const std::vector<int32_t> said = expected_output(free, runner.info()).tokens;
  request.constraint_start = {"", said[3]};
  const auto n_before = std::ranges::find(said, said[3]) - said.begin() + 1;
  const auto sink = submit(engine, request);
  run(engine);
  EXPECT_EQ(sink->tokens.size(), static_cast<size_t>(n_before) + 4);
  EXPECT_TRUE(std::equal(said.begin(), said.begin() + n_before, sink->tokens.begin()));
  EXPECT_EQ(tokens_text({sink->tokens.begin() + n_before, sink->tokens.end()}), "aaaa");
}

TEST_P(Constrained, AConstraintOfOtherTokensIsRefused) {
  FakeOptions fake = options();
  fake.info.n_vocab = kVocab + 1;
  FakeRunner runner(fake);
  Engine engine(runner);
  Request request = request_of(regex("a"), 1);
  request.sink = std::make_shared<Collector>();
  EXPECT_THROW(engine.submit(request), Error);
}

}  // namespace
}  // namespace ingot
