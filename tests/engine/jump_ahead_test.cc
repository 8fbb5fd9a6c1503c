// Text that a grammar forces becomes tokens without sampling: the tokenizer's tokens, in fewer steps. The output does
// not depend on other requests.
#include <gtest/gtest.h>

#include <set>

#include "collector.h"
#include "engine/engine.h"
#include "engine/jump_ahead.h"
#include "text/grammar/rules/compile.h"

namespace ingot {
namespace {

constexpr int kWordVocab = 110;
constexpr int32_t kWordEnd = 0;
// Literal texts between choices of one byte each. `af` joins a choice and the forced text after it.
const std::vector<std::string> kParts = {"[0a]", "firstname", "[1c]", "lastname:true", "[2x]", "end"};
const std::vector<std::string> kWords = {"first", "name",     "firstn", "af", "last",
                                         ":t",    "lastname", "true",   "en", "end"};

const std::vector<std::string>& token_texts() {
  static const std::vector<std::string> texts = [] {
    std::vector<std::string> made(kWordVocab);
    for (int i = 1; i <= 95; ++i) made[i] = std::string(1, static_cast<char>(' ' + i - 1));
    std::ranges::copy(kWords, made.begin() + 96);
    return made;
  }();
  return texts;
}

// Takes the longest token at each place.
std::vector<int32_t> encode(std::string_view text) {
  std::vector<int32_t> tokens;
  while (!text.empty()) {
    int32_t best = 0;
    for (int32_t id = 1; id < kWordVocab; ++id) {
      const std::string& token = token_texts()[id];
      if (!token.empty() && text.starts_with(token) && token.size() > token_texts()[best].size()) best = id;
    }
    tokens.push_back(best);  // 0, which has no text, for a byte that no token has
    text.remove_prefix(std::max<size_t>(1, token_texts()[best].size()));
  }
  return tokens;
}

std::shared_ptr<Constraint> constraint(std::string regex = "") {
  if (regex.empty())
    for (const std::string& part : kParts) regex += part;
  const auto vocabulary = std::make_shared<GrammarVocabulary>(token_texts(), std::vector<int32_t>{kWordEnd}, encode);
  return std::make_shared<Constraint>(compile_regex(regex), vocabulary);
}

std::string words_of(std::span<const int32_t> tokens) {
  std::string text;
  for (int32_t token : tokens) text += token_texts()[token];
  return text;
}

// The text that must follow `text`, computed from the parts only.
std::string forced_behind(const std::string& text) {
  size_t begin = 0;
  for (const std::string& part : kParts) {
    const bool is_choice = part[0] == '[';
    const size_t n = is_choice ? 1 : part.size();
    if (text.size() < begin + n) return is_choice ? "" : part.substr(text.size() - begin);
    begin += n;
  }
  return "";
}

std::vector<int32_t> forced_tokens_behind(const std::vector<int32_t>& output) {
  const std::string text = words_of(output), forced = forced_behind(text);
  if (forced.empty()) return {};
  std::vector<int32_t> tokens = encode(text + forced), kept;
  size_t begin = 0;
  bool begins_there = false;
  for (int32_t token : tokens) {
    begins_there |= begin == text.size();
    if (begins_there) kept.push_back(token);
    begin += token_texts()[token].size();
  }
  if (!begins_there) return {};
  constexpr size_t kWhole = 28;  // length of every text in bytes
  if (text.size() + forced.size() < kWhole) kept.pop_back();
  return kept;
}

Request forced_request(const std::shared_ptr<Constraint>& constraint, uint64_t seed, int max_tokens = 40) {
  Request request{
      .prompt = {3, 1, static_cast<int32_t>(seed % 50)}, .max_tokens = max_tokens, .stop_tokens = {kWordEnd}};
  request.sampling.seed = seed;
  request.constraint = constraint;
  return request;
}

// Without an engine. n_draws: the number of sampled tokens.
std::vector<int32_t> expected_tokens(const Request& request, int* n_draws = nullptr) {
  Matcher matcher(request.constraint);
  std::vector<int32_t> history = request.prompt, output;
  const auto push = [&](int32_t token) {
    output.push_back(token);
    history.push_back(token);
  };
  const auto is_done = [&] { return matcher.is_over() || static_cast<int>(output.size()) == request.max_tokens; };
  while (!is_done()) {
    int32_t token = FakeRunner::next_token(history, request.sampling.seed, kWordVocab);
    while (!matcher.accept(token)) token = (token + 1) % kWordVocab;
    push(token);
    if (n_draws) ++*n_draws;
    for (const int32_t forced : forced_tokens_behind(output)) {
      if (is_done()) break;
      EXPECT_TRUE(matcher.accept(forced));
      push(forced);
    }
  }
  return output;
}

class JumpAhead : public testing::TestWithParam<bool> {
 protected:
  static FakeOptions options() {
    FakeOptions fake;
    fake.info = {.n_vocab = kWordVocab,
                 .n_ctx = 128,
                 .block_size = 4,
                 .pools = {{.n_blocks = 200}},
                 .max_batch_tokens = 64,
                 .max_seqs = 8,
                 .max_logits = 40};
    fake.info.overlaps = GetParam();
    return fake;
  }
  static std::shared_ptr<Collector> submit(Engine& engine, Request request) {
    const auto sink = std::make_shared<Collector>();
    request.sink = sink;
    engine.submit(std::move(request));
    return sink;
  }
  static void run(Engine& engine) {
    while (engine.step()) {}
  }
};

INSTANTIATE_TEST_SUITE_P(, JumpAhead, testing::Bool(),
                         [](const auto& param) { return param.param ? "overlapped" : "one_by_one"; });

TEST_P(JumpAhead, TakesFewerSteps) {
  const auto shared = constraint();
  std::set<std::string> texts;
  int n_jumps = 0;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    const Request request = forced_request(shared, seed);
    FakeRunner with(options()), without(options());
    int n_forced = 0;
    Engine jumping(with, {.on_step = [&](const StepStats& stats) { n_forced += stats.n_forced; }});
    Engine drawing(without, {.jump_ahead = false});
    const auto jumped = submit(jumping, request), drawn = submit(drawing, request);
    run(jumping);
    run(drawing);
    EXPECT_EQ(jumped->tokens, expected_tokens(request)) << words_of(jumped->tokens);
    for (const auto& sink : {jumped, drawn}) {
      Matcher matcher(shared);
      for (int32_t token : sink->tokens) EXPECT_TRUE(matcher.accept(token));
      EXPECT_TRUE(matcher.is_over());
      EXPECT_EQ(sink->finish->reason, FinishReason::kStop);
      EXPECT_EQ(sink->finish->usage.output_tokens, static_cast<int>(sink->tokens.size()));
    }
    EXPECT_EQ(drawing.gauges().n_forced_tokens, 0);
    EXPECT_EQ(jumping.gauges().n_forced_tokens, n_forced);
    EXPECT_LT(with.n_steps(), without.n_steps());
    texts.insert(words_of(jumped->tokens));
    n_jumps += n_forced > 0;
    EXPECT_TRUE(with.violations().empty());
  }
  EXPECT_GT(texts.size(), 3u);
  EXPECT_EQ(n_jumps, 16);
}

// One step for the prompt and one for each sampled token. If steps overlap, one more step for each dropped token.
TEST_P(JumpAhead, AStepForEachDraw) {
  const Request request = forced_request(constraint(), 0);
  int n_draws = 0;
  expected_tokens(request, &n_draws);
  FakeRunner runner(options());
  Engine engine(runner);
  submit(engine, request);
  run(engine);
  if (GetParam()) {
    EXPECT_LE(runner.n_steps(), 2 * n_draws + 1);
  } else {
    EXPECT_EQ(runner.n_steps(), n_draws);
  }
}

// Other requests, preemptions, pauses, recurrent layers and drafts do not change the output.
TEST_P(JumpAhead, SameTokensInAnyBatch) {
  Random random;
  SCOPED_TRACE(fmt::format("seed {}", random.seed()));
  const auto shared = constraint();
  int64_t n_preempted = 0, n_forced = 0, n_accepted = 0;
  for (int round = 0; round < 30; ++round) {
    FakeOptions fake = options();
    fake.info.block_size = random.integer(1, 8);
    fake.info.pools[0].n_blocks = (60 + fake.info.block_size - 1) / fake.info.block_size + random.integer(0, 6);
    fake.info.max_batch_tokens = random.integer(8, 40);
    if (random.chance(0.4)) fake.info.n_states = fake.info.max_seqs + random.integer(0, 6);
    FakeRunner runner(fake);
    Engine engine(runner, {.chunk = random.integer(1, 40)});
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Collector>> sinks;
    std::vector<RequestId> ids;
    for (int i = 0; i < 8; ++i) {
      Request request = forced_request(shared, static_cast<uint64_t>(random.integer(0, 1000)), random.integer(1, 40));
      const std::vector<int32_t> expected = expected_tokens(request);
      if (random.chance(0.5)) {
        const int n_right = random.integer(0, 6);
        request.proposer = fixed([expected, n_right](std::span<const int32_t> history) {
          const size_t n_output = history.size() - 3, end = std::min(expected.size(), n_output + n_right);
          std::vector<int32_t> drafts(expected.begin() + static_cast<ptrdiff_t>(n_output),
                                      expected.begin() + static_cast<ptrdiff_t>(end));
          drafts.push_back(static_cast<int32_t>(history.back() % kWordVocab));
          return drafts;
        });
      }
      requests.push_back(request);
      sinks.push_back(std::make_shared<Collector>());
      request.sink = sinks.back();
      ids.push_back(engine.submit(std::move(request)));
    }
    for (int i = 0; engine.step(); ++i) {
      const RequestId id = ids[static_cast<size_t>(random.integer(0, 7))];
      if (random.chance(0.1)) engine.pause(id);
      for (const RequestId each : ids)
        if (random.chance(0.3)) engine.resume(each);
    }
    for (const RequestId id : ids) engine.resume(id);
    run(engine);
    for (size_t i = 0; i < requests.size(); ++i) {
      ASSERT_TRUE(sinks[i]->finish);
      EXPECT_EQ(sinks[i]->tokens, expected_tokens(requests[i])) << round << ": " << words_of(sinks[i]->tokens);
      n_preempted += sinks[i]->finish->usage.preemptions;
    }
    n_forced += engine.gauges().n_forced_tokens;
    n_accepted += engine.gauges().n_accepted_tokens;
    EXPECT_EQ(engine.gauges().blocks_used, 0);
    EXPECT_TRUE(runner.violations().empty());
  }
  EXPECT_GT(n_preempted, 0);
  EXPECT_GT(n_forced, 0);
  EXPECT_GT(n_accepted, 0);
}

TEST_P(JumpAhead, EndsAtMaxTokensWithinForcedText) {
  const auto shared = constraint();
  for (int max_tokens = 1; max_tokens <= 12; ++max_tokens) {
    FakeRunner runner(options());
    Engine engine(runner);
    const Request request = forced_request(shared, 5, max_tokens);
    const auto sink = submit(engine, request);
    run(engine);
    EXPECT_EQ(sink->tokens, expected_tokens(request));
    const bool is_cut = words_of(sink->tokens).size() < words_of(expected_tokens(forced_request(shared, 5))).size();
    EXPECT_EQ(sink->finish->reason, is_cut ? FinishReason::kLength : FinishReason::kStop);
    if (is_cut) {
      EXPECT_EQ(sink->tokens.size(), static_cast<size_t>(max_tokens));
    }
  }
}

// Log-probabilities and biases need sampling.
TEST_P(JumpAhead, WhoWantsADrawOfEachTokenGetsIt) {
  const auto shared = constraint();
  FakeRunner runner(options());
  Engine engine(runner);
  Request scored = forced_request(shared, 1), biased = forced_request(shared, 2);
  scored.sampling.n_logprobs = 0;
  biased.sampling.logit_bias = {{encode("first")[0], -std::numeric_limits<float>::infinity()}};
  const auto one = submit(engine, scored), other = submit(engine, biased);
  run(engine);
  EXPECT_EQ(engine.gauges().n_forced_tokens, 0);
  for (const auto& sink : {one, other}) EXPECT_EQ(sink->finish->reason, FinishReason::kStop);
  EXPECT_EQ(std::ranges::count(other->tokens, encode("first")[0]), 0);
}

// The consumer ends the request at a forced token: by an exception or by a cancel.
TEST_P(JumpAhead, EndsWhereItsConsumerSays) {
  class Ending final : public Collector {
   public:
    void on_token(const Sampled& token) override {
      Collector::on_token(token);
      if (tokens.size() == n_most) at_most();
    }
    size_t n_most = 0;
    std::function<void()> at_most;
  };
  const auto shared = constraint();
  const std::vector<int32_t> expected = expected_tokens(forced_request(shared, 3));
  for (size_t n = 1; n < expected.size(); ++n) {
    for (const bool throws : {false, true}) {
      FakeRunner runner(options());
      Engine engine(runner);
      const auto sink = std::make_shared<Ending>();
      Request request = forced_request(shared, 3);
      request.sink = sink;
      sink->n_most = n;
      const RequestId id = engine.submit(std::move(request));
      sink->at_most = [&] { throws ? throw std::runtime_error("enough") : engine.cancel(id); };
      run(engine);
      EXPECT_EQ(sink->finish->reason, throws ? FinishReason::kError : FinishReason::kCancelled);
      EXPECT_EQ(sink->tokens, std::vector<int32_t>(expected.begin(), expected.begin() + static_cast<ptrdiff_t>(n)));
    }
  }
}

// Dead ends at the start, after a sampled token, and in forced text. The tokens before the dead end are delivered. Then
// this request ends, and no other.
TEST_P(JumpAhead, ADeadEndEndsTheRequest) {
  for (const auto& [regex, text] : {std::pair{"\xc3\xa9", ""},
                                    {"0\xc3\xa9", "0"},
                                    {"0first\xc3\xa9x", "0first"},
                                    {"00first\xc3\xa9x", "00first"}}) {
    SCOPED_TRACE(regex);
    FakeRunner runner(options());
    Engine engine(runner);
    const auto dead = submit(engine, forced_request(constraint(regex), 1)),
               other = submit(engine, forced_request(constraint(), 1));
    run(engine);
    ASSERT_TRUE(dead->finish && other->finish);
    EXPECT_EQ(dead->finish->reason, FinishReason::kError);
    EXPECT_NE(dead->finish->error.find("the constraint allows none"), std::string::npos) << dead->finish->error;
    EXPECT_EQ(words_of(dead->tokens), text);
    EXPECT_EQ(other->finish->reason, FinishReason::kStop);
    EXPECT_EQ(engine.gauges().blocks_used, 0);
  }
}

// A stop token in forced text ends the answer like a sampled stop token.
TEST_P(JumpAhead, AStopTokenIsDrawn) {
  FakeRunner runner(options());
  Engine engine(runner);
  Request request = forced_request(constraint(), 4);
  for (const char* stop : {"lastname", "last", "l"}) request.stop_tokens.push_back(encode(stop)[0]);
  const auto sink = submit(engine, request);
  run(engine);
  EXPECT_EQ(sink->finish->reason, FinishReason::kStop);
  EXPECT_GE(sink->finish->stop_token, 0);
  EXPECT_NE(sink->finish->stop_token, kWordEnd);
  EXPECT_EQ(words_of(sink->tokens).find("lastname"), std::string::npos);
}

}  // namespace
}  // namespace ingot
