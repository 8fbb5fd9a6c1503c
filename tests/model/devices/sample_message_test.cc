// Rows to draw and their draws pass through messages unchanged: a row of the message draws the same tokens.
#include "model/devices/sample_message.h"

#include <gtest/gtest.h>

#include <random>

#include "backend/sampler.h"
#include "test_seed.h"

namespace ingot {
namespace {

constexpr int kMessageVocab = 75;

// Random requests; about half of the fields of each have their defaults.
class Requests {
 public:
  explicit Requests(unsigned seed) : random_(seed) {}

  SampleRow next() {
    Held& held = held_.emplace_back();
    SamplingParams& p = held.params;
    maybe([&] { p.temperature = real(2); });
    maybe([&] { p.top_k = number(kMessageVocab); });
    maybe([&] { p.typical_p = 1 - real(0.5f); });
    maybe([&] { p.top_p = 1 - real(0.5f); });
    maybe([&] { p.min_p = real(0.2f); });
    maybe([&] { p.repetition_penalty = 1 + real(1); });
    maybe([&] { p.presence_penalty = real(1) - 0.5f; });
    maybe([&] { p.frequency_penalty = real(1) - 0.5f; });
    maybe([&] { p.penalty_window = number(40) - 1; });
    maybe([&] { p.dry_multiplier = real(2), p.dry_base = 1 + real(1), p.dry_allowed_length = number(3); });
    maybe([&] { p.dry_window = number(40) - 1; });
    maybe([&] { p.dry_breakers = std::make_shared<const std::vector<uint32_t>>(words()); });
    maybe([&] { p.top_n_sigma = real(3); });
    maybe([&] { p.xtc_probability = real(1), p.xtc_threshold = real(0.2f); });
    maybe([&] { p.dynatemp_range = real(1), p.dynatemp_exponent = real(2); });
    maybe([&] { p.mirostat = 2, p.mirostat_tau = 1 + real(5), p.mirostat_eta = real(1); });
    maybe([&] { p.stages = {SamplerStage::kTemperature, SamplerStage::kPenalties, SamplerStage::kTopK}; });
    p.seed = random_();
    maybe([&] {
      p.logit_bias = {{number(kMessageVocab), real(9)},
                      {number(kMessageVocab), -std::numeric_limits<float>::infinity()}};
    });
    maybe([&] { p.n_logprobs = number(kMaxLogprobs); });
    for (int n = number(60); n > 0; --n) held.history.push_back(number(6));
    held.mu = 2 * p.mirostat_tau;
    SampleRow row{.params = &p, .position = number(1000), .history = held.history, .unwanted = number(8) == 0};
    maybe([&] { held.mask = words(), row.mask = held.mask.data(); });
    if (p.mirostat != 0) row.mirostat_mu = &held.mu;
    return row;
  }
  std::vector<float> logits() {
    std::vector<float> logits;
    for (int i = 0; i < kMessageVocab; ++i) logits.push_back(real(12));
    return logits;
  }

 private:
  struct Held {
    SamplingParams params;
    std::vector<int32_t> history;
    std::vector<uint32_t> mask;
    float mu = 0;
  };
  template <class F>
  void maybe(F&& set) {
    if (number(2) == 0) set();
  }
  int number(int end) { return static_cast<int>(random_() % static_cast<unsigned>(end)); }
  float real(float end) { return end * static_cast<float>(random_() % 10000) / 10000; }
  std::vector<uint32_t> words() {
    return {static_cast<uint32_t>(random_()), static_cast<uint32_t>(random_()), static_cast<uint32_t>(random_())};
  }
  std::mt19937 random_;
  std::deque<Held> held_;
};

TEST(SampleMessage, RowsDrawTheSame) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  Requests requests(seed);
  SamplerScratch scratch(kMessageVocab);
  for (int round = 0; round < 300; ++round) {
    std::vector<SampleRow> rows;
    for (int i = 0; i < round % 4; ++i) rows.push_back(requests.next());
    const ReceivedRows received(message_of(rows, kMessageVocab), kMessageVocab);
    ASSERT_EQ(received.rows.size(), rows.size());
    std::vector<Sampled> here, there;
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::vector<float> logits = requests.logits();
      there.push_back(draw_row(logits, received.rows[i], scratch));
      SampleRow copy = rows[i];
      float mu = rows[i].mirostat_mu != nullptr ? *rows[i].mirostat_mu : 0;
      if (copy.mirostat_mu != nullptr) copy.mirostat_mu = &mu;
      here.push_back(draw_row(logits, copy, scratch));
      ASSERT_EQ(copy.mirostat_mu != nullptr, received.rows[i].mirostat_mu != nullptr);
      if (copy.mirostat_mu == nullptr) continue;
      EXPECT_EQ(*received.rows[i].mirostat_mu, mu);
    }
    const std::vector<Sampled> drawn = read_draws(message_of(there, received.rows), rows);
    ASSERT_EQ(drawn.size(), here.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(drawn[i].token, here[i].token);
      EXPECT_EQ(drawn[i].logprob, here[i].logprob);
      ASSERT_EQ(drawn[i].top.size(), here[i].top.size());
      for (size_t k = 0; k < here[i].top.size(); ++k) {
        EXPECT_EQ(drawn[i].top[k].token, here[i].top[k].token);
        EXPECT_EQ(drawn[i].top[k].logprob, here[i].top[k].logprob);
      }
      if (rows[i].mirostat_mu == nullptr) continue;
      EXPECT_EQ(*rows[i].mirostat_mu, *received.rows[i].mirostat_mu);
    }
  }
}

// A long history is not sent with each token.
TEST(SampleMessage, OnlyTheHistoryThatADrawReads) {
  const std::vector<int32_t> history(100'000, 1);
  SamplingParams params;
  const SampleRow row{.params = &params, .position = 0, .history = history};
  const auto size = [&] { return message_of({&row, 1}, kMessageVocab).size(); };
  const size_t none = size();
  EXPECT_LT(none, 1000u);
  params.presence_penalty = 1;  // reads the last 64 tokens
  EXPECT_EQ(size(), none + 64 * 4);
  params.dry_multiplier = 1, params.dry_window = 100;
  EXPECT_EQ(size(), none + 100 * 4);
  params.dry_window = -1;
  EXPECT_EQ(size(), none + history.size() * 4);
}

}  // namespace
}  // namespace ingot
