// EmbedQueue with a computation of known rows. Each request gets the rows of its own texts, large requests do not delay
// others, and failures, cancels and the end affect no other requests.
#include "server/models/embed_queue.h"

#include <gtest/gtest.h>

#include <future>
#include <set>
#include <stdexcept>

#include "base/device_lost.h"
#include "engine/collector.h"

namespace ingot {
namespace {

constexpr int kWidth = 3;

// A row is the sum of a text's tokens, their number, and the start of its second part. Token -7 fails the batch.
std::vector<float> rows_of(const std::vector<EmbedText>& texts) {
  std::vector<float> rows;
  for (const EmbedText& text : texts) {
    float sum = 0;
    for (int32_t id : text.tokens) {
      if (id == -7) throw std::runtime_error("no such luck");
      sum += static_cast<float>(id);
    }
    rows.insert(rows.end(), {sum, static_cast<float>(text.tokens.size()), static_cast<float>(text.second)});
  }
  return rows;
}

// Records the batches, and computes each when allowed.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  int n_allowed = 0;
  std::vector<std::vector<EmbedText>> batches;

  EmbedQueue::Compute compute() {
    return [this](std::vector<EmbedText> texts) {
      std::unique_lock lock(mutex);
      batches.push_back(texts);
      changed.notify_all();
      changed.wait(lock, [&] { return n_allowed > 0; });
      --n_allowed;
      return rows_of(texts);
    };
  }
  void wait_for_batches(size_t n) {
    std::unique_lock lock(mutex);
    ASSERT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return batches.size() >= n; }));
  }
  void allow(int n) {
    std::lock_guard lock(mutex);
    n_allowed += n;
    changed.notify_all();
  }
};

std::future<EmbedQueue::Result> ask(EmbedQueue& queue, std::vector<EmbedText> texts, uint64_t* id = nullptr) {
  auto promise = std::make_shared<std::promise<EmbedQueue::Result>>();
  auto future = promise->get_future();
  const uint64_t given =
      queue.submit(std::move(texts), [promise](EmbedQueue::Result r) { promise->set_value(std::move(r)); });
  if (id) *id = given;
  return future;
}

std::vector<EmbedText> texts_of(int n, int n_tokens) {
  return std::vector<EmbedText>(static_cast<size_t>(n),
                                {.tokens = std::vector<int32_t>(static_cast<size_t>(n_tokens), 1)});
}

TEST(EmbedQueue, EveryRowIsOfItsText) {
  Random random;
  SCOPED_TRACE(random.seed());
  EmbedQueue queue(rows_of, kWidth, {.batch_tokens = 64, .batch_texts = 8});
  queue.start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&queue, seed = random.integer(0, 1 << 30)] {
      std::mt19937 draw(static_cast<unsigned>(seed));
      for (int i = 0; i < 50; ++i) {
        std::vector<EmbedText> texts;
        for (unsigned k = draw() % 30 + 1; k > 0; --k) {
          EmbedText text{.second = static_cast<int>(draw() % 5)};
          for (unsigned j = draw() % 90 + 1; j > 0; --j) text.tokens.push_back(static_cast<int32_t>(draw() % 100));
          texts.push_back(std::move(text));
        }
        const std::vector<float> expected = rows_of(texts);
        const EmbedQueue::Result result = ask(queue, std::move(texts)).get();
        EXPECT_EQ(result.failure, "");
        EXPECT_EQ(result.rows, expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const EngineGauges gauges = queue.gauges();
  EXPECT_EQ(gauges.n_running + gauges.n_waiting, 0);
}

TEST(EmbedQueue, ALargeRequestHoldsUpNobody) {
  Gate gate;
  EmbedQueue queue(gate.compute(), kWidth, {.batch_tokens = 100, .batch_texts = 4});
  queue.start();
  auto large = ask(queue, texts_of(40, 1));
  gate.wait_for_batches(1);
  auto small = ask(queue, texts_of(1, 5));
  gate.allow(2);  // the batch in flight, and the next, which has the small request
  EXPECT_EQ(small.get().rows, (std::vector<float>{5, 5, -1}));
  EXPECT_EQ(large.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  gate.allow(20);
  EXPECT_EQ(large.get().rows.size(), 40u * kWidth);
}

TEST(EmbedQueue, BatchesKeepTheirLimits) {
  Gate gate;
  gate.allow(1000);
  EmbedQueue queue(gate.compute(), kWidth, {.batch_tokens = 50, .batch_texts = 6});
  std::vector<std::future<EmbedQueue::Result>> results;
  for (int n_tokens : {1, 7, 20, 49, 50, 51, 200}) results.push_back(ask(queue, texts_of(9, n_tokens)));
  queue.start();
  for (auto& one : results) EXPECT_EQ(one.get().failure, "");
  for (const auto& batch : gate.batches) {
    size_t n_tokens = 0;
    for (const EmbedText& text : batch) n_tokens += text.tokens.size();
    EXPECT_TRUE(batch.size() == 1 || (n_tokens <= 50 && batch.size() <= 6)) << batch.size() << " texts of " << n_tokens;
  }
}

TEST(EmbedQueue, AFailureCostsThoseOfItsBatchOnly) {
  EmbedQueue queue(rows_of, kWidth, {.batch_tokens = 10, .batch_texts = 4});
  auto bad = texts_of(30, 1);
  bad[2].tokens = {-7};
  auto first = ask(queue, std::move(bad));
  queue.start();
  EXPECT_EQ(first.get().failure, "no such luck");
  EXPECT_EQ(ask(queue, texts_of(2, 2)).get().rows, (std::vector<float>{2, 2, -1, 2, 2, -1}));
  const EngineGauges gauges = queue.gauges();
  EXPECT_EQ(gauges.n_running + gauges.n_waiting, 0);
  EXPECT_EQ(gauges.n_failed_steps, 1);
}

// A lost device fails all requests: those in the batch, those that wait, and later ones.
TEST(EmbedQueue, ALostDeviceCostsAll) {
  Gate gate;
  EmbedQueue queue(
      [inner = gate.compute()](std::vector<EmbedText> texts) -> std::vector<float> {
        inner(std::move(texts));
        throw DeviceLost("an illegal memory access");
      },
      kWidth, {.batch_tokens = 4, .batch_texts = 2});
  queue.start();
  std::vector<std::future<EmbedQueue::Result>> results;
  for (int i = 0; i < 5; ++i) results.push_back(ask(queue, texts_of(2, 2)));
  gate.wait_for_batches(1);
  EXPECT_EQ(queue.fault(), "");
  gate.allow(1);
  for (auto& one : results) EXPECT_EQ(one.get().failure, "an illegal memory access");
  EXPECT_EQ(queue.fault(), "an illegal memory access");
  EXPECT_EQ(ask(queue, texts_of(1, 1)).get().failure, "an illegal memory access");
}

TEST(EmbedQueue, WhoCancelsIsNotCalledAndLeavesNothing) {
  Gate gate;
  EmbedQueue queue(gate.compute(), kWidth, {.batch_tokens = 4, .batch_texts = 4});
  queue.start();
  uint64_t under_way = 0, waiting = 0;
  auto a = ask(queue, texts_of(20, 1), &under_way);
  gate.wait_for_batches(1);
  auto b = ask(queue, texts_of(20, 1), &waiting);
  auto c = ask(queue, texts_of(1, 3));
  queue.cancel(under_way);
  queue.cancel(waiting);
  queue.cancel(waiting);
  queue.cancel(12345);
  gate.allow(2);
  EXPECT_EQ(c.get().rows, (std::vector<float>{3, 3, -1}));
  EXPECT_EQ(gate.batches.size(), 2u);
  queue.stop();
  for (auto* one : {&a, &b}) EXPECT_THROW(one->get(), std::future_error) << "its callback went without being called";
}

TEST(EmbedQueue, TheEndAndImpatience) {
  Gate gate;
  EmbedQueue queue(gate.compute(), kWidth, {.batch_tokens = 4, .batch_texts = 4, .patience = std::chrono::seconds(0)});
  auto late = ask(queue, texts_of(1, 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  queue.start();
  const EmbedQueue::Result result = late.get();
  EXPECT_TRUE(result.too_late);
  EXPECT_NE(result.failure, "");
  queue.stop();
  EXPECT_NE(ask(queue, texts_of(1, 1)).get().failure, "");
}

}  // namespace
}  // namespace ingot
