// Candidates: the tokens from which a draw may still choose, with their logits, and the truncations that shorten the
// list. The host sampler (sampler.cc) and its stages (sampler_stages.cc) share them.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/sampler.h"

namespace ingot {

// Returns value if keep is true, otherwise 0. Uses bit operations, because compilers do not vectorise a choice between
// floats that might trap.
inline float only_if(bool keep, float value) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & (0u - static_cast<uint32_t>(keep)));
}

// e^x for x <= 0, with an error of at most 2e-7; 0 below -87 and for NaN. Without branches, so that loops vectorise.
inline float exp_nonpositive(float x) {
  constexpr float kLowest = -87.0f, kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float clamped = std::bit_cast<float>(std::min(std::bit_cast<uint32_t>(x), std::bit_cast<uint32_t>(kLowest)));
  const float power = clamped * 1.44269504f;
  const float rounded = power + kRound;
  const float r = (power - (rounded - kRound)) * 0.693147181f;  // in [-0.35, 0.35]
  const float scale = std::bit_cast<float>((std::bit_cast<uint32_t>(rounded) + 127u) << 23);
  const float poly =
      1.0f + r * (1.0f + r * (0.5f + r * (1.0f / 6 + r * (1.0f / 24 + r * (1.0f / 120 + r * (1.0f / 720))))));
  return only_if(x > kLowest, poly * scale);
}

// Unnormalised probability; `top` is the largest logit. If `top` is infinite, the infinite logits share all
// probability. NaN gets 0.
inline float weight(float logit, float top, float inverse_temperature) {
  const float e = exp_nonpositive((logit - top) * inverse_temperature);
  return only_if(logit != top, e) + only_if(logit == top, 1.0f);
}

// Orders by larger logit, then by lower id.
inline bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// The sum of the candidates' weights. Here and below, `top` is the largest logit of the candidates.
double mass_of(std::span<const Candidate> candidates, float top);

// Each truncation keeps at least one candidate. keep_typical() returns the new top. keep_top_p() keeps the likeliest
// candidates with the share p of `total`, the mass of the candidates (0: summed here).
float keep_typical(std::vector<Candidate>& candidates, float top, double p);
void keep_top_p(std::vector<Candidate>& candidates, float top, double p, double total = 0);
void keep_min_p(std::vector<Candidate>& candidates, float top, float p);

// Picks a candidate with u in [0, 1), in order of id. Leaves the candidates in that order, with weights as logits.
int32_t draw_candidate(std::vector<Candidate>& candidates, float top, float inverse_temperature, double u);

}  // namespace ingot
