// The sampling parameters of a request, and the result of a draw. The host sampler (sampler.h) and the device samplers
// use the same order: penalties, bias, mask; then greedy if temperature is 0, otherwise top-k, typical, top-p, min-p,
// temperature, draw. A request with another order or another stage (DRY, top-n-sigma, XTC, dynamic temperature,
// Mirostat) is always drawn on the host (sampler_stages.h), and so are candidates for beams.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot {

// The stages of a draw, in their default order. Bias and mask are applied before the first stage that is neither
// penalties nor DRY.
enum class SamplerStage : uint8_t {
  kPenalties,
  kDry,
  kTopNSigma,
  kTopK,
  kTypical,
  kTopP,
  kMinP,
  kXtc,
  kTemperature,
};
// llama.cpp's names, indexed by SamplerStage.
inline constexpr std::string_view kSamplerStages[] = {"penalties", "dry",   "top_n_sigma", "top_k",      "typ_p",
                                                      "top_p",     "min_p", "xtc",         "temperature"};
std::optional<SamplerStage> find_sampler_stage(std::string_view name);

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
  // DRY: subtracts multiplier * base^(length of the run - allowed length) from a token that would repeat a run of
  // tokens.
  float dry_multiplier = 0;    // 0: off
  float dry_base = 1.75f;      // at least 1
  int dry_allowed_length = 2;  // a run of fewer tokens costs nothing
  int dry_window = -1;         // how many of the last tokens DRY looks at; -1: all
  std::shared_ptr<const std::vector<uint32_t>> dry_breakers = nullptr;  // bits of tokens that end a run; null: none
  float top_n_sigma = 0;       // keeps logits within this many standard deviations of the largest; 0: off
  float xtc_probability = 0;   // how often XTC removes all but the least likely of the likely tokens; 0: never
  float xtc_threshold = 0.1f;  // XTC: the least probability of a likely token; above 0.5: off
  float dynatemp_range = 0;    // 0: off; otherwise the temperature varies by this much, up and down, with the entropy
  float dynatemp_exponent = 1;
  int mirostat = 0;          // 2: Mirostat 2 in place of all truncations; 0: off
  float mirostat_tau = 5;    // the target surprise of Mirostat, in bits
  float mirostat_eta = 0.1f;                // how fast Mirostat adapts
  std::vector<SamplerStage> stages = {};    // the request's order; empty: the default order
  uint64_t seed = 0;               // the draw depends only on the seed and the token's position, not on the batch
  std::vector<std::pair<int32_t, float>> logit_bias;  // added to the logits; -infinity forbids a token
  int n_logprobs = -1;                                // -1: none; 0: of the drawn token; n: also of the n likeliest
  // Above 0: no draw, but the n likeliest tokens after penalties, bias and mask, for a search with beams
  // (beam_search.h). Penalties and biases then change log-probabilities, as in transformers.
  int n_candidates = 0;
};
inline constexpr int kMaxCandidates = 1 << 15;
inline constexpr int kMaxLogprobs = 20;

// force() changes `params` so that the row's draw is `token`, to get the log-probability of that token. The other
// fields must have their defaults. The bias is so large that the logits do not matter.
inline constexpr float kForcingBias = 1e30f;
void force(SamplingParams& params, int32_t token, int n_logprobs);

// One row of logits to draw from.
struct SampleRow {
  const SamplingParams* params = nullptr;
  int64_t position = 0;              // of the token to draw: counter of the random stream
  std::span<const int32_t> history;  // prompt and output so far
  const uint32_t* mask = nullptr;    // bit i of [ceil(n_vocab / 32)]: token i is allowed; null: all tokens are
  bool unwanted = false;             // the request is gone, so the drawn token does not matter
  float* mirostat_mu = nullptr;      // with Mirostat: its state, 2 * tau at first, which the draw changes
  bool estimates_logprob = false;    // the log-probability may be less exact, and depend on the batch
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;  // natural log of softmax over the raw logits, before penalties and truncation
};

// The result for a row from which no token can be drawn: mask and bias forbid all tokens that have a logit, or
// (temperature > 0) no logit is above -infinity. It ends the row's request, but no other request of the step.
inline constexpr int32_t kNoToken = -1;

struct Sampled {
  int32_t token = 0;              // or kNoToken
  float logprob = 0;              // set when n_logprobs >= 0
  std::vector<TokenLogprob> top;  // likeliest first, n_logprobs of them; with n_candidates: the candidates
};

}  // namespace ingot
