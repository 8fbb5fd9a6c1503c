// Answers that outlive their connection: sent again from their beginning, bounded in time, number and memory.
#include "server/answers/kept_answers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "server/rig.h"
#include "test_seed.h"

namespace ingot {
namespace {

using json = nlohmann::json;
using std::chrono::seconds;

std::atomic<int> kept_now_s{0};  // the time of the tests
KeptAnswers::Clock::time_point kept_now() { return KeptAnswers::Clock::time_point(seconds(kept_now_s)); }

constexpr const char* kName = "a-name-of-sixteen";

HttpRequest kept_request(const std::string& name = kName, const std::string& client = "") {
  return {.method = "POST", .path = "/x", .headers = {{"x-keep-answer", name}}, .client = client};
}

int status_of(const std::function<void()>& f) {
  try {
    f();
    return 200;
  } catch (const ApiError& error) {
    return error.status();
  }
}

// Clients come, leave and are slow at any time. Each one that stays gets every byte once.
TEST(KeptAnswers, EveryListenerGetsTheWholeAnswer) {
  std::mt19937 random(test_seed());
  const auto chance = [&](int percent) { return static_cast<int>(random() % 100) < percent; };
  for (int round = 0; round < 200; ++round) {
    KeptAnswers kept({.now = kept_now});
    std::vector<std::shared_ptr<Recorder>> staying{std::make_shared<Recorder>()}, leaving;
    auto handler = kept.keep(kept_request(), staying[0]);
    handler->stream({.content_type = "text/event-stream"});
    handler->on_gone([] { ADD_FAILURE() << "a kept answer is not cancelled when clients leave"; });
    std::string whole;
    const auto change_listeners = [&] {
      if (chance(30)) {
        auto& list = chance(50) ? staying : leaving;
        list.push_back(std::make_shared<Recorder>());
        list.back()->full_ = chance(30);
        kept.send({}, kName, list.back());
      }
      if (!leaving.empty() && chance(50)) {
        leaving.back()->leave();
        leaving.pop_back();
      }
      for (const auto& one : staying) chance(20) ? void(one->full_ = true) : chance(30) ? one->make_room() : void();
    };
    for (int i = 0, n = static_cast<int>(random() % 20); i < n; ++i) {
      const std::string piece(random() % 3 == 0 ? random() % 100000 : random() % 100, static_cast<char>('a' + i));
      whole += piece;
      handler->write(piece);
      change_listeners();
    }
    handler->end("the end");
    whole += "the end";
    handler.reset();
    for (int i = 0; i < 3; ++i) change_listeners();
    for (const auto& one : staying) {
      one->make_room();
      ASSERT_TRUE(one->wait(seconds(0))) << "round " << round;
      EXPECT_EQ(one->body(), whole);
      EXPECT_FALSE(one->failed());
    }
  }
}

TEST(KeptAnswers, TimeWithoutAListenerEndsIt) {
  KeptAnswers kept({.time = seconds(10), .now = kept_now});
  auto client = std::make_shared<Recorder>();
  auto handler = kept.keep(kept_request(), client);
  int n_cancelled = 0;
  handler->stream({});
  handler->on_gone([&] { ++n_cancelled; });
  kept_now_s += 100;
  kept.tick();
  EXPECT_EQ(kept.size(), 1u) << "somebody listens";
  client->leave();
  kept_now_s += 9;
  kept.tick();
  EXPECT_EQ(n_cancelled, 0);
  auto again = std::make_shared<Recorder>();
  kept.send({}, kName, again);
  kept_now_s += 9;
  again->leave();
  kept_now_s += 9;
  kept.tick();
  EXPECT_EQ(n_cancelled, 0);
  kept_now_s += 1;
  kept.tick();
  EXPECT_EQ(n_cancelled, 1);
  EXPECT_EQ(kept.size(), 0u);
  EXPECT_EQ(status_of([&] { kept.send({}, kName, again); }), 404);
}

TEST(KeptAnswers, AnAnswerThatIsOverStaysForAWhile) {
  KeptAnswers kept({.time = seconds(10), .now = kept_now});
  auto handler = kept.keep(kept_request(), std::make_shared<Recorder>());
  handler->respond({.status = 503, .body = "sorry"});
  handler.reset();
  kept_now_s += 9;
  kept.tick();
  auto again = std::make_shared<Recorder>();
  kept.send({}, kName, again);
  EXPECT_EQ(again->status(), 503);
  EXPECT_EQ(again->body(), "sorry");
  kept_now_s += 1;
  kept.tick();
  EXPECT_EQ(kept.size(), 0u);
}

TEST(KeptAnswers, FailuresAreKeptToo) {
  for (const bool has_begun : {false, true}) {
    KeptAnswers kept({.now = kept_now});
    auto client = std::make_shared<Recorder>(), again = std::make_shared<Recorder>();
    auto handler = kept.keep(kept_request(), client);
    handler->stream({});
    if (has_begun) handler->write("text");
    handler->fail({.status = 500, .body = "broken"}, "last");
    kept.send({}, kName, again);
    for (const auto& one : {client, again}) {
      EXPECT_EQ(one->body(), has_begun ? "textlast" : "broken");
      EXPECT_EQ(one->status(), has_begun ? 200 : 500);
    }
  }
}

TEST(KeptAnswers, OnlyItsKeyAndItsNameFindAnAnswer) {
  KeptAnswers kept({.now = kept_now});
  auto handler = kept.keep(kept_request(kName, "alice"), std::make_shared<Recorder>());
  handler->stream({});
  auto other = std::make_shared<Recorder>();
  EXPECT_EQ(status_of([&] { kept.send({.client = "bob"}, kName, other); }), 404);
  EXPECT_FALSE(kept.cancel({.client = "bob"}, kName));
  EXPECT_EQ(status_of([&] { kept.send({.client = "alice"}, "another-name-of-it", other); }), 404);
  EXPECT_EQ(status_of([&] { kept.keep(kept_request(kName, "alice"), other); }), 409);
  EXPECT_EQ(status_of([&] { kept.send({.client = "alice"}, kName, other); }), 200);
  for (const std::string name : {"short", "with a space in it", "with/a/slash/in/it"})
    EXPECT_EQ(status_of([&] { kept.keep(kept_request(name), other); }), 400) << name;
  EXPECT_EQ(status_of([&] { kept.keep(kept_request(std::string(129, 'x')), other); }), 400);
}

TEST(KeptAnswers, ACancelledAnswerIsGone) {
  KeptAnswers kept({.now = kept_now});
  auto client = std::make_shared<Recorder>();
  auto handler = kept.keep(kept_request(), client);
  EXPECT_TRUE(kept.cancel({}, kName));  // before the handler has begun
  EXPECT_EQ(client->status(), 410);
  bool cancelled = false;
  handler->stream({});
  handler->on_gone([&] { cancelled = true; });
  EXPECT_TRUE(cancelled);
  handler->end("too late");
  EXPECT_EQ(kept.size(), 0u);
}

TEST(KeptAnswers, ALostJobIsAnError) {
  KeptAnswers kept({.now = kept_now});
  auto client = std::make_shared<Recorder>();
  std::weak_ptr<Recorder> weak = client;
  auto handler = kept.keep(kept_request(), std::move(client));
  handler.reset();
  EXPECT_TRUE(weak.expired()) << "the client's own responder answers when it is destroyed";
  kept.tick();
  EXPECT_EQ(kept.size(), 0u);
}

TEST(KeptAnswers, MemoryAndNumberAreBounded) {
  const auto memory = std::make_shared<MemoryBudget>(size_t{8} << 20);
  {
    KeptAnswers kept({.now = kept_now, .memory = memory, .max_answers = 2, .max_bytes = 4 << 20});
    auto client = std::make_shared<Recorder>();
    auto handler = kept.keep(kept_request(), client);
    int n_cancelled = 0;
    handler->stream({});
    handler->on_gone([&] { ++n_cancelled; });
    for (int i = 0; i < 5; ++i) handler->write(std::string(1 << 20, 'x'));
    EXPECT_EQ(n_cancelled, 1) << "what follows would have no room either";
    EXPECT_TRUE(client->failed());
    EXPECT_NE(client->body().find("longer than 4 MiB"), std::string::npos);
    EXPECT_LE(memory->used(), size_t{4} << 20);
    auto second = kept.keep(kept_request("the-second-answer"), std::make_shared<Recorder>());
    auto third = kept.keep(kept_request("the-third-answer-"), std::make_shared<Recorder>());
    EXPECT_EQ(kept.size(), 2u) << "the first is over, so its place is free";
    auto fourth_client = std::make_shared<Recorder>();
    EXPECT_EQ(kept.keep(kept_request("the-fourth-answer"), fourth_client), fourth_client) << "not kept";
    third->stream({});
    third->write("a");
    MemoryBudget::Part others(memory);
    ASSERT_TRUE(others.set(memory->limit() / 8 * 7 - memory->used()));
    third->write(std::string(1 << 20, 'x'));
    auto again = std::make_shared<Recorder>();
    kept.send({}, "the-third-answer-", again);
    EXPECT_NE(again->body().find("memory"), std::string::npos);
  }
  EXPECT_EQ(memory->used(), 0u);
  KeptAnswers none({.time = seconds(0)});
  auto client = std::make_shared<Recorder>();
  EXPECT_EQ(none.keep(kept_request(), client), client);
}

// Through the App: the client leaves in the middle, another request gets the whole answer, and DELETE ends the run.
TEST(KeptAnswers, AReloadGetsTheAnswerAgain) {
  std::atomic<bool> goes_on{false};
  Rig rig({.before_forward = [&](int64_t step) {
    if (step >= 8) goes_on.wait(false);
  }});
  const json body = {{"prompt", {1, 2, 3}}, {"seed", 5}, {"max_tokens", 60}, {"stream", true}, {"ignore_eos", true}};
  const auto first = rig.post("/v1/completions", body, {{"x-keep-answer", kName}});
  ASSERT_TRUE(first->wait_for_bytes(200));
  first->leave();
  const auto second = rig.send("GET", std::string("/answers/") + kName);
  EXPECT_TRUE(second->wait_for_bytes(200)) << "what there is so far comes at once";
  goes_on = true;
  goes_on.notify_all();
  ASSERT_TRUE(second->wait());
  EXPECT_EQ(streamed_text(second->body()), rig.expected({1, 2, 3}, 5, 60));
  const auto third = rig.send("GET", std::string("/answers/") + kName);
  ASSERT_TRUE(third->wait());
  EXPECT_EQ(third->body(), second->body());
  EXPECT_TRUE(rig.wait_idle());
  EXPECT_EQ(rig.send("DELETE", std::string("/answers/") + kName)->status(), 200);
  EXPECT_EQ(rig.send("GET", std::string("/answers/") + kName)->status(), 404);
}

TEST(KeptAnswers, DeleteEndsTheRun) {
  Rig rig({.step_us = 1000});
  const json body = {{"prompt", {1, 2, 3}}, {"seed", 5}, {"stream", true}, {"ignore_eos", true}};
  const auto first = rig.post("/v1/completions", body, {{"x-keep-answer", kName}});
  ASSERT_TRUE(first->wait_for_bytes(200));
  first->leave();
  EXPECT_EQ(rig.send("DELETE", std::string("/answers/") + kName)->status(), 200);
  EXPECT_TRUE(rig.wait_idle()) << "nothing is computed for nobody";
}

}  // namespace
}  // namespace ingot
