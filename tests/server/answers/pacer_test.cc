// Pacer: fast output is written together, the first and the last output at once, and no output is lost.
#include "server/answers/pacer.h"

#include <deque>
#include <future>

#include "server/rig.h"

namespace ingot {
namespace {

using nlohmann::json;
using Milliseconds = std::chrono::milliseconds;

TEST(Pacer, RunsEachJobOnceWhenItsSlotIsOver) {
  Workers workers(2);
  Pacer pacer(workers, Milliseconds(5), Milliseconds(5));
  const Pacer::Stream stream(pacer);
  std::atomic<int> left{4000}, n_early{0};
  std::promise<void> done;
  const auto post_some = [&] {
    for (int i = 0; i < 2000; ++i) {
      const auto begin = Pacer::Clock::now();
      pacer.at_end_of_slot([&, begin] {
        n_early += pacer.in_one_slot(begin, Pacer::Clock::now());
        if (--left == 0) done.set_value();
      });
      if (i % 200 == 0) std::this_thread::sleep_for(Milliseconds(3));
    }
  };
  std::thread other(post_some);
  post_some();
  other.join();
  EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(120)), std::future_status::ready);
  workers.stop();  // after its last job, a worker still looks for more
  EXPECT_EQ(n_early, 0);
}

// Jobs of long slots are waiting when jobs of shorter slots arrive.
TEST(Pacer, SlotsGrowAndShrinkWithTheStreams) {
  Workers workers(2);
  Pacer pacer(workers, Milliseconds(200), Milliseconds(2));
  std::atomic<int> left{300};
  std::promise<void> done;
  const auto begin = Pacer::Clock::now();
  for (int i = 0; i < 300; ++i) {
    std::deque<Pacer::Stream> streams;
    for (int k = 0; k < i % 3 * 50; ++k) streams.emplace_back(pacer);
    pacer.at_end_of_slot([&] {
      if (--left == 0) done.set_value();
    });
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(120)), std::future_status::ready);
  EXPECT_GE(Pacer::Clock::now() - begin, Milliseconds(60));
  workers.stop();  // after its last job, a worker still looks for more
  const Pacer::Stream one(pacer);
  EXPECT_TRUE(pacer.in_one_slot(Pacer::Clock::time_point(Milliseconds(6)), Pacer::Clock::time_point(Milliseconds(7))));
  EXPECT_FALSE(pacer.in_one_slot(Pacer::Clock::time_point(Milliseconds(7)), Pacer::Clock::time_point(Milliseconds(8))));
  const Pacer::Stream two(pacer);
  EXPECT_TRUE(pacer.in_one_slot(Pacer::Clock::time_point(Milliseconds(8)), Pacer::Clock::time_point(Milliseconds(11))));
}

TEST(Pacer, AStreamMayOutliveIt) {
  Workers workers(1);
  auto pacer = std::make_unique<Pacer>(workers, Milliseconds(5));
  auto stream = std::make_unique<Pacer::Stream>(*pacer);
  const auto waits = [&] { return pacer->should_wait(Pacer::Clock::time_point(), Pacer::Clock::time_point()); };
  EXPECT_TRUE(waits()) << "one stream: a slot of a millisecond";
  pacer = std::make_unique<Pacer>(workers, Milliseconds(5));
  EXPECT_FALSE(waits()) << "the stream counts for its own pacer only";
  stream.reset();
  EXPECT_FALSE(waits());
}

std::shared_ptr<Recorder> stream_of(Rig& rig, int n) {
  auto recorder =
      rig.post("/v1/completions", json{{"prompt", {1, 2}}, {"seed", 3}, {"max_tokens", n}, {"stream", true}});
  EXPECT_TRUE(recorder->wait());
  EXPECT_EQ(streamed_text(recorder->body()), rig.expected({1, 2}, 3, n));
  return recorder;
}

const AppOptions kLongSlots{.stream_interval = std::chrono::hours(1), .stream_interval_each = std::chrono::hours(1)};

// A slot is longer than the test. So only two writes do not wait for its end: the first token, and the end with all
// other tokens.
TEST(Pacer, TheFirstTokenAndTheEndWaitForNoSlot) {
  Rig rig({.step_us = 500}, 64, kLongSlots);
  EXPECT_LE(stream_of(rig, 100)->n_writes(), 4);
  EXPECT_TRUE(rig.wait_idle());
}

TEST(Pacer, TokensThatComeFastShareWrites) {
  const Milliseconds slot(40);
  Rig rig({.step_us = 1000}, 64, {.stream_interval = slot, .stream_interval_each = slot});
  const auto begin = Pacer::Clock::now();
  const auto recorder = stream_of(rig, 200);
  const int n_slots = static_cast<int>((Pacer::Clock::now() - begin) / slot) + 1;
  EXPECT_LE(recorder->n_writes(), 2 * n_slots + 4);
}

// Here too, a slot is longer than the test. The stop string ends the answer at once, and the model stops.
TEST(Pacer, AStopStringEndsTheAnswerAtOnce) {
  std::atomic<int64_t> last_step{
      0};  // the model waits here for the answer's end, if it is far ahead of the search for the stop string
  std::atomic<bool> over{false};
  Rig rig({.step_us = 5000,
           .before_forward =
               [&](int64_t step) {
                 for (int i = 0; step == last_step && !over && i < 60'000; ++i)
                   std::this_thread::sleep_for(Milliseconds(1));
               }},
          64, kLongSlots);
  const std::string full = rig.expected({1, 2}, 3, 240);
  std::string stop;
  size_t at = 0;
  for (size_t i = 20; i < 60 && stop.empty(); ++i) {  // a character that first occurs there
    at = i;
    if (full[i] >= ' ' && full[i] <= '~' && full.find(full[i]) == i) stop = full[i];
  }
  ASSERT_FALSE(stop.empty());
  for (bool stream : {true, false}) {
    const int64_t before = rig.model->engine().gauges().n_output_tokens;
    over = false;
    last_step = rig.model->engine().gauges().n_steps + 150;
    const auto recorder =
        rig.post("/v1/completions",
                 json{{"prompt", {1, 2}}, {"seed", 3}, {"max_tokens", 240}, {"stream", stream}, {"stop", stop}});
    ASSERT_TRUE(recorder->wait());
    over = true;
    EXPECT_EQ(stream ? streamed_text(recorder->body()) : recorder->json()["choices"][0]["text"].get<std::string>(),
              full.substr(0, at));
    EXPECT_LE(recorder->n_writes(), stream ? 4 : 0);
    EXPECT_TRUE(rig.wait_idle());
    EXPECT_LT(rig.model->engine().gauges().n_output_tokens - before, 200) << "it has gone on to the limit";
  }
}

// Text after the check for stop strings shares writes too, and is written even if no text follows.
TEST(Pacer, TextThatStopStringsLetThroughSharesWrites) {
  const Milliseconds slot(40);
  Rig rig({.step_us = 1000}, 64, {.stream_interval = slot, .stream_interval_each = slot});
  const auto begin = Pacer::Clock::now();
  const auto recorder = rig.post(
      "/v1/completions",
      json{{"prompt", {1, 2}}, {"seed", 3}, {"max_tokens", 200}, {"stream", true}, {"stop", "not to be found"}});
  ASSERT_TRUE(recorder->wait());
  EXPECT_EQ(streamed_text(recorder->body()), rig.expected({1, 2}, 3, 200));
  const int n_slots = static_cast<int>((Pacer::Clock::now() - begin) / slot) + 1;
  EXPECT_LE(recorder->n_writes(), 2 * n_slots + 4);
}

// Held tokens are written although no later step ends.
TEST(Pacer, HeldTokensGoOutThoughNothingFollows) {
  std::promise<void> go_on;
  auto may_go_on = go_on.get_future();
  Rig rig({.before_forward = [&](int64_t step) {
             if (step == 12) may_go_on.wait();
           }},
          64, {.stream_interval = Milliseconds(50), .stream_interval_each = Milliseconds(50)});
  const auto recorder =
      rig.post("/v1/completions", json{{"prompt", {1, 2}}, {"seed", 3}, {"max_tokens", 40}, {"stream", true}});
  EXPECT_TRUE(recorder->wait_for_bytes(700)) << "more than the first token's event";
  go_on.set_value();
  EXPECT_TRUE(recorder->wait());
  EXPECT_EQ(streamed_text(recorder->body()), rig.expected({1, 2}, 3, 40));
}

TEST(Pacer, WithoutSlotsEachTokenGoesByItself) {
  Rig rig({.step_us = 200}, 64, {.stream_interval = Milliseconds(0)});
  stream_of(rig, 100);
}

}  // namespace
}  // namespace ingot
