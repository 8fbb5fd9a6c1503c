// Log-probabilities of prompts, and minimum lengths of outputs. The scores of a prompt's tokens are compared with
// transformers' logits for the same model and text (tests/data/models), with various chunks, other requests, caches and
// preemptions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "collector.h"
#include "devices.h"
#include "engine/engine.h"
#include "model/golden_models.h"

namespace ingot {
namespace {

using testing::HasSubstr;

Ranks load_scored(const std::string& name, RunnerOptions options, const char* device = "ref") {
  auto file = std::make_shared<const Gguf>(Gguf::open((kModels / (name + ".gguf")).string()));
  options.backend.device = device;
  const Config config = config_from_gguf(*file);
  return Ranks(config, gguf_source(file), options, nullptr);
}

// The log softmax of a row, in double.
std::vector<double> log_softmax(std::span<const float> row) {
  const double top = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float logit : row) sum += std::exp(logit - top);
  std::vector<double> result;
  for (const float logit : row) result.push_back(logit - top - std::log(sum));
  return result;
}

void expect_golden_scores(const Golden& golden, const std::vector<Sampled>& scored, int n_top, double tolerance) {
  ASSERT_EQ(scored.size(), golden.tokens.size() - 1);
  const size_t n_vocab = golden.logits.size() / golden.tokens.size();
  for (size_t i = 0; i < scored.size(); ++i) {
    const std::vector<double> expected = log_softmax({&golden.logits[i * n_vocab], n_vocab});
    EXPECT_EQ(scored[i].token, golden.tokens[i + 1]);
    EXPECT_NEAR(scored[i].logprob, expected[static_cast<size_t>(golden.tokens[i + 1])], tolerance) << "token " << i + 1;
    std::vector<double> ranked = expected;
    std::ranges::sort(ranked, std::greater<>());
    ASSERT_EQ(scored[i].top.size(), static_cast<size_t>(n_top));
    for (int k = 0; k < n_top; ++k) {
      EXPECT_NEAR(scored[i].top[k].logprob, ranked[k], tolerance) << "token " << i + 1 << ", rank " << k;
      EXPECT_NEAR(scored[i].top[k].logprob, expected[static_cast<size_t>(scored[i].top[k].token)], tolerance);
    }
  }
}

// rows: logits by position.
void expect_golden_logits(const Golden& golden, const std::map<int, std::vector<float>>& rows, double tolerance) {
  const size_t n_vocab = golden.logits.size() / golden.tokens.size();
  for (const auto& [position, row] : rows) {
    ASSERT_EQ(row.size(), n_vocab);
    for (size_t id = 0; id < n_vocab; ++id)
      ASSERT_NEAR(row[id], golden.logits[static_cast<size_t>(position) * n_vocab + id], 5 * tolerance)
          << "position " << position << ", token " << id;
  }
  if (!rows.empty()) {
    EXPECT_EQ(rows.rbegin()->first, static_cast<int>(golden.tokens.size()) - 1);
  }
}

class Scoring : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(Scoring, PromptsScoreAsTransformersSays) {
  const auto [device, model] = GetParam();
  const bool cuda = std::string_view(device) == "cuda";
  if (!has_device(device)) GTEST_SKIP() << "no " << device;
  const Golden golden = read_golden(model);
  const double tolerance = cuda ? 0.08 : 1e-3;  // f16 activations, like CudaGoldens
  for (const int max_logits : {0, 7, 200}) {
    Ranks runner = load_scored(model,
                               {.n_ctx = 128,
                                .max_batch_tokens = 24,
                                .max_seqs = 4,
                                .max_logits = max_logits,
                                .block_size = 4,
                                .n_kv_tokens = 150,
                                .kv_dtype = DType::kF32},
                               device);
    Engine engine(runner, {.chunk = 11});
    std::vector<std::shared_ptr<Collector>> sinks;
    // Requests for one prompt, which is cached after the first request. Every second request is scored.
    for (int i = 0; i < 7; ++i) {
      sinks.push_back(std::make_shared<Collector>());
      Request request;
      request.prompt = golden.tokens;
      request.max_tokens = 30;
      request.ignore_eos = true;
      request.sampling.temperature = 0;
      request.prompt_logprobs = i % 2 == 0 ? i : -1;
      request.wants_logits = i < 2 || i > 4;
      request.sink = sinks.back();
      engine.submit(request);
      engine.step();
    }
    while (engine.step()) {
    }
    for (int i = 0; i < 7; ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(sinks[i]->tokens, std::vector<int32_t>(golden.greedy.begin(), golden.greedy.begin() + 30));
      if (i % 2 == 0) expect_golden_scores(golden, sinks[i]->scored, i, tolerance);
      if (i % 2 == 1) {
        EXPECT_TRUE(sinks[i]->scored.empty());
      }
      const size_t n_rows = i > 1 && i < 5 ? 0 : i % 2 == 0 ? golden.tokens.size() : 1;
      EXPECT_EQ(sinks[i]->logits.size(), n_rows);
      expect_golden_logits(golden, sinks[i]->logits, tolerance);
    }
    EXPECT_EQ(engine.gauges().blocks_used, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Scoring,
                         testing::Combine(testing::Values("ref", "cuda"),
                                          testing::Values("llama", "gemma2", "qwen35_q8_0")),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param);
                         });

Request fake_request(std::vector<int32_t> prompt, std::shared_ptr<TokenSink> sink) {
  Request request;
  request.prompt = std::move(prompt);
  request.sink = std::move(sink);
  return request;
}

TEST(Scoring, APromptOfOneTokenHasNothingToScore) {
  FakeRunner runner;
  Engine engine(runner);
  const auto sink = std::make_shared<Collector>();
  Request request = fake_request({7}, sink);
  request.prompt_logprobs = 0;
  request.max_tokens = 2;
  engine.submit(request);
  while (engine.step()) {
  }
  EXPECT_TRUE(sink->scored.empty());
  EXPECT_EQ(sink->tokens.size(), 2u);
}

// Without spare rows of logits, a step scores one token of a prompt. The chunks of other prompts are not limited.
TEST(Scoring, RowsOfLogitsBoundTheChunks) {
  for (const int spare : {0, 5}) {
    FakeOptions options;
    options.info.max_logits = options.info.max_seqs + spare;
    FakeRunner runner(options);
    Engine engine(runner, {.prefix_cache = false});
    const auto scored = std::make_shared<Collector>(), other = std::make_shared<Collector>();
    Request request = fake_request(std::vector<int32_t>(31, 3), scored);
    request.prompt_logprobs = 0;
    request.max_tokens = 1;
    engine.submit(request);
    request.prompt_logprobs = -1;
    request.sink = other;
    engine.submit(request);
    EXPECT_TRUE(engine.step());
    EXPECT_EQ(other->tokens.size(), 1u);
    EXPECT_EQ(scored->scored.size(), 1u + static_cast<size_t>(spare));
    while (engine.step()) {
    }
    EXPECT_EQ(scored->scored.size(), 30u);
    EXPECT_EQ(runner.n_steps(), spare == 0 ? 31 : 6);
    EXPECT_EQ(runner.violations(), std::vector<std::string>());
  }
}

TEST(Scoring, AConsumerThatThrowsEndsItsRequestOnly) {
  struct Thrower final : TokenSink {
    void on_prompt_token(const Sampled&) override { throw std::runtime_error("full"); }
    void on_token(const Sampled&) override { ADD_FAILURE(); }
    void on_finish(const Finish& f) override { finish = f; }
    std::optional<Finish> finish;
  };
  FakeRunner runner;
  Engine engine(runner);
  const auto sink = std::make_shared<Thrower>();
  Request request = fake_request({1, 2, 3}, sink);
  request.prompt_logprobs = 0;
  engine.submit(request);
  while (engine.step()) {
  }
  ASSERT_TRUE(sink->finish);
  EXPECT_EQ(sink->finish->reason, FinishReason::kError);
  EXPECT_EQ(sink->finish->error, "full");
  EXPECT_EQ(engine.gauges().blocks_used, 0);
}

// On a real model. Without min_tokens, the second greedy token ends the output. With min_tokens, that token is not
// sampled before the minimum length.
TEST(MinTokens, StopTokensAreNotDrawnBefore) {
  const Golden golden = read_golden("llama");
  Ranks runner = load_scored("llama", {.n_ctx = 128, .max_batch_tokens = 64, .max_seqs = 4});
  Engine engine(runner);
  for (const int min_tokens : {0, 1, 2, 9}) {
    const auto sink = std::make_shared<Collector>();
    Request request = fake_request(golden.tokens, sink);
    request.sampling.temperature = 0;
    request.max_tokens = 40;
    request.min_tokens = min_tokens;
    request.stop_tokens = {golden.greedy[1]};
    engine.submit(request);
    while (engine.step()) {
    }
    const std::vector<int32_t>& got = sink->tokens;
    EXPECT_EQ(got[0], golden.greedy[0]);
    EXPECT_GE(got.size(), static_cast<size_t>(min_tokens));
    EXPECT_TRUE(std::ranges::find(got, golden.greedy[1]) == got.end());
    if (min_tokens < 2) {
      EXPECT_EQ(got.size(), 1u);
      EXPECT_EQ(sink->finish->reason, FinishReason::kStop);
    }
  }
}

TEST(MinTokens, AndPromptLogprobsHaveRanges) {
  FakeRunner runner;
  Engine engine(runner);
  const auto error_of = [&](int min_tokens, int max_tokens, int prompt_logprobs) -> std::string {
    Request request = fake_request({1, 2}, std::make_shared<Collector>());
    request.min_tokens = min_tokens;
    request.max_tokens = max_tokens;
    request.prompt_logprobs = prompt_logprobs;
    try {
      engine.submit(request);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of(-1, 5, -1), HasSubstr("min_tokens is -1"));
  EXPECT_THAT(error_of(6, 5, -1), HasSubstr("min_tokens is 6"));
  EXPECT_THAT(error_of(0, 5, 21), HasSubstr("prompt_logprobs is 21"));
  EXPECT_THAT(error_of(0, 5, -2), HasSubstr("prompt_logprobs is -2"));
  EXPECT_EQ(error_of(5, 5, 20), "");
  EXPECT_EQ(error_of(5, -1, 0), "");
}

}  // namespace
}  // namespace ingot
