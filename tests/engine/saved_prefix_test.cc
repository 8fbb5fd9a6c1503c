// Saved prefixes: a history's blocks are copied from one engine, and another engine of the same model continues from
// them with the same tokens.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine.h"
#include "prefix_copies.h"
#include "tiny_models.h"

namespace ingot {
namespace {

FakeOptions saved_options(int n_blocks, int window = 0, bool overlaps = false) {
  FakeOptions options;
  options.info = {.n_vocab = 1000,
                  .n_ctx = 400,
                  .block_size = 16,
                  .pools = {{.n_blocks = n_blocks}},
                  .max_batch_tokens = 64,
                  .max_seqs = 8};
  options.info.pools[0].window = window;
  options.info.overlaps = overlaps;
  return options;
}

struct Shape {
  int n_tokens, window;
  bool overlaps;
};

class SavedPrefixes : public testing::TestWithParam<Shape> {};

TEST_P(SavedPrefixes, AreFoundByAnotherEngine) {
  Random random;
  SCOPED_TRACE(random.seed());
  const auto [n_tokens, window, overlaps] = GetParam();
  const FakeOptions options = saved_options(40, window, overlaps);
  FakeRunner first_runner(options), second_runner(options);
  Engine first(first_runner), second(second_runner);
  const Tokens prompt = random_tokens(random, n_tokens);
  const auto sink = submit(first, prompt, 10);
  run(first);
  const Tokens all = joined(prompt, sink->tokens);
  const PrefixBytes saved = save_prefix(first, root_key(""), all);
  EXPECT_EQ(saved.prefix.tokens, Tokens(all.begin(), all.end() - 1)) << "the last token was sampled, not computed";
  EXPECT_EQ(saved.pools[0].size() % first_runner.kv_block_bytes(0), 0u);

  restore_prefix(second, saved);
  EXPECT_EQ(second.gauges().blocks_used, 0);
  const auto expected = submit(first, joined(all, {7}), 20), restored = submit(second, joined(all, {7}), 20);
  const auto salted = std::make_shared<Collector>();
  second.submit({.prompt = joined(all, {7}), .max_tokens = 1, .sink = salted, .cache_salt = "other"});
  run(first), run(second);
  EXPECT_EQ(restored->tokens, expected->tokens);
  EXPECT_EQ(restored->finish->usage.cached_tokens, static_cast<int>(saved.prefix.tokens.size()));
  EXPECT_EQ(salted->finish->usage.cached_tokens, 0);
  EXPECT_TRUE(second_runner.violations().empty());

  // Blocks that are already cached are not written again.
  const int n_cached = second.gauges().blocks_cached;
  restore_prefix(second, saved);
  EXPECT_LE(second.gauges().blocks_cached, n_cached + 1) << "a tail at most";
}

INSTANTIATE_TEST_SUITE_P(Shapes, SavedPrefixes,
                         testing::Values(Shape{100, 0, false}, Shape{100, 0, true}, Shape{6, 0, false},
                                         Shape{151, 0, false}, Shape{230, 40, false}, Shape{230, 40, true}));

// Other sequences have evicted blocks before the window, so their bytes are gone.
TEST(SavedPrefix, OfAWindowMayLackItsFirstBlocks) {
  Random random;
  SCOPED_TRACE(random.seed());
  const FakeOptions options = saved_options(22, 40);
  FakeRunner first_runner(options), second_runner(options);
  Engine first(first_runner), second(second_runner);
  const Tokens prompt = random_tokens(random, 300);
  const auto sink = submit(first, prompt, 2);
  run(first);
  submit(first, random_tokens(random, 60), 2);
  run(first);
  const PrefixBytes saved = save_prefix(first, root_key(""), joined(prompt, sink->tokens));
  EXPECT_GT(saved.prefix.pools[0].n_missing, 0);
  ASSERT_EQ(saved.prefix.tokens.size(), 301u);
  restore_prefix(second, saved);
  const auto next = submit(second, joined(joined(prompt, sink->tokens), {5}), 9);
  run(second);
  EXPECT_EQ(next->finish->usage.cached_tokens, 301);
  EXPECT_TRUE(second_runner.violations().empty());
}

TEST(SavedPrefix, ThatIsTooLargeIsRefused) {
  Random random;
  SCOPED_TRACE(random.seed());
  FakeRunner large_runner(saved_options(40)), small_runner(saved_options(6));
  Engine large(large_runner), small(small_runner);
  const Tokens prompt = random_tokens(random, 200);
  submit(large, prompt, 1);
  run(large);
  const PrefixBytes saved = save_prefix(large, root_key(""), prompt);
  try {
    restore_prefix(small, saved);
    FAIL() << "was restored";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the history needs 13 blocks of the KV cache, but only 6 are free: try again when "
                               "fewer requests run");
  }
  EXPECT_EQ(small.gauges().blocks_used, 0);
  const auto next = submit(small, Tokens(prompt.begin(), prompt.begin() + 50), 3);
  run(small);
  EXPECT_EQ(next->finish->usage.cached_tokens, 0);
}

// While a history is saved, its blocks are evicted only if requests need them at once.
TEST(SavedPrefix, IsHeldWhileThereIsRoom) {
  Random random;
  SCOPED_TRACE(random.seed());
  FakeRunner runner(saved_options(40));
  Engine engine(runner);
  const Tokens prompt = random_tokens(random, 200);
  submit(engine, prompt, 1);
  run(engine);
  const CachedPrefix prefix = get(engine, engine.find_prefix(root_key(""), prompt));
  ASSERT_EQ(prefix.pools[0].n_full, 12);
  std::vector<uint8_t> before(12 * runner.kv_block_bytes(0)), after(before.size());
  get(engine, engine.read_prefix(prefix, 0, 0, before));
  for (int i = 0; i < 10; ++i) {
    submit(engine, random_tokens(random, 200), 1);
    run(engine);
  }
  get(engine, engine.read_prefix(prefix, 0, 0, after));
  EXPECT_EQ(after, before);
  submit(engine, random_tokens(random, 390), 1);
  submit(engine, random_tokens(random, 200), 9);
  run(engine);
  EXPECT_THROW(get(engine, engine.read_prefix(prefix, 0, 0, after)), Error);
  EXPECT_EQ(engine.gauges().blocks_used, 0);
}

// Requests come first: the engine takes the blocks of a history back that is restored.
TEST(SavedPrefix, ARestorationYieldsToRequests) {
  Random random;
  SCOPED_TRACE(random.seed());
  FakeRunner first_runner(saved_options(40)), second_runner(saved_options(40));
  Engine first(first_runner), second(second_runner);
  const Tokens history = random_tokens(random, 300);
  submit(first, history, 1);
  run(first);
  const PrefixBytes saved = save_prefix(first, root_key(""), history);
  const auto held = get(second, second.hold_prefix(root_key(""), saved.prefix.tokens, saved.n_missing()));
  EXPECT_EQ(second.gauges().blocks_used, 19);
  const Tokens few = random_tokens(random, 40), many = random_tokens(random, 390);
  submit(second, few, 3);
  write_pieces(second, held, saved);
  const auto sink = submit(second, many, 5);
  run(second);
  EXPECT_EQ(sink->tokens, expected_output({.prompt = many, .max_tokens = 5}, second_runner.info()).tokens);
  EXPECT_THROW(get(second, second.keep_prefix(held)), Error);
  EXPECT_THROW(write_pieces(second, held, saved), Error);
  second.drop_prefix(held);
  run(second);
  EXPECT_EQ(second.gauges().blocks_used, 0);
  EXPECT_TRUE(second_runner.violations().empty());
}

// Draws requests and copies in any order, in a pool that is too small for all. A copy may fail, a request may not, and
// a restored history has the bytes that were saved.
TEST(SavedPrefix, CopiesAndRequestsInAnyOrder) {
  Random random;
  SCOPED_TRACE(random.seed());
  int n_restored = 0;
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    const FakeOptions options = saved_options(random.integer(26, 60), random.chance(0.3) ? 40 : 0, random.chance(0.5));
    FakeRunner runner(options);
    Engine engine(runner);
    const auto requests = [&](int n) {
      std::vector<std::pair<Tokens, std::shared_ptr<Collector>>> sinks;
      for (int i = 0; i < n; ++i) {
        const Tokens prompt = random_tokens(random, random.integer(1, 200));
        sinks.emplace_back(prompt, submit(engine, prompt, 6));
      }
      return sinks;
    };
    const Tokens history = random_tokens(random, random.integer(1, 300));
    submit(engine, history, 1);
    run(engine);
    std::vector<std::pair<Tokens, std::shared_ptr<Collector>>> sinks;
    const auto others = [&] {
      for (auto& one : requests(random.integer(0, 2))) sinks.push_back(std::move(one));
      for (int i = random.integer(0, 4); i > 0; --i) engine.step();
    };
    try {
      const PrefixBytes saved = save_prefix(engine, root_key(""), history, random.integer(1, 5));
      if (random.chance(0.7)) get(engine, engine.erase_prefix(root_key(""), history));
      others();
      const auto held = get(engine, engine.hold_prefix(root_key(""), saved.prefix.tokens, saved.n_missing()));
      others();
      if (random.chance(0.2)) submit(engine, history, 1);  // caches the same history
      try {
        write_pieces(engine, held, saved, random.integer(1, 5));
        others();
        get(engine, engine.keep_prefix(held));
        const auto next = submit(engine, joined(saved.prefix.tokens, {7}), 3);
        run(engine);
        n_restored += next->finish->usage.cached_tokens == static_cast<int>(saved.prefix.tokens.size());
        sinks.emplace_back(joined(saved.prefix.tokens, {7}), next);
      } catch (const Error&) {
        engine.drop_prefix(held);
      }
    } catch (const Error&) {  // evicted, or no room
    }
    run(engine);
    for (const auto& [prompt, sink] : sinks) {
      const Tokens expected = expected_output({.prompt = prompt, .max_tokens = 6}, runner.info()).tokens;
      EXPECT_TRUE(std::ranges::equal(sink->tokens, std::span(expected).first(sink->tokens.size())));
      EXPECT_EQ(sink->finish->reason, FinishReason::kLength);
    }
    EXPECT_EQ(engine.gauges().blocks_used, 0);
    EXPECT_TRUE(runner.violations().empty()) << runner.violations().front();
  }
  EXPECT_GT(n_restored, 0);
}

TEST(SavedPrefix, CanBeErased) {
  Random random;
  SCOPED_TRACE(random.seed());
  FakeRunner runner(saved_options(40));
  Engine engine(runner);
  const Tokens prompt = random_tokens(random, 70);
  submit(engine, prompt, 1);
  run(engine);
  EXPECT_EQ(get(engine, engine.erase_prefix(root_key(""), prompt)), 70);
  EXPECT_EQ(engine.gauges().blocks_cached, 0);
  const auto again = submit(engine, prompt, 1);
  run(engine);
  EXPECT_EQ(again->finish->usage.cached_tokens, 0);
}

TEST(SavedPrefix, NeedsACacheWithoutStates) {
  FakeOptions options = saved_options(40);
  options.info.n_states = 9;
  FakeRunner with_states(options), plain(saved_options(40));
  Engine hybrid(with_states), uncached(plain, {.prefix_cache = false});
  EXPECT_THROW(hybrid.find_prefix(root_key(""), {1, 2}), Error);
  EXPECT_THROW(uncached.find_prefix(root_key(""), {1, 2}), Error);
  FakeRunner runner(saved_options(40));
  Engine ended(runner);
  ended.stop();
  EXPECT_THROW(ended.find_prefix(root_key(""), {1, 2}), Error);
}

// With real KV caches, of each type that the device keeps.
class SavedBlocks : public testing::TestWithParam<std::pair<const char*, KvTypes>> {};

TEST_P(SavedBlocks, ContinueAsIfComputed) {
  const auto [device, dtype] = GetParam();
  if (!has_device(device)) GTEST_SKIP() << "no " << device;
  for (const char* model : {"llama", "deepseek2_lite", "mistral_window"}) {
    SCOPED_TRACE(model);
    if (dtype.differ() && model == std::string("deepseek2_lite")) continue;  // its values are its keys
    const auto load = [&, device = device, dtype = dtype] {
      const auto file = std::make_shared<const Gguf>(Gguf::open(path_of(std::string(model) + ".gguf")));
      return std::make_unique<Ranks>(config_from_gguf(*file), gguf_source(file),
                                     RunnerOptions{.backend = {.device = device, .n_threads = 2, .deterministic = true},
                                                   .n_ctx = 256,
                                                   .max_batch_tokens = 128,
                                                   .max_seqs = 2,
                                                   .n_kv_tokens = 1024,
                                                   .kv_dtype = dtype},
                                     nullptr);
    };
    const auto first_runner = load(), second_runner = load();
    Engine first(*first_runner), second(*second_runner);
    const GreedyGolden golden(model);
    const auto answer = submit(first, golden.prompt, 30);
    run(first);
    const Tokens all = joined(golden.prompt, answer->tokens);
    const PrefixBytes saved = save_prefix(first, root_key(""), all);
    restore_prefix(second, saved);
    const auto expected = submit(first, all, 30), restored = submit(second, all, 30);
    run(first), run(second);
    EXPECT_EQ(saved.prefix.tokens.size(), all.size() - 1) << "the last token was sampled, not computed";
    EXPECT_EQ(restored->finish->usage.cached_tokens, static_cast<int>(all.size()) - 1);
    EXPECT_EQ(restored->finish->usage.cached_tokens, expected->finish->usage.cached_tokens);
    EXPECT_EQ(restored->tokens, expected->tokens);
    EXPECT_EQ(restored->logprobs, expected->logprobs);
    EXPECT_EQ(first_runner->kv_layout(), second_runner->kv_layout());
    const bool rotates = dtype.keys == DType::kQ4_0 && model != std::string("deepseek2_lite");
    EXPECT_EQ(first_runner->kv_layout().find("(rotated keys)") != std::string::npos, rotates);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Devices, SavedBlocks,
    testing::Values(std::pair("ref", DType::kF16), std::pair("ref", DType::kQ8_0), std::pair("ref", DType::kQ4_0),
                    std::pair("cpu", DType::kQ4_0), std::pair("cuda", DType::kQ4_0),
                    std::pair("ref", KvTypes(DType::kQ8_0, DType::kQ4_0)), std::pair("cpu", DType::kF16),
                    std::pair("cpu", DType::kQ8_0), std::pair("cpu", DType::kE4M3), std::pair("cuda", DType::kF16),
                    std::pair("cuda", DType::kE4M3), std::pair("cuda", KvTypes(DType::kQ8_0, DType::kQ4_0))),
    [](const auto& i) {
      std::string name = std::string(i.param.first) + "_" + kv_type_name(i.param.second);
      std::ranges::replace(name, '/', '_');
      return name;
    });

}  // namespace
}  // namespace ingot
