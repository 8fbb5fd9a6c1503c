// What a request asks of the sampler, and what a draw gives back. The host sampler (sampler.h) and the device ones
// agree on the order: penalties, bias, mask; then greedy when temperature is 0; else top-k, typical, top-p, min-p,
// temperature, draw.
#pragma once
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace ingot {

struct SamplingParams {
  float temperature = 0.8f;  // 0: greedy
  int top_k = 40;            // 0: off
  float typical_p = 1.0f;    // 1: off
  float top_p = 0.95f;       // 1: off
  float min_p = 0.05f;       // 0: off
  float repetition_penalty =
      1.0f;  // 1: off; divides positive logits and multiplies negative ones (CTRL, arXiv:1909.05858)
  float presence_penalty = 0.0f;   // subtracted once from the logit of each token seen
  float frequency_penalty = 0.0f;  // subtracted once for each time that the token was seen
  int penalty_window = 64;         // how many of the last tokens (prompt included) the penalties count; -1: all
  uint64_t seed = 0;               // seed and token position fix the draw; the rest of the batch does not change it
  std::vector<std::pair<int32_t, float>> logit_bias;  // added to the logits; -infinity forbids a token
  int n_logprobs = -1;                                // -1: none; 0: of the drawn token; n: also of the n likeliest
};
inline constexpr int kMaxLogprobs = 20;

// force() changes `params` so that the row's draw is `token`, to get the log-probability of that token. The other
// fields must have their defaults. The bias is so large that the logits no longer matter.
inline constexpr float kForcingBias = 1e30f;
void force(SamplingParams& params, int32_t token, int n_logprobs);

// One row of logits to draw from.
struct SampleRow {
  const SamplingParams* params = nullptr;
  int64_t position = 0;              // of the token to draw: counter of the random stream
  std::span<const int32_t> history;  // prompt and output so far
  const uint32_t* mask = nullptr;    // bit i of [ceil(n_vocab / 32)]: token i is allowed; null: all tokens are
  bool unwanted = false;             // the request is gone, so the drawn token does not matter
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;  // natural log of softmax over the raw logits, before penalties and truncation
};

// The token of a row from which no token can be drawn: mask and bias forbid all tokens that have a logit, or
// (temperature > 0) no logit is above -infinity. It ends the request of the row, but no other request of the step.
inline constexpr int32_t kNoToken = -1;

struct Sampled {
  int32_t token = 0;              // or kNoToken
  float logprob = 0;              // set when n_logprobs >= 0
  std::vector<TokenLogprob> top;  // likeliest first, n_logprobs of them
};

}  // namespace ingot
