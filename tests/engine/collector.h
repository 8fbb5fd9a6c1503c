// What the engine tests share: a sink that keeps what it hears, and what it should have heard.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/fake_runner.h"
#include "engine/request.h"

namespace ingot {

class Collector : public TokenSink {
 public:
  void on_prompt_token(const Sampled& token) override {
    EXPECT_TRUE(tokens.empty() && !finish) << "a token of the prompt after one of the output";
    scored.push_back(token);
  }
  void on_token(const Sampled& token) override {
    EXPECT_FALSE(finish) << "a token after the finish";
    tokens.push_back(token.token);
    logprobs.push_back(token.logprob);
  }
  void on_finish(const Finish& f) override {
    EXPECT_FALSE(finish) << "finished twice";
    finish = f;
  }

  std::vector<Sampled> scored;  // of the prompt
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::optional<Finish> finish;
};

struct Expected {
  std::vector<int32_t> tokens;
  FinishReason reason = FinishReason::kLength;
  int32_t stop_token = -1;
};

// One token after the other, with no engine.
inline Expected expected_output(const Request& request, const RunnerInfo& info) {
  Expected expected;
  std::vector<int32_t> history = request.prompt;
  const int limit = context_limit(info), n_prompt = static_cast<int>(history.size());
  const int n_most = request.max_tokens < 0 ? limit - n_prompt : request.max_tokens;
  for (int i = 0; i < n_most; ++i) {
    int32_t token = FakeRunner::next_token(history, request.sampling.seed, info.n_vocab);
    const auto& stops = request.stop_tokens;
    const auto stops_here = [&] { return !request.ignore_eos && std::find(stops.begin(), stops.end(), token) != stops.end(); };
    while (i < request.min_tokens && stops_here()) token = (token + 1) % info.n_vocab;  // as the fake model takes a ban
    if (stops_here()) {
      expected.reason = FinishReason::kStop;
      expected.stop_token = token;
      break;
    }
    expected.tokens.push_back(token);
    history.push_back(token);
  }
  return expected;
}

class Random {
 public:
  explicit Random(unsigned seed = std::random_device()()) : seed_(seed), engine_(seed) {}
  unsigned seed() const { return seed_; }
  int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(engine_); }

  // A request that fits the context, whose stop tokens end one in some outputs early.
  Request request(const RunnerInfo& info, std::shared_ptr<TokenSink> sink) {
    Request r;
    const int limit = context_limit(info);
    r.prompt.resize(integer(1, chance(0.5) ? std::min(4, limit - 1) : limit - 1));
    for (int32_t& token : r.prompt) token = integer(0, info.n_vocab - 1);
    if (chance(0.5)) {  // a beginning that others have too
      const int32_t which = integer(0, std::min(2, info.n_vocab - 1));
      std::fill_n(r.prompt.begin(), integer(0, static_cast<int>(r.prompt.size())), which);
    }
    if (chance(0.7)) r.max_tokens = integer(1, limit - static_cast<int>(r.prompt.size()));
    for (int i = integer(0, 3); i > 0; --i) r.stop_tokens.push_back(integer(0, info.n_vocab - 1));
    r.ignore_eos = chance(0.1);
    if (chance(0.2)) r.min_tokens = integer(0, r.max_tokens < 0 ? limit : r.max_tokens);
    if (chance(0.15)) r.prompt_logprobs = integer(0, 3);
    r.sampling.seed = static_cast<uint64_t>(integer(0, 1000));
    r.sampling.n_logprobs = 0;
    r.sink = std::move(sink);
    return r;
  }

 private:
  unsigned seed_;
  std::mt19937 engine_;
};

}  // namespace ingot
