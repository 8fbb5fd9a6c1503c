#include "model/score.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace ingot {
namespace {

void check_tokens(const RunnerInfo& info, std::span<const int32_t> tokens, int length) {
  if (tokens.empty()) throw Error("there are no tokens to run");
  if (length + tokens.size() > static_cast<size_t>(info.n_ctx))
    throw Error("{} tokens do not fit in the context of {}: shorten the text or raise --ctx-size", length + tokens.size(),
                info.n_ctx);
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= info.n_vocab)
      throw Error("token {} at index {} is outside the vocabulary of {}", tokens[i], length + i, info.n_vocab);
}

}  // namespace

LoneSequence::LoneSequence(Ranks& runner) : runner_(runner), blocks_(runner.info().n_blocks) {
  std::iota(blocks_.begin(), blocks_.end(), 0);
}

void LoneSequence::feed(std::span<const int32_t> tokens, int first_logit_row) {
  check_tokens(runner_.info(), tokens, length_);
  const int n = static_cast<int>(tokens.size());
  positions_.resize(n);
  std::iota(positions_.begin(), positions_.end(), length_);
  rows_.resize(n - std::clamp(first_logit_row, 0, n));
  std::iota(rows_.begin(), rows_.end(), n - static_cast<int>(rows_.size()));
  length_ += n;
  const int32_t q_start[] = {0, n};
  runner_.forward({.tokens = tokens,
                   .positions = positions_,
                   .q_start = q_start,
                   .kv_len = {&length_, 1},
                   .block_table = blocks_,
                   .max_blocks = static_cast<int>(blocks_.size()),
                   .logit_rows = rows_});
}

void for_each_logits(Ranks& runner, std::span<const int32_t> tokens, int chunk, int first_row,
                     const std::function<void(int, std::span<const float>)>& f) {
  const RunnerInfo& info = runner.info();
  check_tokens(info, tokens, 0);
  const int n = static_cast<int>(tokens.size());
  chunk = std::min(chunk, info.max_batch_tokens);
  LoneSequence sequence(runner);
  for (int begin = 0; begin < n; begin += chunk) {
    const int n_step = std::min(chunk, n - begin), first = std::clamp(first_row - begin, 0, n_step);
    sequence.feed(tokens.subspan(begin, n_step), first);
    const std::vector<float> logits = runner.logits();
    for (int row = first; row < n_step; ++row)
      f(begin + row, {&logits[static_cast<size_t>(row - first) * info.n_vocab], static_cast<size_t>(info.n_vocab)});
  }
}

double log_probability(std::span<const float> logits, int32_t token) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (float logit : logits) total += std::exp(logit - largest);
  return logits[token] - largest - std::log(total);
}

Perplexity perplexity(Ranks& runner, std::span<const int32_t> tokens, int n_ctx, int max_windows, int32_t bos,
                      const std::function<void(int, int, const Perplexity&)>& on_window) {
  int n_windows = static_cast<int>(tokens.size()) / n_ctx;
  if (n_windows < 2)
    throw Error("perplexity needs at least two windows of {} tokens, and the text has {} tokens: use a longer text or a "
                "smaller --ctx-size", n_ctx, tokens.size());
  if (max_windows > 0) n_windows = std::min(n_windows, max_windows);
  Perplexity result;
  double sum = 0, squares = 0;
  std::vector<int32_t> window(n_ctx);
  for (int w = 0; w < n_windows; ++w) {
    std::copy_n(tokens.begin() + static_cast<int64_t>(w) * n_ctx, n_ctx, window.begin());
    const std::vector<int32_t> targets = window;
    if (bos >= 0) window[0] = bos;
    for_each_logits(runner, window, runner.info().max_batch_tokens, n_ctx / 2, [&](int position, std::span<const float> logits) {
      if (position + 1 >= n_ctx) return;
      const double nll = -log_probability(logits, targets[position + 1]);
      sum += nll;
      squares += nll * nll;
      ++result.n_scored;
    });
    const double mean = sum / result.n_scored, variance = squares / result.n_scored - mean * mean;
    result.value = std::exp(mean);
    result.std_error = result.n_scored > 1 ? result.value * std::sqrt(std::max(0.0, variance) / (result.n_scored - 1)) : 0;
    if (on_window) on_window(w + 1, n_windows, result);
  }
  return result;
}

}  // namespace ingot
