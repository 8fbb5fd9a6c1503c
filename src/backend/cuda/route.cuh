// Which experts a token goes to, found by one warp: by a kernel of its own, or by the blocks of the product that comes next.
#pragma once
#include "backend/cuda/device.cuh"
#include "backend/cuda/experts.h"

namespace ingot::cuda::routing {

struct Route {
  int32_t* ids;
  float* weights;
  const float* logits;
  int64_t logits_stride, n_tokens;
  const float* bias;
  int n_experts, n_used, n_groups, n_groups_used;
  bool sigmoid, normalize;
  float scale;
};

// Orders as floats do; what is no number comes before all, with nothing.
__device__ __forceinline__ uint32_t key_of(float v) {
  const uint32_t bits = __float_as_uint(v);
  return isnan(v) ? 0 : bits >> 31 ? ~bits : bits | 0x80000000u;
}

// The best that a lane has: its experts are every 32nd.
struct Best {
  uint32_t key = 0;
  int at = INT32_MAX;

  __device__ __forceinline__ Best(const float* choice, int n_experts, int lane) {
    for (int e = lane; e < n_experts; e += 32) {
      const uint32_t other = key_of(choice[e]);
      if (other > key) key = other, at = e;
    }
  }
};
// The best of a warp: of equal ones the first.
__device__ __forceinline__ int best_of_warp(const Best& best) {
  const uint32_t key = __reduce_max_sync(0xFFFFFFFFu, best.key);
  return __reduce_min_sync(0xFFFFFFFFu, best.key == key ? best.at : INT32_MAX);
}

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int s = 16; s > 0; s /= 2) v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, s));
  return v;
}

// Floats of shared memory that a token takes: scores, what is chosen by, and what groups are worth, then the chosen.
__host__ __device__ __forceinline__ int route_floats(int n_experts) { return 3 * n_experts; }

__device__ __forceinline__ void score(const Route& p, int64_t token, float* scores, float* choice, int lane) {
  const float* logits = p.logits + token * p.logits_stride;
  float top = -INFINITY, sum = 0;
  for (int e = lane; e < p.n_experts; e += 32) top = fmaxf(top, scores[e] = logits[e]);
  top = warp_max(top);
  for (int e = lane; e < p.n_experts; e += 32) {
    scores[e] = p.sigmoid ? 1.0f / (1.0f + expf(-scores[e])) : expf(scores[e] - top);
    sum += scores[e];
  }
  const float factor = p.sigmoid ? 1.0f : 1.0f / warp_sum(sum);
  for (int e = lane; e < p.n_experts; e += 32) {
    scores[e] *= factor;
    choice[e] = scores[e] + (p.bias != nullptr ? p.bias[e] : 0.0f);
  }
  __syncwarp();
}

// Experts outside the best groups can no longer be chosen. A lane counts for each group how many are better.
__device__ __forceinline__ void keep_best_groups(const Route& p, float* choice, float* worth, int lane) {
  const int size = p.n_experts / p.n_groups;
  for (int g = lane; g < p.n_groups; g += 32) {
    float best = -INFINITY, second = -INFINITY;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      const float v = choice[e];
      second = fmaxf(second, fminf(best, v));
      best = fmaxf(best, v);
    }
    worth[g] = p.bias != nullptr && size > 1 ? best + second : best;
  }
  __syncwarp();
  for (int g = lane; g < p.n_groups; g += 32) {
    int n_better = 0;
    for (int other = 0; other < p.n_groups; ++other)
      n_better += worth[other] > worth[g] || (worth[other] == worth[g] && other < g);
    if (n_better >= p.n_groups_used)
      for (int e = g * size; e < (g + 1) * size; ++e) choice[e] = -INFINITY;
  }
  __syncwarp();
}

// put(i, expert, weight) for each of the n_used, by one lane or another.
template <class Put>
__device__ __forceinline__ void route_token(const Route& p, int64_t token, float* shared /* [route_floats] */, int lane, Put&& put) {
  float *scores = shared, *choice = scores + p.n_experts, *chosen = choice + p.n_experts;
  score(p, token, scores, choice, lane);
  if (p.n_groups_used < p.n_groups) keep_best_groups(p, choice, chosen, lane);
  float sum = 0;
  Best best(choice, p.n_experts, lane);
  for (int i = 0; i < p.n_used; ++i) {
    const int found = best_of_warp(best), at = found == INT32_MAX ? i : found;  // nothing is a number: but an expert it must be
    sum += scores[at];
    if (lane == at % 32) {
      chosen[i] = __int_as_float(at);
      choice[at] = NAN;  // cannot be chosen again
      best = Best(choice, p.n_experts, lane);
    }
  }
  __syncwarp();
  const float factor = p.normalize ? p.scale / fmaxf(sum, 1e-20f) : p.scale;
  for (int i = lane; i < p.n_used; i += 32) {
    const int at = __float_as_int(chosen[i]);
    put(i, at, scores[at] * factor);
  }
}

inline Route route_of(const Routing& r) {
  const auto& [ids, weights, logits, a] = r;
  CHECK(ids.contiguous() && weights.contiguous() && ids.cols == a.n_used && weights.cols == a.n_used);
  CHECK(a.n_used <= logits.cols && logits.cols <= kMostExperts);
  return {ids.i32(), weights.f32(), logits.f32(), logits.stride, logits.rows, a.bias ? a.bias.f32() : nullptr, static_cast<int>(logits.cols),
          a.n_used, a.n_groups, a.n_groups_used, a.scoring == Scoring::kSigmoid, a.normalize, a.scale};
}

}  // namespace ingot::cuda::routing
