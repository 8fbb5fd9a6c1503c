// Scoring: the logits of given tokens, without an engine. Used by `ingot logits`, `ingot perplexity` and the tests.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "model/devices/ranks.h"

namespace ingot {

// Runs one or more sequences of equal length, fed by the caller; the sequences share the runner's KV pools evenly.
class Lockstep {
 public:
  explicit Lockstep(Ranks& runner, int n_seqs = 1);
  // Runs the next n tokens of every sequence in one step. In each sequence, the rows from first_logit_row on (of these
  // n) get logits. Throws Error if the tokens do not fit in the context or a token is outside the vocabulary.
  void feed(std::span<const int32_t> tokens /* [n_seqs, n] */, int first_logit_row);
  // Skips the next n tokens of every sequence without running them, so the cache keeps its old contents there. For
  // measurements. Throws Error if they do not fit in the context.
  void skip(int n);
  int length() const { return length_; }  // of one sequence
  void clear() { length_ = 0; }

 private:
  Ranks& runner_;
  const int n_seqs_;
  int length_ = 0;
  std::vector<int32_t> blocks_;  // [pools, n_seqs, blocks of one sequence]
  std::vector<int32_t> positions_, q_start_, kv_len_, rows_, state_in_, state_out_;
};

// Runs `tokens` as one sequence from position 0, at most `chunk` tokens a step, and calls f(position, logits [n_vocab])
// for every position from first_row on. The runner must have max_logits >= chunk, unless only the last row is wanted.
// Throws Error if the tokens do not fit in the context or a token is outside the vocabulary.
void for_each_logits(Ranks& runner, std::span<const int32_t> tokens, int chunk, int first_row,
                     const std::function<void(int position, std::span<const float> logits)>& f);

// log of softmax(logits)[token]; the sum is in double.
double log_probability(std::span<const float> logits, int32_t token);

struct Perplexity {
  double value = 0;      // exp of the mean negative log-likelihood
  double std_error = 0;  // of value
  int n_scored = 0;      // tokens
};

// llama.cpp's definition, so that results are comparable: windows of n_ctx tokens without overlap; in each window the
// tokens after the first half are scored; with a bos token, bos replaces the first token of every window. on_window, if
// given, is called after each window with its number and the result so far. Throws Error if there are fewer than two
// windows.
Perplexity perplexity(Ranks& runner, std::span<const int32_t> tokens, int n_ctx, int max_windows,
                      int32_t bos /* -1: none */,
                      const std::function<void(int window, int n_windows, const Perplexity&)>& on_window);

}  // namespace ingot
