// The prefix cache in conversations: tokens of earlier requests that a request must find, or must not find.
#include <gtest/gtest.h>

#include "base/error.h"
#include "collector.h"
#include "engine/engine.h"

namespace ingot {
namespace {

struct Chatter {
  explicit Chatter(const FakeOptions& options, const EngineOptions& engine_options = {})
      : runner(options), engine(runner, engine_options) {}

  std::shared_ptr<Collector> submit(const Tokens& prompt, int max_tokens, const std::string& salt = "") {
    auto sink = std::make_shared<Collector>();
    Request request;
    request.prompt = prompt;
    request.max_tokens = max_tokens;
    request.cache_salt = salt;
    request.sink = sink;
    engine.submit(request);
    return sink;
  }
  void run() {
    while (engine.step()) {
    }
  }
  int cached(const Tokens& prompt, const std::string& salt = "") {
    const auto sink = submit(prompt, 1, salt);
    run();
    return sink->finish->usage.cached_tokens;
  }

  FakeRunner runner;
  Engine engine;
};

FakeOptions conversation_options(int n_ctx, int n_blocks, bool overlaps = false, int n_states = 0) {
  FakeOptions options;
  options.info = {.n_vocab = 1000,
                  .n_ctx = n_ctx,
                  .block_size = 16,
                  .pools = {{.n_blocks = n_blocks}},
                  .max_batch_tokens = 64,
                  .max_seqs = 16};
  options.info.overlaps = overlaps;
  options.info.n_states = n_states;
  return options;
}

class Conversation : public testing::TestWithParam<bool> {};

// 16 conversations of 20 turns at once. A turn computes its own tokens and the last token of the turn before, which was
// sampled but not computed. All conversations begin differently. Otherwise a conversation would find and take over the
// tokens of another.
void expect_turns_to_compute_what_is_new(const FakeOptions& options) {
  Random random;
  SCOPED_TRACE(random.seed());
  Chatter chat(options, {.chunk = 32});
  std::vector<Tokens> histories(16);
  int64_t n_new = 0;
  for (int turn = 0; turn < 20; ++turn) {
    std::vector<std::shared_ptr<Collector>> sinks;
    std::vector<int> n_known;
    for (Tokens& history : histories) {
      n_known.push_back(std::max(0, static_cast<int>(history.size()) - 1));
      const Tokens said = random_tokens(random, random.integer(1, 40));
      history.insert(history.end(), said.begin(), said.end());
      history.front() = static_cast<int32_t>(&history - histories.data());
      sinks.push_back(chat.submit(history, random.integer(1, 30)));
    }
    chat.run();
    for (size_t i = 0; i < histories.size(); ++i) {
      const Usage& usage = sinks[i]->finish->usage;
      ASSERT_EQ(usage.cached_tokens, n_known[i]) << "conversation " << i << ", turn " << turn;
      n_new += usage.prompt_tokens - usage.cached_tokens + usage.output_tokens - 1;
      histories[i].insert(histories[i].end(), sinks[i]->tokens.begin(), sinks[i]->tokens.end());
    }
  }
  EXPECT_EQ(chat.runner.n_tokens(), n_new);
  EXPECT_EQ(chat.engine.gauges().n_computed_tokens, n_new);
  EXPECT_TRUE(chat.runner.violations().empty());
}

TEST_P(Conversation, ATurnComputesOnlyWhatIsNew) {
  expect_turns_to_compute_what_is_new(conversation_options(2048, 1600, GetParam()));
}

// The same for a model with states: two snapshots for each conversation are enough.
TEST_P(Conversation, ATurnGoesOnFromAState) {
  expect_turns_to_compute_what_is_new(conversation_options(2048, 1600, GetParam(), 16 + 34));
}

// The same for a model with windows in some layers. Their pool holds as many windows as a plan gives it (set_blocks).
TEST_P(Conversation, ATurnFindsItsWindow) {
  FakeOptions options = conversation_options(2048, 1600, GetParam());
  options.info.pools.push_back({.n_blocks = ((3 * 16 + 2) * (40 + 3 * 16) + 2 * 64) / 16, .window = 40});
  expect_turns_to_compute_what_is_new(options);
}

TEST_P(Conversation, AnEditKeepsWhatComesBeforeIt) {
  Random random;
  Chatter chat(conversation_options(256, 64, GetParam()));
  Tokens prompt = random_tokens(random, 100);
  EXPECT_EQ(chat.cached(prompt), 0);
  Tokens edited = prompt;
  edited[50] = (edited[50] + 1) % 1000;
  EXPECT_EQ(chat.cached(edited), 48);
  EXPECT_EQ(chat.cached(prompt), 99);  // full blocks, and the tail of the first request
  prompt.resize(40);
  EXPECT_EQ(chat.cached(prompt), 32);
  EXPECT_EQ(chat.cached({prompt.begin(), prompt.begin() + 32}), 16);  // the last token is computed for its logits
}

// Blocks alone are not enough for these models. A history is found up to a cached state: at the end of a prompt's last
// full block, where two histories diverge, or at the end of an answer.
TEST_P(Conversation, StatesAreLeftWhereSomebodyMayGoOn) {
  Random random;
  SCOPED_TRACE(random.seed());
  Chatter chat(conversation_options(256, 64, GetParam(), 16 + 8));
  const Tokens shared = random_tokens(random, 70);
  const auto with = [&](int n) {
    const Tokens more = random_tokens(random, n);
    return joined(shared, more);
  };
  const Tokens prompt = with(30);
  EXPECT_EQ(chat.cached(prompt), 0);
  EXPECT_EQ(chat.cached(prompt), 96);  // not 100: the state there includes the last token
  const auto sink = chat.submit(prompt, 9);
  chat.run();
  EXPECT_EQ(sink->finish->usage.cached_tokens, 96);
  EXPECT_EQ(chat.cached(joined(joined(prompt, sink->tokens), random_tokens(random, 20))), 108);
  // A second history with the same beginning finds no state. It leaves a state where the two histories diverge, for the
  // third history.
  EXPECT_EQ(chat.cached(with(20)), 0);
  EXPECT_EQ(chat.cached(with(25)), 64);
  EXPECT_EQ(chat.cached(with(40)), 64);
  EXPECT_TRUE(chat.runner.violations().empty());
  EXPECT_EQ(chat.engine.gauges().states_used, 0);
}

// Ten sequences continue from one state at once, each with its own copy.
TEST_P(Conversation, ManyGoOnFromOneState) {
  Random random;
  SCOPED_TRACE(random.seed());
  Chatter chat(conversation_options(256, 200, GetParam(), 16 + 6));
  const Tokens prompt = random_tokens(random, 65);
  chat.cached(prompt);
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < 10; ++i)
    sinks.push_back(chat.submit(joined(prompt, random_tokens(random, random.integer(1, 40))), 30));
  chat.run();
  for (const auto& sink : sinks) EXPECT_GE(sink->finish->usage.cached_tokens, 64);
  EXPECT_TRUE(chat.runner.violations().empty());
}

// With exactly one slot for each sequence, a sequence can still continue from the state of the last finished sequence.
TEST_P(Conversation, WithoutSlotsToSpareTheLastStateIsTakenOver) {
  Random random;
  Chatter chat(conversation_options(256, 64, GetParam(), 16));
  Tokens history = random_tokens(random, 100);
  for (int turn = 0; turn < 5; ++turn) {
    const auto sink = chat.submit(history, 8);
    chat.run();
    EXPECT_EQ(sink->finish->usage.cached_tokens, turn == 0 ? 0 : 107 + 12 * (turn - 1));
    history = joined(joined(history, sink->tokens), random_tokens(random, 4));
  }
  EXPECT_TRUE(chat.runner.violations().empty());
}

INSTANTIATE_TEST_SUITE_P(Loops, Conversation, testing::Bool(),
                         [](const auto& test) { return test.param ? "overlapped" : "synchronous"; });

TEST(PrefixCaching, ASaltHasItsOwnCache) {
  Random random;
  Chatter chat(conversation_options(256, 64));
  const Tokens prompt = random_tokens(random, 100);
  EXPECT_EQ(chat.cached(prompt, "alice"), 0);
  EXPECT_EQ(chat.cached(prompt, "bob"), 0);
  EXPECT_EQ(chat.cached(prompt), 0);
  EXPECT_EQ(chat.cached(prompt, "alice"), 99);
}

TEST(PrefixCaching, CanBeOff) {
  Random random;
  Chatter chat(conversation_options(256, 64), {.prefix_cache = false});
  const Tokens prompt = random_tokens(random, 100);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(chat.cached(prompt), 0);
  EXPECT_EQ(chat.engine.gauges().blocks_cached, 0);
}

TEST(PrefixCaching, RunningRequestsShareBlocks) {
  Random random;
  Chatter chat(conversation_options(256, 64));
  const Tokens prompt = random_tokens(random, 65);  // 4 blocks and one token
  chat.submit(prompt, 100);
  for (int i = 0; i < 3; ++i) chat.engine.step();
  for (int i = 0; i < 9; ++i) chat.submit(prompt, 100);
  chat.engine.step();
  EXPECT_EQ(chat.engine.gauges().n_running, 10);
  EXPECT_EQ(chat.engine.gauges().blocks_used, 4 + 10);
  chat.run();
  EXPECT_EQ(chat.engine.gauges().blocks_used, 0);
  EXPECT_TRUE(chat.runner.violations().empty());
}

// The block unused for the longest time is evicted first. Of two prompts that fit together, the prompt used again stays
// cached.
TEST(PrefixCaching, TheLeastRecentlyUsedGoes) {
  Random random;
  Chatter chat(conversation_options(64, 10));
  const Tokens a = random_tokens(random, 60), b = random_tokens(random, 60), c = random_tokens(random, 60);
  EXPECT_EQ(chat.cached(a), 0);
  EXPECT_EQ(chat.cached(b), 0);
  EXPECT_EQ(chat.cached(a), 59);
  EXPECT_EQ(chat.cached(c), 0);
  EXPECT_EQ(chat.cached(a), 59);
  EXPECT_LT(chat.cached(b), 59);
}

// 10,000 requests of four tenants whose prompts differ only in a marker, in a pool that holds a tenth of them.
TEST(PrefixCaching, NoTenantSeesAnother) {
  Random random;
  SCOPED_TRACE(random.seed());
  FakeOptions options = conversation_options(64, 24, random.chance(0.5));
  options.info.block_size = 4;
  Chatter chat(options);
  std::vector<Tokens> common;
  for (int i = 0; i < 30; ++i) common.push_back(random_tokens(random, random.integer(8, 40)));
  std::vector<std::pair<Request, std::shared_ptr<Collector>>> asked;
  for (int i = 0; i < 10000; ++i) {
    const int tenant = random.integer(0, 3);
    Request request;
    request.prompt = common[random.integer(0, 29)];
    request.prompt[random.integer(0, 7)] = 900 + tenant;
    request.cache_salt = "tenant " + std::to_string(tenant);
    request.client = request.cache_salt;
    request.max_tokens = random.integer(1, 6);
    const auto sink = std::make_shared<Collector>();
    request.sink = sink;
    asked.emplace_back(request, sink);
    chat.engine.submit(request);
    if (i % 3 == 0) chat.engine.step();
  }
  chat.run();
  EXPECT_EQ(chat.runner.violations(), std::vector<std::string>());
  for (const auto& [request, sink] : asked) ASSERT_EQ(sink->tokens, expected_output(request, options.info).tokens);
  const EngineGauges gauges = chat.engine.gauges();
  EXPECT_GT(gauges.n_cached_tokens, 100);
  EXPECT_LT(gauges.n_cached_tokens, gauges.n_prompt_tokens / 4);
}

TEST(PrefixCaching, APreemptedRequestFindsItsOwnBlocks) {
  Random random;
  FakeOptions options = conversation_options(256, 13);  // two sequences of 96 tokens and one more block
  Chatter chat(options);
  const auto first = chat.submit(random_tokens(random, 90), 80), second = chat.submit(random_tokens(random, 90), 60);
  chat.run();
  ASSERT_GT(second->finish->usage.preemptions, 0);
  EXPECT_EQ(second->finish->usage.cached_tokens, 0);  // nothing was cached when the request arrived
  const int64_t n_needed = 90 + 79 + 90 + 59;
  EXPECT_LT(chat.runner.n_tokens(), n_needed + 150 * second->finish->usage.preemptions);
  EXPECT_TRUE(chat.runner.violations().empty());
}

// If all layers of a model have a window, tokens before the window hold no blocks but are still found.
TEST(PrefixCaching, BlocksBeforeTheWindowAreReleased) {
  Random random;
  FakeOptions options = conversation_options(512, 32);
  options.info.pools[0].window = 40;
  int most_used = 0;
  Chatter chat(options,
               {.chunk = 32, .on_step = [&](const StepStats& s) { most_used = std::max(most_used, s.blocks_used); }});
  const Tokens prompt = random_tokens(random, 300);
  const auto sink = chat.submit(prompt, 100);
  chat.run();
  EXPECT_EQ(sink->tokens.size(), 100u);
  EXPECT_LE(most_used, (40 + 32) / 16 + 3);
  EXPECT_EQ(chat.cached(prompt), 288);
  EXPECT_TRUE(chat.runner.violations().empty());
}

// A long prompt goes through the pool of a window, and evicts only its own blocks before the window. The windows of
// other conversations stay, and so does the window at a place where two prompts have departed.
TEST(PrefixCaching, ALongPromptLeavesTheWindowsOfOthers) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const bool overlaps : {false, true}) {
    FakeOptions options = conversation_options(2048, 500, overlaps);
    options.info.pools.push_back({.n_blocks = 36, .window = 40});
    Chatter chat(options, {.chunk = 32});
    const Tokens system = random_tokens(random, 400);
    const auto with_system = [&] { return joined(system, random_tokens(random, 100)); };
    const Tokens said = random_tokens(random, 300);
    const auto answer = chat.submit(said, 30);
    chat.run();
    EXPECT_EQ(chat.cached(with_system()), 0);
    EXPECT_LT(chat.cached(with_system()), 400);  // departs after the system's tokens, of which windows are gone
    EXPECT_EQ(chat.cached(random_tokens(random, 1500)), 0);
    EXPECT_EQ(chat.cached(joined(joined(said, answer->tokens), random_tokens(random, 10))), 329);
    EXPECT_EQ(chat.cached(with_system()), 400);
    EXPECT_TRUE(chat.runner.violations().empty());
    EXPECT_GT(chat.engine.gauges().n_blocks_released, 100);
  }
}

// Admission counts the blocks that a sequence holds at one time, not the length of the sequence.
TEST(PrefixCaching, AWindowedModelAdmitsByItsWindow) {
  Random random;
  for (const bool overlaps : {false, true}) {
    FakeOptions options = conversation_options(512, 70, overlaps);
    options.info.pools[0].window = 40;
    int most_running = 0;
    Chatter chat(options, {.chunk = 32,
                           .on_step = [&](const StepStats& s) { most_running = std::max(most_running, s.n_running); }});
    for (int i = 0; i < 6; ++i) chat.submit(random_tokens(random, 300), 60);  // 23 blocks each
    chat.run();
    EXPECT_EQ(most_running, 6);
    EXPECT_EQ(chat.engine.gauges().n_preemptions, 0);
    EXPECT_TRUE(chat.runner.violations().empty());
  }
}

// A pool for little more than the window and one step's tokens gives requests, one after another, the model's whole
// context.
TEST(PrefixCaching, AWindowedPoolTakesRequestsLongerThanItself) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const bool overlaps : {false, true}) {
    for (const bool prefix_cache : {false, true}) {
      for (const int n_more : {0, 1, 5}) {
        FakeOptions options = conversation_options(512, 0, overlaps);
        options.info.pools[0].window = 40;
        // Blocks of 16 tokens: the 39 tokens before the next one may begin and end inside blocks.
        options.info.pools[0].n_blocks = 3 + 2 + n_more;
        Chatter chat(options, {.chunk = 64, .prefix_cache = prefix_cache});
        std::vector<std::shared_ptr<Collector>> sinks;
        std::vector<Request> requests;
        for (const int n_prompt : {300, 511, 20, 256}) {
          Request request{.prompt = random_tokens(random, n_prompt), .max_tokens = 512 - n_prompt};
          sinks.push_back(chat.submit(request.prompt, request.max_tokens));
          requests.push_back(request);
        }
        chat.run();
        for (size_t i = 0; i < sinks.size(); ++i)
          EXPECT_EQ(sinks[i]->tokens, expected_output(requests[i], options.info).tokens);
        EXPECT_TRUE(chat.runner.violations().empty());
        EXPECT_GT(chat.engine.gauges().n_blocks_released, 80);
        EXPECT_EQ(chat.engine.gauges().blocks_used, 0);
        EXPECT_EQ(sinks[0]->finish->usage.preemptions, 0);  // the first request is never preempted
        EXPECT_THROW(chat.submit(random_tokens(random, 512), 1), Error);
      }
    }
  }
  // With one block less, the pool cannot hold a window at every position. So the pool limits the length.
  FakeOptions options = conversation_options(512, 4);
  options.info.pools[0].window = 40;
  EXPECT_EQ(context_limit(options.info), 64);
}

// The first blocks are released first, so they are reused first. The blocks that the next token sees are still cached.
TEST(PrefixCaching, AChainIsFoundThoughItsBeginningIsGone) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int window : {0, 40}) {
    FakeOptions options = conversation_options(512, 36);
    options.info.pools[0].window = window;
    Chatter chat(options, {.chunk = 32});
    const Tokens prompt = random_tokens(random, 401);  // 25 blocks and one token
    EXPECT_EQ(chat.cached(prompt), 0);
    EXPECT_EQ(chat.cached(random_tokens(random, 300)), 0);  // 9 blocks more than the free ones
    EXPECT_EQ(chat.cached(prompt), window > 0 ? 400 : 272);
    EXPECT_TRUE(chat.runner.violations().empty());
  }
}

}  // namespace
}  // namespace ingot
