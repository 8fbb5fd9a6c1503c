// The ranges of the sampling parameters.
#include "backend/sampling.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "backend/sampler.h"
#include "base/error.h"

namespace ingot {
namespace {

template <class T>
void check_range(const char* field, T value, T lowest, T highest) {
  if (!(value >= lowest && value <= highest)) {
    throw Error("{} is {}: it must be from {} to {}", field, value, lowest, highest);
  }
}

// Like check_range, but 0 itself is not allowed.
void check_above_zero(const char* field, float value, float highest) {
  if (!(value > 0 && value <= highest))
    throw Error("{} is {}: it must be above 0 and at most {}", field, value, highest);
}

}  // namespace

std::optional<SamplerStage> find_sampler_stage(std::string_view name) {
  const auto found = std::ranges::find(kSamplerStages, name);
  if (found == std::end(kSamplerStages)) return std::nullopt;
  return static_cast<SamplerStage>(found - std::begin(kSamplerStages));
}

void force(SamplingParams& params, int32_t token, int n_logprobs) {
  params.temperature = 0;
  params.n_logprobs = n_logprobs;
  params.logit_bias.assign(1, {token, kForcingBias});
}

void validate(const SamplingParams& params, int n_vocab) {
  check_range("temperature", params.temperature, 0.0f, 100.0f);
  check_range("top_k", params.top_k, 0, std::numeric_limits<int>::max());
  check_above_zero("typical_p", params.typical_p, 1);
  check_above_zero("top_p", params.top_p, 1);
  check_range("min_p", params.min_p, 0.0f, 1.0f);
  check_above_zero("repetition_penalty", params.repetition_penalty, 100);
  check_range("presence_penalty", params.presence_penalty, -100.0f, 100.0f);
  check_range("frequency_penalty", params.frequency_penalty, -100.0f, 100.0f);
  check_range("penalty_window", params.penalty_window, -1, std::numeric_limits<int>::max());
  check_range("dry_multiplier", params.dry_multiplier, 0.0f, 100.0f);
  check_range("dry_base", params.dry_base, 1.0f, 100.0f);
  check_range("dry_allowed_length", params.dry_allowed_length, 1, std::numeric_limits<int>::max());
  check_range("dry_penalty_last_n", params.dry_window, -1, std::numeric_limits<int>::max());
  check_range("top_n_sigma", params.top_n_sigma, 0.0f, 100.0f);
  check_range("xtc_probability", params.xtc_probability, 0.0f, 1.0f);
  check_range("xtc_threshold", params.xtc_threshold, 0.0f, 1.0f);
  check_range("dynatemp_range", params.dynatemp_range, 0.0f, 100.0f);
  check_range("dynatemp_exponent", params.dynatemp_exponent, 0.0f, 100.0f);
  if (params.mirostat != 0 && params.mirostat != 2)
    throw Error("mirostat is {}: it must be 0 (off) or 2", params.mirostat);
  check_range("mirostat_tau", params.mirostat_tau, 0.0f, 100.0f);
  check_range("mirostat_eta", params.mirostat_eta, 0.0f, 1.0f);
  if (params.dry_breakers && params.dry_breakers->size() < (static_cast<size_t>(n_vocab) + 31) / 32)
    throw Error("dry_breakers has {} words of bits: expected one for each 32 of {} tokens", params.dry_breakers->size(),
                n_vocab);
  check_range("n_logprobs", params.n_logprobs, -1, kMaxLogprobs);
  check_range("n_candidates", params.n_candidates, 0, kMaxCandidates);
  if (params.logit_bias.size() > 1024) throw Error("logit_bias has {} entries: at most 1024", params.logit_bias.size());
  for (const auto& [token, bias] : params.logit_bias) {
    if (token < 0 || token >= n_vocab) {
      throw Error("logit_bias names token {}: the vocabulary has {} (0 to {})", token, n_vocab, n_vocab - 1);
    }
    if (std::isnan(bias) || bias == std::numeric_limits<float>::infinity()) {
      throw Error("logit_bias of token {} is {}: it must be finite, or -infinity to forbid the token", token, bias);
    }
  }
}

}  // namespace ingot
