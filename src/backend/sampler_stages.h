// Draws with a request's own order of stages, or with a stage that the fast path (sampler.cc) does not have. All
// backends draw such rows on the host. The stages use float32, on the list of candidates:
//
//   penalties    repetition, presence and frequency penalties, as in the fast path
//   dry          DRY (p-e-w, text-generation-webui #5677): a token that continues a repeated run of L tokens loses
//                multiplier * base^(L - allowed_length), if L >= allowed_length. L is the length of the longest run
//                before an earlier occurrence of the token that equals the end of the history. A run ends at
//                a breaker
//   top_n_sigma  logits of at least max - n * (standard deviation of the finite logits) (arXiv:2411.07641)
//   top_k typ_p top_p min_p   as in the fast path
//   xtc          with the given probability, removes the tokens of at least the threshold, except the least likely of
//                these (p-e-w, text-generation-webui #6335)
//   temperature  logits / T; at 0 the likeliest token that is left; with dynatemp_range r, T = low + (high - low) *
//                (entropy / log n)^exponent, where low = max(0, T - r), high = T + r, and n is the number of candidates
//                (EDT, arXiv:2403.14541, as in llama.cpp)
//
// The mask is applied first, and the bias before the first stage that is neither penalties nor dry. Mirostat 2
// (arXiv:2007.14966, algorithm 2) replaces the truncations: after the temperature, it keeps only tokens with a surprise
// of at most mu bits. After the draw, mu -= eta * (surprise of the token among the kept tokens - tau).
#pragma once
#include "backend/sampler.h"

namespace ingot {

// Also true for candidates for beams, which have no stages.
bool needs_stages(const SamplingParams& params);

// Draws a token, or returns kNoToken.
int32_t draw_by_stages(std::span<const float> logits /* [n_vocab] */, const SampleRow& row, SamplerScratch& scratch);

}  // namespace ingot
