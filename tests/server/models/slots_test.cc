// Slots: the choice of a request's slot, and copies of slots while requests run. llama_test.py tests saving and
// restoring through the server.
#include "server/models/slots.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "engine/collector.h"
#include "engine/engine.h"
#include "engine/fake_runner.h"

namespace ingot {
namespace {

using Tokens = std::vector<int32_t>;

TEST(Slots, ARequestGoesWhereItsConversationIs) {
  Slots slots(3);
  slots.begin(1);
  slots.end(1, {{}, {1, 2, 3, 4, 5, 6}});
  slots.begin(2);
  slots.end(2, {{}, {1, 2, 7, 8, 9, 10}});
  EXPECT_EQ(slots.choose({1, 2, 3, 4, 5, 6, 7}), 1);
  EXPECT_EQ(slots.choose({1, 2, 7, 8, 9, 10, 11}), 2);
  EXPECT_EQ(slots.choose({1, 2, 3, 4}), 1) << "more than half of the history";
  EXPECT_EQ(slots.choose({1, 2, 20, 21}), 0) << "a beginning that many share says little: an unused slot";
}

TEST(Slots, OthersGoToTheIdleSlotUnusedForLongest) {
  Slots slots(3);
  const int first = slots.choose({1});
  slots.begin(first);
  EXPECT_EQ(slots.busy()[static_cast<size_t>(first)], true);
  const int second = slots.choose({2});
  EXPECT_NE(second, first);
  slots.begin(second);
  slots.end(first, {{}, {1}});
  const int third = slots.choose({3});
  EXPECT_TRUE(third != first && third != second);
  slots.begin(third);
  EXPECT_EQ(slots.choose({4}), first) << "the only idle one";
  slots.begin(first);
  EXPECT_EQ(slots.choose({5}), second) << "all are busy";
}

TEST(Slots, RememberTheirLastHistory) {
  Slots slots(1);
  EXPECT_TRUE(slots.history(0).tokens.empty());
  slots.begin(0);
  slots.end(0, {root_key("a"), {1, 2}});
  EXPECT_EQ(slots.history(0).tokens, (Tokens{1, 2}));
  EXPECT_EQ(slots.history(0).root, root_key("a"));
  slots.set(0, {});
  EXPECT_TRUE(slots.history(0).tokens.empty());
  EXPECT_FALSE(slots.busy()[0]);
}

// A fake model with large blocks. Counts the bytes that are copied between two steps.
class LargeBlocks final : public Runner {
 public:
  static constexpr size_t kBytes = (size_t{5} << 20) / 2;
  static FakeOptions options() {
    FakeOptions options;
    options.info.n_ctx = 256;
    return options;
  }
  const RunnerInfo& info() const override { return fake_.info(); }
  void forward(const Batch& batch) override {
    n_bytes_ = 0;
    fake_.forward(batch);
  }
  void sample(std::span<const SampleRow> rows) override { fake_.sample(rows); }
  std::vector<Sampled> wait() override { return fake_.wait(); }
  std::string kv_layout() const override { return "large"; }
  size_t kv_block_bytes(int) const override { return kBytes; }
  void read_kv(int pool, int32_t block, std::span<uint8_t> to) override {
    count(to.size());
    fake_.read_kv(pool, block, to.first(fake_.kv_block_bytes(pool)));
  }
  void write_kv(int pool, int32_t block, std::span<const uint8_t> from) override {
    count(from.size());
    fake_.write_kv(pool, block, from.first(fake_.kv_block_bytes(pool)));
  }
  size_t most_bytes() const { return most_bytes_; }
  const std::vector<std::string>& violations() const { return fake_.violations(); }

 private:
  void count(size_t n) { most_bytes_ = std::max(most_bytes_, n_bytes_ += n); }

  FakeRunner fake_{options()};
  size_t n_bytes_ = 0, most_bytes_ = 0;
};

// Runs `copy` on another thread. Meanwhile a request always runs, and each turn of the engine has a step.
template <class F>
void while_requests_run(Engine& engine, F&& copy) {
  std::atomic<bool> is_over{false};
  std::thread copier([&] {
    try {
      copy();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    is_over = true;
  });
  while (!is_over) {
    if (engine.gauges().n_running == 0) submit(engine, Request{.prompt = {1, 2, 3}, .max_tokens = 100});
    engine.step();
  }
  copier.join();
  run(engine);
}

TEST(Slots, AreCopiedInPiecesBetweenSteps) {
  const std::string folder = ::testing::TempDir() + "slots_test_" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  const SlotFiles files{.folder = folder, .model = "fake"};
  Tokens history(250);
  for (size_t i = 0; i < history.size(); ++i) history[i] = static_cast<int32_t>(i % 7);
  LargeBlocks from_runner, to_runner;
  Engine from(from_runner), to(to_runner);
  Slots from_slots(1), to_slots(1);
  const auto first = submit(from, Request{.prompt = history, .max_tokens = 4});
  run(from);
  from_slots.set(0, {root_key(""), joined(history, first->tokens)});
  SlotCopy saved, restored;
  while_requests_run(from, [&] { saved = save_slot(from, from_slots, 0, files, "a"); });
  while_requests_run(to, [&] { restored = restore_slot(to, to_slots, 0, files, "a"); });
  std::filesystem::remove_all(folder);
  EXPECT_EQ(saved.n_tokens, 253);
  EXPECT_EQ(restored.n_tokens, saved.n_tokens);
  EXPECT_EQ(restored.n_bytes, saved.n_bytes);
  EXPECT_GT(saved.n_bytes, 16 * LargeBlocks::kBytes);
  EXPECT_LE(from_runner.most_bytes(), kPieceBytes);
  EXPECT_LE(to_runner.most_bytes(), kPieceBytes);
  const auto next = submit(to, Request{.prompt = joined(history, first->tokens), .max_tokens = 1});
  run(to);
  EXPECT_EQ(next->finish->usage.cached_tokens, 253);
  EXPECT_TRUE(from_runner.violations().empty() && to_runner.violations().empty());
}

}  // namespace
}  // namespace ingot
