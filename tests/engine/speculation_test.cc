// Speculation keeps the distribution that the sampler has without drafts: chi-square tests of at least 100,000 draws
// for each kind of guess and each sampler setting, against probabilities computed here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "backend/sampler.h"
#include "collector.h"
#include "engine/engine.h"
#include "engine/speculate/ngram.h"
#include "text/grammar/rules/compile.h"

namespace ingot {
namespace {

constexpr int kTableVocab = 7;
constexpr int kOutput = 500, kRequests = 210, kWindow = 2;
using Row = std::array<float, kTableVocab>;
using Probabilities = std::array<double, kTableVocab>;

// logits[last token][next token]; every step of 3 / 7 from -2.6 to 2.6, in another order in each row.
const std::array<Row, kTableVocab>& table() {
  static const auto made = [] {
    std::array<Row, kTableVocab> rows;
    for (int last = 0; last < kTableVocab; ++last)
      for (int next = 0; next < kTableVocab; ++next)
        rows[last][next] = static_cast<float>((next * (last + 2) + 3 * last + (last == 5) * next) % 13 - 6) * 0.43f;
    return rows;
  }();
  return made;
}

// A model whose logits depend only on the row's last token, with the host's sampler. Its draft head guesses the
// likeliest tokens. A step takes a millisecond for any number of rows, so guesses of the head always pay.
class TableRunner final : public Runner {
 public:
  TableRunner() {
    info_ = {.n_vocab = kTableVocab,
             .n_ctx = 1024,
             .block_size = 16,
             .pools = {{.n_blocks = 1024}},
             .max_batch_tokens = 256,
             .max_seqs = 16,
             .max_logits = 96,
             .draft_head = DraftHeadKind::kMtp};
  }
  const RunnerInfo& info() const override { return info_; }
  void forward(const Batch& batch) override {
    last_.clear();
    for (const int32_t row : batch.logit_rows) last_.push_back(batch.tokens[row]);
    fake_time += std::chrono::milliseconds(1);
  }
  void sample(std::span<const SampleRow> rows) override {
    for (size_t i = 0; i < rows.size(); ++i) sampled_.push_back(draw_row(table()[last_[i]], rows[i], scratch_));
  }
  std::vector<Sampled> wait() override { return std::exchange(sampled_, {}); }
  void follow(std::span<const int32_t> next_tokens) override {
    next_.clear();
    for (const int32_t token : next_tokens) next_.push_back(token < 0 ? sampled_[-1 - token].token : token);
  }
  std::vector<std::vector<HeadGuess>> draft(std::span<const DraftRow> rows, const HeadGoesOn& goes_on) override {
    const SamplingParams greedy{.temperature = 0, .n_logprobs = 0};
    std::vector<std::vector<HeadGuess>> drafts;
    for (const DraftRow& row : rows) {
      std::vector<HeadGuess>& own = drafts.emplace_back();
      int32_t last = next_[row.row];
      do {
        const Sampled likeliest = draw_row(table()[last], {.params = &greedy}, scratch_);
        own.push_back({last = likeliest.token, std::exp(likeliest.logprob)});
      } while (static_cast<int>(own.size()) < row.n && goes_on(drafts.size() - 1, own.back().probability));
    }
    return drafts;
  }

 private:
  RunnerInfo info_;
  std::vector<int32_t> last_, next_;
  std::vector<Sampled> sampled_;
  SamplerScratch scratch_{kTableVocab};
};

struct Setting {
  const char* name;
  SamplingParams params;
  bool has_mask = false;
};

SamplingParams plain() {
  return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .penalty_window = kWindow};
}

std::vector<Setting> settings() {
  std::vector<Setting> all = {{"plain", plain()}};
  const auto add = [&](const char* name, auto change) {
    all.push_back({name, plain()});
    change(all.back());
  };
  add("temperature", [](Setting& s) { s.params.temperature = 0.6f; });
  add("top_k", [](Setting& s) { s.params.top_k = 3; });
  add("top_p", [](Setting& s) { s.params.top_p = 0.8f; });
  add("min_p", [](Setting& s) { s.params.min_p = 0.15f; });
  add("typical_p", [](Setting& s) { s.params.typical_p = 0.7f; });
  add("repetition_penalty", [](Setting& s) { s.params.repetition_penalty = 1.6f; });
  add("presence_penalty", [](Setting& s) { s.params.presence_penalty = 1.1f; });
  add("frequency_penalty", [](Setting& s) { s.params.frequency_penalty = 0.9f; });
  add("bias", [](Setting& s) { s.params.logit_bias = {{2, 1.5f}, {4, -INFINITY}}; });
  add("mask", [](Setting& s) { s.has_mask = true; });
  add("all", [](Setting& s) {
    s.params = {.temperature = 1.3f, .top_k = 6, .typical_p = 0.97f, .top_p = 0.95f, .min_p = 0.03f,
                .repetition_penalty = 1.2f, .presence_penalty = 0.3f, .frequency_penalty = 0.4f,
                .penalty_window = kWindow};
    s.params.logit_bias = {{1, 0.7f}};
    s.has_mask = true;
  });
  return all;
}

// Allows tokens 0 to 3 and 1 to 5 in turn. Token 6 would end the text.
std::shared_ptr<Constraint> mask() {
  static const auto vocabulary = std::make_shared<GrammarVocabulary>(
      std::vector<std::string>{"a", "b", "c", "d", "e", "f", ""}, std::vector<int32_t>{6});
  return std::make_shared<Constraint>(compile_regex("([a-d][b-f]){999}"), vocabulary);
}
bool is_masked(int token, size_t n_output) {
  return n_output % 2 == 0 ? token > 3 : token < 1 || token > 5;
}

// Keeps the first tokens of `order` whose probabilities reach the share, and sets the others to 0. Rescales the sum to
// 1.
void keep_share(Probabilities& p, const std::vector<int>& order, double share) {
  double mass = 0;
  for (const int token : order) {
    const bool keeps = mass < share;
    mass += p[token];
    if (!keeps) p[token] = 0;
  }
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& x : p) x /= sum;
}

// An independent implementation of sampling.h.
Probabilities probabilities(const Setting& setting, std::span<const int32_t> history, size_t n_output) {
  const SamplingParams& s = setting.params;
  std::array<double, kTableVocab> logit;
  const std::span<const int32_t> seen = history.last(s.penalty_window);
  for (int t = 0; t < kTableVocab; ++t) {
    logit[t] = table()[history.back()][t];
    const auto count = std::count(seen.begin(), seen.end(), t);
    if (count > 0) {
      logit[t] = logit[t] > 0 ? logit[t] / s.repetition_penalty : logit[t] * s.repetition_penalty;
      logit[t] -= s.presence_penalty + static_cast<double>(count) * s.frequency_penalty;
    }
    for (const auto& [token, bias] : s.logit_bias)
      if (token == t) logit[t] += bias;
    if (setting.has_mask && is_masked(t, n_output)) logit[t] = -INFINITY;
  }
  std::vector<int> order(kTableVocab);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return logit[a] > logit[b]; });
  Probabilities p;
  for (int t = 0; t < kTableVocab; ++t) p[t] = std::exp(logit[t] - logit[order[0]]);
  if (s.top_k > 0)
    for (int i = s.top_k; i < kTableVocab; ++i) p[order[i]] = 0;
  keep_share(p, order, INFINITY);
  if (s.typical_p < 1) {
    double entropy = 0;
    for (const double x : p) entropy -= x > 0 ? x * std::log(x) : 0;
    const auto distance = [&](int t) { return p[t] > 0 ? std::abs(-std::log(p[t]) - entropy) : INFINITY; };
    std::vector<int> typical = order;
    std::stable_sort(typical.begin(), typical.end(), [&](int a, int b) { return distance(a) < distance(b); });
    keep_share(p, typical, s.typical_p);
  }
  if (s.top_p < 1) keep_share(p, order, s.top_p);
  const double top = *std::max_element(p.begin(), p.end());
  for (double& x : p) x = x < s.min_p * top ? 0 : std::pow(x, 1 / s.temperature);
  keep_share(p, order, INFINITY);
  return p;
}

enum class Guess { kNone, kNgram, kLikeliest, kHead };
const char* const kGuessNames[] = {"none", "ngram", "likeliest", "head"};

std::shared_ptr<Proposer> proposer_of(Guess guess) {
  if (guess == Guess::kNone) return nullptr;
  if (guess == Guess::kHead) return std::make_shared<DraftHeadProposer>();
  if (guess == Guess::kNgram)
    return fixed([ngram = std::make_shared<NgramProposer>()](std::span<const int32_t> history) {
      return ngram->propose(history, 4).tokens;
    });
  return fixed([](std::span<const int32_t> history) {
    std::vector<int32_t> drafts;
    int32_t last = history.back();
    for (int i = 0; i < 4; ++i) drafts.push_back(last = argmax(table()[last]));
    return drafts;
  });
}

std::vector<std::vector<int32_t>> outputs(const Setting& setting, Guess guess, int64_t* n_accepted) {
  TableRunner runner;
  Engine engine(runner, {.prefix_cache = false, .now = [] { return fake_time; }});
  std::vector<std::shared_ptr<Collector>> sinks;
  for (int i = 0; i < kRequests; ++i) {
    sinks.push_back(std::make_shared<Collector>());
    Request request{
        .prompt = {0, 1, static_cast<int32_t>(i % kTableVocab)}, .max_tokens = kOutput, .sink = sinks.back()};
    request.sampling = setting.params;
    request.sampling.seed = 1000 + static_cast<uint64_t>(i);
    request.proposer = proposer_of(guess);
    if (setting.has_mask) request.constraint = mask();
    engine.submit(std::move(request));
  }
  while (engine.step()) {}
  *n_accepted = engine.gauges().n_accepted_tokens;
  std::vector<std::vector<int32_t>> all;
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->finish->reason, FinishReason::kLength) << sink->finish->error;
    all.push_back(sink->tokens);
  }
  return all;
}

// The probability of a chi-square at least this large (Wilson and Hilferty's approximation).
double p_value(double chi_square, double freedom) {
  const double variance = 2 / (9 * freedom);
  return 0.5 * std::erfc((std::cbrt(chi_square / freedom) - (1 - variance)) / std::sqrt(2 * variance));
}

// Tests the outputs against the setting: draws that follow the same tokens have the same probabilities. Bins that
// expect fewer than 5 draws are joined.
double test(const Setting& setting, const std::vector<std::vector<int32_t>>& outputs, bool expects_no_impossible) {
  struct Context {
    Probabilities p;
    std::array<int, kTableVocab> n{};
  };
  std::map<std::vector<int32_t>, Context> contexts;
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::vector<int32_t> text = {0, 1, static_cast<int32_t>(i % kTableVocab)};
    for (size_t j = 0; j < outputs[i].size(); ++j) {
      std::vector<int32_t> key(text.end() - kWindow, text.end());
      key.push_back(static_cast<int32_t>(j % 2));
      auto [at, is_new] = contexts.try_emplace(std::move(key));
      if (is_new) at->second.p = probabilities(setting, text, j);
      ++at->second.n[outputs[i][j]];
      text.push_back(outputs[i][j]);
    }
  }
  double chi_square = 0, freedom = 0;
  for (const auto& [key, context] : contexts) {
    const double n = std::accumulate(context.n.begin(), context.n.end(), 0.0);
    double rest_expected = 0, rest_seen = 0;
    int n_bins = 0;
    const auto bin = [&](double expected, double seen) {
      if (expected < 1e-9) return;
      chi_square += (seen - expected) * (seen - expected) / expected;
      ++n_bins;
    };
    for (int t = 0; t < kTableVocab; ++t) {
      const double expected = n * context.p[t];
      if (expects_no_impossible && context.p[t] == 0) {
        EXPECT_EQ(context.n[t], 0);
      }
      if (expected >= 5) {
        bin(expected, context.n[t]);
      } else {
        rest_expected += expected, rest_seen += context.n[t];
      }
    }
    bin(rest_expected, rest_seen);
    freedom += std::max(0, n_bins - 1);
  }
  return p_value(chi_square, freedom);
}

class Speculation : public testing::TestWithParam<size_t> {};

TEST_P(Speculation, KeepsTheDistribution) {
  const Setting setting = settings()[GetParam()], other = settings()[GetParam() == 0 ? 1 : 0];
  static_assert(kOutput * kRequests >= 100'000);
  int64_t n_accepted = 0;
  const auto without = outputs(setting, Guess::kNone, &n_accepted);
  EXPECT_EQ(n_accepted, 0);
  EXPECT_GT(test(setting, without, true), 1e-3);
  for (const Guess guess : {Guess::kNgram, Guess::kLikeliest, Guess::kHead}) {
    const auto with = outputs(setting, guess, &n_accepted);
    const double p = test(setting, with, true);
    fmt::print("{:18} {:9}: {} drafts accepted, p = {:.3f}\n", setting.name,
               kGuessNames[static_cast<int>(guess)], n_accepted, p);
    EXPECT_GT(n_accepted, 5000);
    EXPECT_GT(p, 1e-3);
    EXPECT_LT(test(other, with, false), 1e-9);  // the test detects a different distribution
    EXPECT_EQ(with, without);                   // a draw depends on the seed and the position only
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, Speculation, testing::Range<size_t>(0, settings().size()),
                         [](const auto& test) { return std::string(settings()[test.param].name); });

}  // namespace
}  // namespace ingot
