// The ranges of the sampling parameters.
#include "backend/sampling.h"

#include <cmath>
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
  check_range("n_logprobs", params.n_logprobs, -1, kMaxLogprobs);
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
