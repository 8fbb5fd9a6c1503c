#include "model/devices/score.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ingot {
namespace {

// The blocks of each of n_seqs sequences in a pool.
int share_of(const KvPool& pool, const RunnerInfo& info, int n_seqs) {
  return std::min(pool.n_blocks / n_seqs, (info.n_ctx + info.block_size - 1) / info.block_size);
}

// Whether a sequence may use its blocks of the pool in turn, because a step reads only the window and writes only its
// own tokens.
bool may_reuse(const KvPool& pool, const RunnerInfo& info, int n_blocks) {
  return pool.window > 0 && (n_blocks - 2) * info.block_size >= pool.window + info.max_batch_tokens;
}

// The most tokens of each of n_seqs sequences: the context, or the sequence's share of a pool if it is smaller.
int64_t capacity(const RunnerInfo& info, int n_seqs) {
  int64_t max_tokens = info.n_ctx;
  for (const KvPool& pool : info.pools) {
    const int n_blocks = share_of(pool, info, n_seqs);
    if (!may_reuse(pool, info, n_blocks)) max_tokens = std::min(max_tokens, int64_t{n_blocks} * info.block_size);
  }
  return max_tokens;
}

void check_length(const RunnerInfo& info, int n_seqs, int64_t length) {
  if (length > capacity(info, n_seqs))
    throw Error("{} tokens do not fit in the context of {}: shorten the text or make the context longer", length,
                capacity(info, n_seqs));
}

// Checks n new tokens for each sequence, after `length` earlier tokens.
void check_tokens(const RunnerInfo& info, int n_seqs, std::span<const int32_t> tokens, int64_t n, int length) {
  if (n == 0) throw Error("there are no tokens to run");
  check_length(info, n_seqs, length + n);
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= info.n_vocab)
      throw Error("token {} at index {} is outside the vocabulary of {}", tokens[i], length + i, info.n_vocab);
}

}  // namespace

Lockstep::Lockstep(Ranks& runner, int n_seqs) : runner_(runner), n_seqs_(n_seqs) {
  const RunnerInfo& info = runner.info();
  const auto n_of_sequence = static_cast<int>((capacity(info, n_seqs) + info.block_size - 1) / info.block_size);
  for (const KvPool& pool : info.pools)
    for (int seq = 0, n = share_of(pool, info, n_seqs); seq < n_seqs; ++seq)
      for (int i = 0; i < n_of_sequence; ++i) blocks_.push_back(seq * n + i % n);
  if (info.n_states == 0) return;
  CHECK_LE(n_seqs, info.n_states);
  for (int seq = 0; seq < n_seqs; ++seq) state_out_.push_back(seq);
}

void Lockstep::skip(int n) {
  check_length(runner_.info(), n_seqs_, int64_t{length_} + n);
  length_ += n;
}

void Lockstep::feed(std::span<const int32_t> tokens, int first_logit_row) {
  const int n = static_cast<int>(tokens.size()) / n_seqs_;
  check_tokens(runner_.info(), n_seqs_, tokens, n, length_);
  positions_.clear();
  rows_.clear();
  q_start_.assign(1, 0);
  for (int seq = 0; seq < n_seqs_; ++seq) {
    for (int i = 0; i < n; ++i) positions_.push_back(length_ + i);
    for (int i = std::clamp(first_logit_row, 0, n); i < n; ++i) rows_.push_back(seq * n + i);
    q_start_.push_back((seq + 1) * n);
  }
  state_in_.assign(state_out_.begin(), state_out_.end());
  if (length_ == 0) std::fill(state_in_.begin(), state_in_.end(), -1);
  length_ += n;
  kv_len_.assign(n_seqs_, length_);
  runner_.forward({.tokens = tokens,
                   .positions = positions_,
                   .q_start = q_start_,
                   .kv_len = kv_len_,
                   .block_table = blocks_,
                   .max_blocks = static_cast<int>(blocks_.size() / runner_.info().pools.size()) / n_seqs_,
                   .logit_rows = rows_,
                   .state_in = state_in_,
                   .state_out = state_out_});
}

void for_each_logits(Ranks& runner, std::span<const int32_t> tokens, int chunk, int first_row,
                     const std::function<void(int, std::span<const float>)>& f) {
  const RunnerInfo& info = runner.info();
  check_tokens(info, 1, tokens, static_cast<int64_t>(tokens.size()), 0);
  const int n = static_cast<int>(tokens.size());
  chunk = std::min(chunk, info.max_batch_tokens);
  Lockstep sequence(runner);
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
    throw Error(
        "perplexity needs at least two windows of {} tokens, and the text has {} tokens: use a longer text or a "
        "shorter context",
        n_ctx, tokens.size());
  if (max_windows > 0) n_windows = std::min(n_windows, max_windows);
  Perplexity result;
  double sum = 0, squares = 0;
  std::vector<int32_t> window(n_ctx);
  for (int w = 0; w < n_windows; ++w) {
    std::copy_n(tokens.begin() + static_cast<int64_t>(w) * n_ctx, n_ctx, window.begin());
    const std::vector<int32_t> targets = window;
    if (bos >= 0) window[0] = bos;
    for_each_logits(runner, window, runner.info().max_batch_tokens, n_ctx / 2,
                    [&](int position, std::span<const float> logits) {
                      if (position + 1 >= n_ctx) return;
                      const double nll = -log_probability(logits, targets[position + 1]);
                      sum += nll;
                      squares += nll * nll;
                      ++result.n_scored;
                    });
    const double mean = sum / result.n_scored, variance = squares / result.n_scored - mean * mean;
    result.value = std::exp(mean);
    result.std_error =
        result.n_scored > 1 ? result.value * std::sqrt(std::max(0.0, variance) / (result.n_scored - 1)) : 0;
    if (on_window) on_window(w + 1, n_windows, result);
  }
  return result;
}

}  // namespace ingot
