// --replay-on-device-loss with devices that are lost at chosen steps. The requests are recomputed once on a fresh
// engine, and clients notice only a delay.
#include <atomic>

#include "base/device_lost.h"
#include "server/rig.h"

namespace ingot {
namespace {

using nlohmann::json;

// The n-th engine loses its device at step lost_at[n]. Later engines keep their devices. An engine may also fail to
// load.
struct LosingRig {
  std::vector<int64_t> lost_at;
  std::function<void(int n, FakeOptions&)> change = [](int, FakeOptions&) {};
  std::atomic<int> n_engines{0};
  bool fails_to_load = false;
  Rig rig;

  explicit LosingRig(std::vector<int64_t> lost, bool replays = true, FakeOptions options = {.step_us = 100})
      : lost_at(std::move(lost)),
        rig(options, 64, {}, [this, options](ServedModelParts& parts) { load(parts, options); },
            {.replaces_lost = replays}) {}
  ~LosingRig() {
    for (const auto& model : rig.app.models()) model->stop();
  }

  void load(ServedModelParts& parts, FakeOptions options) {
    const int n = n_engines++;
    if (n > 0 && fails_to_load) throw Error("the driver allows no fresh engine");
    options.info.n_vocab = 259;
    if (static_cast<size_t>(n) < lost_at.size())
      options.before_forward = [at = lost_at[static_cast<size_t>(n)]](int64_t step) {
        if (step == at) throw DeviceLost("an illegal memory access");
      };
    change(n, options);
    parts.runner = std::make_unique<FakeRunner>(options);
  }
};

json request(const std::vector<int32_t>& prompt, uint64_t seed, int n, bool stream) {
  return {{"prompt", prompt}, {"seed", seed}, {"max_tokens", n}, {"stream", stream}};
}

TEST(Replay, TheAnswersAreTheSame) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (int round = 0; round < 12; ++round) {
    LosingRig losing({random.integer(0, 25)});
    struct Client {
      std::shared_ptr<Recorder> recorder;
      std::string expected;
      bool stream;
    };
    std::vector<Client> clients;
    for (int i = 0; i < 24; ++i) {
      std::vector<int32_t> prompt(static_cast<size_t>(random.integer(1, 40)));
      for (int32_t& token : prompt) token = random.integer(0, 258);
      const int n = random.integer(1, 60);
      const bool stream = random.chance(0.5);
      const auto seed = static_cast<uint64_t>(i);
      clients.push_back({losing.rig.post("/v1/completions", request(prompt, seed, n, stream)),
                         losing.rig.expected(prompt, seed, n), stream});
    }
    for (const Client& client : clients) {
      ASSERT_TRUE(client.recorder->wait());
      if (client.recorder->status() == 503) continue;  // it arrived between the loss and the fresh engine
      ASSERT_EQ(client.recorder->status(), 200) << client.recorder->body();
      EXPECT_EQ(client.stream ? streamed_text(client.recorder->body())
                              : client.recorder->json()["choices"][0]["text"].get<std::string>(),
                client.expected);
    }
    EXPECT_EQ(losing.n_engines, 2);
    EXPECT_TRUE(losing.rig.pool.replace_lost());
  }
}

TEST(Replay, ChoicesAndStopStrings) {
  LosingRig plain({}), losing({15});
  json body = request({1, 2, 3}, 7, 40, false);
  body["n"] = 3, body["logprobs"] = 2;
  const auto expected = plain.rig.post("/v1/completions", body), got = losing.rig.post("/v1/completions", body);
  ASSERT_TRUE(expected->wait() && got->wait());
  EXPECT_EQ(got->json()["choices"], expected->json()["choices"]);
  EXPECT_EQ(got->json()["usage"]["completion_tokens"], expected->json()["usage"]["completion_tokens"]);
  EXPECT_EQ(losing.n_engines, 2);
}

TEST(Replay, OnlyWhereTheServerIsAskedTo) {
  LosingRig losing({5}, false);
  const auto got = losing.rig.post("/v1/completions", request({1, 2}, 1, 40, false));
  ASSERT_TRUE(got->wait());
  EXPECT_EQ(got->status(), 500);
  EXPECT_EQ(losing.n_engines, 1);
}

TEST(Replay, OnceForEachRequest) {
  LosingRig losing({5, 8});
  const auto got = losing.rig.post("/v1/completions", request({1, 2}, 1, 40, true));
  ASSERT_TRUE(got->wait());
  EXPECT_TRUE(got->failed());
  EXPECT_NE(got->body().find("illegal memory access"), std::string::npos) << got->body();
  EXPECT_TRUE(losing.rig.pool.replace_lost());
  const auto again = losing.rig.post("/v1/completions", request({1, 2}, 1, 40, false));
  ASSERT_TRUE(again->wait());
  EXPECT_EQ(again->json()["choices"][0]["text"], losing.rig.expected({1, 2}, 1, 40));
  EXPECT_EQ(losing.n_engines, 3);
}

TEST(Replay, WhereNoFreshEngineCanBeHadTheRequestFails) {
  LosingRig losing({5});
  losing.fails_to_load = true;
  const auto got = losing.rig.post("/v1/completions", request({1, 2}, 1, 40, false));
  ASSERT_TRUE(got->wait());
  EXPECT_EQ(got->status(), 503);
  EXPECT_NE(got->body().find("allows no fresh engine"), std::string::npos) << got->body();
  EXPECT_FALSE(losing.rig.pool.replace_lost()) << "so that the process ends";
}

// A client has read tokens that the fresh engine would not write. The request fails, because a text must not mix two
// runs.
TEST(Replay, OtherTokensAreAnError) {
  LosingRig losing({20});
  losing.change = [](int n, FakeOptions& options) {
    if (n == 1) options.writes = [](const SampleRow&) { return 65; };
  };
  const auto got = losing.rig.post("/v1/completions", request({1, 2}, 1, 40, true));
  ASSERT_TRUE(got->wait());
  EXPECT_TRUE(got->failed());
}

TEST(Replay, WhoLeavesMeanwhileIsForgotten) {
  LosingRig losing({10});
  std::vector<std::shared_ptr<Recorder>> recorders;
  for (int i = 0; i < 8; ++i) recorders.push_back(losing.rig.post("/v1/completions", request({i}, 1, 200, true)));
  while (losing.n_engines < 2) std::this_thread::yield();
  for (const auto& recorder : recorders) recorder->leave();
  const auto after = losing.rig.post("/v1/completions", request({1, 2}, 1, 20, false));
  ASSERT_TRUE(after->wait());
  for (const auto& recorder : recorders) recorder->wait();
  for (int i = 0; i < 2000 && losing.rig.app.models()[0]->gauges().n_running > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(losing.rig.app.models()[0]->gauges().n_running, 0);
}

// The server's periodic check replaces a lost model even without a request.
TEST(Replay, ThePoolReplacesByItself) {
  LosingRig losing({3});
  const auto got = losing.rig.post("/v1/completions", request({1}, 1, 30, false));
  for (int i = 0; i < 20'000 && losing.n_engines < 2; ++i) {
    EXPECT_TRUE(losing.rig.pool.replace_lost());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(got->wait());
  EXPECT_EQ(got->json()["choices"][0]["text"], losing.rig.expected({1}, 1, 30));
  EXPECT_EQ(losing.n_engines, 2);
}

}  // namespace
}  // namespace ingot
