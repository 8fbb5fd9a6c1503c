// Saved prefixes: a history's blocks are copied from one engine, and another engine of the same model continues from
// them with the same tokens.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine.h"
#include "tiny_models.h"

namespace ingot {
namespace {

FakeOptions saved_options(int n_blocks, int window = 0, bool overlaps = false) {
  FakeOptions options;
  options.info = {.n_vocab = 1000, .n_ctx = 400, .block_size = 16, .pools = {{.n_blocks = n_blocks}}, .max_batch_tokens = 64,
                  .max_seqs = 8};
  options.info.pools[0].window = window;
  options.info.overlaps = overlaps;
  return options;
}

template <class T>
T get(Engine& engine, std::future<T> future) {
  run(engine);
  return future.get();
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
  const SavedPrefix saved = get(first, first.save_prefix(root_key(""), all));
  EXPECT_EQ(saved.tokens, Tokens(all.begin(), all.end() - 1)) << "the last token was sampled, not computed";
  EXPECT_EQ(saved.pools[0].blocks.size() % first_runner.kv_block_bytes(0), 0u);

  get(second, second.restore_prefix(saved.view()));
  EXPECT_EQ(second.gauges().blocks_used, 0);
  const auto expected = submit(first, joined(all, {7}), 20), restored = submit(second, joined(all, {7}), 20);
  const auto salted = std::make_shared<Collector>();
  second.submit({.prompt = joined(all, {7}), .max_tokens = 1, .sink = salted, .cache_salt = "other"});
  run(first), run(second);
  EXPECT_EQ(restored->tokens, expected->tokens);
  EXPECT_EQ(restored->finish->usage.cached_tokens, static_cast<int>(saved.tokens.size()));
  EXPECT_EQ(salted->finish->usage.cached_tokens, 0);
  EXPECT_TRUE(second_runner.violations().empty());

  // Blocks that are already cached are not written again.
  const int n_cached = second.gauges().blocks_cached;
  get(second, second.restore_prefix(saved.view()));
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
  const SavedPrefix saved = get(first, first.save_prefix(root_key(""), joined(prompt, sink->tokens)));
  EXPECT_GT(saved.pools[0].n_missing, 0);
  ASSERT_EQ(saved.tokens.size(), 301u);
  get(second, second.restore_prefix(saved.view()));
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
  const SavedPrefix saved = get(large, large.save_prefix(root_key(""), prompt));
  try {
    get(small, small.restore_prefix(saved.view()));
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
  EXPECT_THROW(hybrid.save_prefix(root_key(""), {1, 2}), Error);
  EXPECT_THROW(uncached.save_prefix(root_key(""), {1, 2}), Error);
  FakeRunner runner(saved_options(40));
  Engine ended(runner);
  ended.stop();
  EXPECT_THROW(ended.save_prefix(root_key(""), {1, 2}), Error);
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
    const SavedPrefix saved = get(first, first.save_prefix(root_key(""), all));
    get(second, second.restore_prefix(saved.view()));
    const auto expected = submit(first, all, 30), restored = submit(second, all, 30);
    run(first), run(second);
    EXPECT_EQ(saved.tokens.size(), all.size() - 1) << "the last token was sampled, not computed";
    EXPECT_EQ(restored->finish->usage.cached_tokens, static_cast<int>(all.size()) - 1);
    EXPECT_EQ(restored->finish->usage.cached_tokens, expected->finish->usage.cached_tokens);
    EXPECT_EQ(restored->tokens, expected->tokens);
    EXPECT_EQ(restored->logprobs, expected->logprobs);
    EXPECT_EQ(first_runner->kv_layout(), second_runner->kv_layout());
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, SavedBlocks,
                         testing::Values(std::pair("ref", DType::kF16), std::pair("ref", DType::kQ8_0),
                                         std::pair("ref", KvTypes(DType::kQ8_0, DType::kQ4_0)),
                                         std::pair("cpu", DType::kF16), std::pair("cpu", DType::kQ8_0),
                                         std::pair("cpu", DType::kE4M3), std::pair("cuda", DType::kF16),
                                         std::pair("cuda", DType::kE4M3),
                                         std::pair("cuda", KvTypes(DType::kQ8_0, DType::kQ4_0))),
                         [](const auto& i) {
                           std::string name = std::string(i.param.first) + "_" + kv_type_name(i.param.second);
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

}  // namespace
}  // namespace ingot
