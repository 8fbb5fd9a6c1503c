// Helpers of the engine tests: a sink that stores its calls, and the expected output of a request.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/fake_runner.h"
#include "engine/request.h"
#include "engine/speculate/oracle.h"
#include "test_seed.h"

namespace ingot {

using Tokens = std::vector<int32_t>;

class Collector : public TokenSink {
 public:
  void on_prompt_token(const Sampled& token) override {
    EXPECT_TRUE(tokens.empty() && !finish) << "a token of the prompt after one of the output";
    scored.push_back(token);
  }
  void on_logits(int position, std::span<const float> row) override {
    EXPECT_TRUE(tokens.empty() && !finish) << "logits after a token of the output";
    EXPECT_TRUE(logits.emplace(position, std::vector<float>(row.begin(), row.end())).second) << "position " << position;
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

  std::vector<Sampled> scored;                // tokens of the prompt
  std::map<int, std::vector<float>> logits;  // by position in the prompt
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::optional<Finish> finish;
};

// Submits the request with a sink of its own.
inline std::shared_ptr<Collector> submit(Engine& engine, Request request) {
  const auto sink = std::make_shared<Collector>();
  request.sink = sink;
  engine.submit(std::move(request));
  return sink;
}

// Steps until no request is left.
inline void run(Engine& engine) {
  while (engine.step()) {}
}

inline Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The clock of engines whose tests set the time.
inline Clock::time_point fake_time;

struct Expected {
  std::vector<int32_t> tokens;
  FinishReason reason = FinishReason::kLength;
  int32_t stop_token = -1;
};

// Computes the output token by token, without an engine.
inline Expected expected_output(const Request& request, const RunnerInfo& info) {
  Expected expected;
  std::vector<int32_t> history = request.prompt;
  const int limit = context_limit(info), n_prompt = static_cast<int>(history.size());
  const int n_most = request.max_tokens < 0 ? limit - n_prompt : request.max_tokens;
  std::optional<Matcher> matcher;
  if (request.constraint) matcher.emplace(request.constraint);
  for (int i = 0; i < n_most; ++i) {
    int32_t token = FakeRunner::next_token(history, request.sampling.seed, info.n_vocab, request.embeddings,
                                           request.source);
    const auto& stops = request.stop_tokens;
    const auto stops_here = [&] {
      return !request.ignore_eos && std::find(stops.begin(), stops.end(), token) != stops.end();
    };
    // The fake model replaces forbidden tokens in this way.
    const auto mask = matcher ? matcher->mask() : nullptr;
    const auto is_forbidden = [&] {
      return (i < request.min_tokens && stops_here()) || (mask && !allows_token(*mask, token));
    };
    for (int n = 0; is_forbidden(); token = (token + 1) % info.n_vocab)
      if (++n == info.n_vocab) return expected.reason = FinishReason::kError, expected;
    if (stops_here()) {
      expected.reason = FinishReason::kStop;
      expected.stop_token = token;
      break;
    }
    expected.tokens.push_back(token);
    history.push_back(token);
    if (!matcher) continue;
    matcher->accept(token);
    if (matcher->is_over()) {
      expected.reason = FinishReason::kStop;
      break;
    }
  }
  return expected;
}

// An image for the fake model: equal ids mean equal images. rows: [n_rows, dim]
inline PromptEmbedding image(int id, int position, int n_rows, int dim) {
  std::vector<float> rows;
  for (int i = 0; i < n_rows * dim; ++i) rows.push_back(static_cast<float>(1000 * id + i) + 0.5f);
  return {position, n_rows, {static_cast<uint64_t>(id) + 1, static_cast<uint64_t>(id) << 32}, SharedFloats(std::move(rows))};
}

// The id identifies the source.
inline RequestSource source_of_rows(int id, int n_rows, int dim) {
  const PromptEmbedding rows = image(id, 0, n_rows, dim);
  return {n_rows, rows.digest, rows.rows};
}

// Drafts that every step verifies.
using Propose = std::function<std::vector<int32_t>(std::span<const int32_t> history)>;
class FixedProposer final : public Proposer {
 public:
  explicit FixedProposer(Propose propose) : propose_(std::move(propose)) {}
  Proposal propose(std::span<const int32_t> history, int, const GoesOn&) override {
    return {.tokens = propose_(history)};
  }
  bool adapts() const override { return false; }

 private:
  const Propose propose_;
};
inline std::shared_ptr<Proposer> fixed(Propose propose) { return std::make_shared<FixedProposer>(std::move(propose)); }

// Drafts that are all equal to the model's tokens.
inline Propose right_drafts(const Request& request, const RunnerInfo& info, int n) {
  return [seed = request.sampling.seed, embeddings = request.embeddings, source = request.source,
          n_vocab = info.n_vocab, n](std::span<const int32_t> history) {
    std::vector<int32_t> all(history.begin(), history.end());
    for (int i = 0; i < n; ++i) all.push_back(FakeRunner::next_token(all, seed, n_vocab, embeddings, source));
    return std::vector<int32_t>(all.begin() + static_cast<ptrdiff_t>(history.size()), all.end());
  };
}

inline Propose wrong_drafts(const Request& request, const RunnerInfo& info, int n) {
  return [right = right_drafts(request, info, n), n_vocab = info.n_vocab](std::span<const int32_t> history) {
    std::vector<int32_t> drafts = right(history);
    for (int32_t& token : drafts) token = (token + 1) % n_vocab;
    return drafts;
  };
}

class Random {
 public:
  explicit Random(unsigned seed = test_seed()) : seed_(seed), engine_(seed) {}
  unsigned seed() const { return seed_; }
  int integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }
  bool chance(double p) { return std::bernoulli_distribution(p)(engine_); }

  // A request that fits the context. Its stop tokens end some outputs early.
  Request request(const RunnerInfo& info, std::shared_ptr<TokenSink> sink) {
    Request r;
    const int limit = context_limit(info);
    r.prompt.resize(integer(1, chance(0.5) ? std::min(4, limit - 1) : limit - 1));
    for (int32_t& token : r.prompt) token = integer(0, info.n_vocab - 1);
    if (info.source.dim > 0)
      r.source = source_of_rows(integer(0, 2), integer(1, info.source.max_rows), info.source.dim);
    if (chance(0.5)) {  // a prefix that other requests share
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
    if (info.takes_embeddings && chance(0.4))
      r.embeddings = images(static_cast<int>(r.prompt.size()), info.embedding_dim);
    r.sink = std::move(sink);
    return r;
  }

  // One or two of three images, at random places in a prompt.
  std::vector<PromptEmbedding> images(int n_prompt, int dim) {
    std::vector<PromptEmbedding> all;
    for (int begin = 0; begin < n_prompt && all.size() < 2;) {
      const int position = chance(0.3) ? begin : integer(begin, n_prompt - 1),
                n_rows = integer(1, std::min(6, n_prompt - position));
      all.push_back(image(integer(0, 2), position, n_rows, dim));
      begin = position + n_rows + (chance(0.5) ? n_prompt : 0);
    }
    return all;
  }

  // Any number of drafts, right up to some place or wrong from the start. Sometimes an empty list or an invalid token.
  Propose drafts(const Request& request, const RunnerInfo& info) {
    const double p_right = chance(0.3) ? 1 : integer(0, 9) * 0.1;
    const auto random = std::make_shared<Random>(static_cast<unsigned>(integer(0, 1 << 30)));
    return [right = right_drafts(request, info, 6), random, p_right,
            n_vocab = info.n_vocab](std::span<const int32_t> history) {
      std::vector<int32_t> all = right(history);
      all.resize(static_cast<size_t>(random->integer(0, 6)));
      for (int32_t& token : all)
        if (!random->chance(p_right))
          token = random->integer(random->chance(0.1) ? -1 : 0, random->chance(0.1) ? n_vocab : n_vocab - 1);
      return all;
    };
  }

  // Drafts that every step verifies, or drafts whose number the engine chooses.
  std::shared_ptr<Proposer> proposer(const Request& request, const RunnerInfo& info) {
    if (chance(0.5)) return fixed(drafts(request, info));
    return std::make_shared<OracleProposer>(expected_output(request, info).tokens, request.prompt.size(), info.n_vocab,
                                            integer(0, 10) * 0.1, static_cast<uint64_t>(integer(0, 1 << 30)));
  }

 private:
  unsigned seed_;
  std::mt19937 engine_;
};

inline Tokens random_tokens(Random& random, int n, int n_vocab = 1000) {
  Tokens tokens(n);
  for (int32_t& token : tokens) token = random.integer(0, n_vocab - 1);
  return tokens;
}

}  // namespace ingot
