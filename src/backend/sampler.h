// The host sampler: draws one token from one row of logits, in the order that sampling.h documents. The ref and cpu
// backends use it. It is the oracle of the device samplers.
//
// Stages and their sources: repetition penalty (CTRL, arXiv:1909.05858), presence and frequency penalties (OpenAI),
// top-k (arXiv:1805.04833), typical (arXiv:2202.00666), top-p (arXiv:1904.09751), min-p (arXiv:2407.01082),
// temperature. Each truncation uses the probabilities of the tokens that the truncation before it kept, and keeps at
// least one token. Equal logits rank by id, lowest first. The draw inverts the cumulative distribution, in order of id,
// at a uniform number that depends only on (seed, position).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "backend/sampling.h"

namespace ingot {

struct Candidate {
  float logit;
  int32_t id;
};

// Working memory of one sampling thread. With it, a draw allocates nothing except the list Sampled::top.
// Rows with fewer tokens, such as those of a draft head, may use it too.
struct SamplerScratch {
  explicit SamplerScratch(int n_vocab);
  std::vector<float> logits;    // [n_vocab]: the row after penalties, bias and mask
  std::vector<int32_t> counts;  // [n_vocab]: zero between draws
  std::vector<Candidate> candidates;
  std::vector<double> block_sums;
  std::vector<float> maxima, sorted_maxima;  // of groups of the row
};

// Throws Error, which names the first field out of range, the range and the value.
void validate(const SamplingParams& params, int n_vocab);

// The id of the largest logit. NaN loses to every other logit. If all logits are NaN, the result is 0. Among equal
// logits the lowest id wins. Throws Error when `logits` is empty.
int32_t argmax(std::span<const float> logits);

// The largest logit, and the logarithm of the sum of exp(logit). NaN counts nothing; -infinity if no other logit is
// left.
float largest_logit(std::span<const float> logits);
double log_sum_exp(std::span<const float> logits);

// Draws one token, or returns kNoToken. A NaN logit has probability 0.
Sampled sample_row(std::span<const float> logits /* [n_vocab] */, const SampleRow& row, SamplerScratch& scratch);

// Like sample_row, for a row of a step. Also returns kNoToken if all logits of a greedy row are NaN, and token 0 for an
// unwanted row.
Sampled draw_row(std::span<const float> logits /* [n_vocab] */, const SampleRow& row, SamplerScratch& scratch);

}  // namespace ingot
