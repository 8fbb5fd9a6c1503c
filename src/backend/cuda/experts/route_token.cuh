// How a warp chooses the experts of a token from its logits, for experts/route.cu and router.cu. No loop is unrolled:
// with few tokens, fetching instructions takes longer than the loops.
#pragma once
#include "backend/cuda/experts/experts.h"
#include "backend/cuda/launch.cuh"

namespace ingot::cuda {

struct Route {
  int32_t* ids;
  float* weights;
  const float *bias, *expert_scale;  // [n_experts] or null
  int n_experts, n_used, n_groups, n_groups_used;
  bool sigmoid, normalize, mixes_sparsely;
  float scale;
  int first_own, n_own;  // this rank's experts
};

// An integer with the same order as the float; NaN is below all numbers.
__device__ __forceinline__ uint32_t key_of(float v) {
  const uint32_t bits = __float_as_uint(v);
  return isnan(v) ? 0 : bits >> 31 ? ~bits : bits | 0x80000000u;
}

// The best expert of a lane; a lane checks every 32nd expert.
struct Best {
  uint32_t key = 0;
  int at = INT32_MAX;

  __device__ __forceinline__ Best(const float* choice, int n_experts, int lane) {
#pragma unroll 4
    for (int e = lane; e < n_experts; e += 32) {
      const uint32_t other = key_of(choice[e]);
      if (other > key) key = other, at = e;
    }
  }
};
// The best expert of a warp; the lowest number among equal ones.
__device__ __forceinline__ int best_of_warp(const Best& best) {
  const uint32_t key = __reduce_max_sync(0xFFFFFFFFu, best.key);
  return __reduce_min_sync(0xFFFFFFFFu, best.key == key ? best.at : INT32_MAX);
}

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int s = 16; s > 0; s /= 2) v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, s));
  return v;
}

// Floats of shared memory for a token: its scores (or the logits), the values by which experts are chosen, and the
// worth of each group, followed by the chosen experts.
__host__ __device__ inline int route_floats(int n_experts) { return 3 * n_experts; }

__device__ inline void score(const Route& p, const float* logits, float* scores, float* choice, int lane) {
  float top = -INFINITY, sum = 0;
#pragma unroll 1
  for (int e = lane; e < p.n_experts; e += 32) top = fmaxf(top, scores[e] = logits[e]);
  top = warp_max(top);
#pragma unroll 1
  for (int e = lane; e < p.n_experts; e += 32) {
    scores[e] = p.sigmoid ? 1.0f / (1.0f + expf(-scores[e])) : expf(scores[e] - top);
    sum += scores[e];
  }
  const float factor = p.sigmoid ? 1.0f : 1.0f / warp_sum(sum);
#pragma unroll 1
  for (int e = lane; e < p.n_experts; e += 32) {
    scores[e] *= factor;
    choice[e] = scores[e] + (p.bias != nullptr ? p.bias[e] : 0.0f);
  }
  __syncwarp();
}

// Excludes the experts outside the best groups. For each group, a lane counts how many groups are better.
__device__ inline void keep_best_groups(const Route& p, float* choice, float* worth, int lane) {
  const int size = p.n_experts / p.n_groups;
  for (int g = lane; g < p.n_groups; g += 32) {
    float best = -INFINITY, second = -INFINITY;
#pragma unroll 1
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
#pragma unroll 1
    for (int other = 0; other < p.n_groups; ++other)
      n_better += worth[other] > worth[g] || (worth[other] == worth[g] && other < g);
    if (n_better >= p.n_groups_used)
#pragma unroll 1
      for (int e = g * size; e < (g + 1) * size; ++e) choice[e] = -INFINITY;
  }
  __syncwarp();
}

// Scoring::kSparseMixer; `choice` has the logits.
__device__ inline void mix_sparsely(const Route& p, int64_t token, float* choice, int lane) {
#pragma unroll 1
  for (int i = 0; i < p.n_used; ++i) {
    const int found = best_of_warp(Best(choice, p.n_experts, lane)), at = found == INT32_MAX ? i : found;
    const float best = choice[at];
    float sum = 0;
#pragma unroll 1
    for (int e = lane; e < p.n_experts; e += 32) {
      const float distance = (best - choice[e]) / fmaxf(fabsf(choice[e]), best);
      if (!isnan(choice[e]) && !(distance > 2 * kMixerJitter)) sum += expf(choice[e] - best);
    }
    sum = warp_sum(sum);
    __syncwarp();
    if (lane == 0) {
      const int id = at - p.first_own;
      const bool is_own = id >= 0 && id < p.n_own;
      p.ids[token * p.n_used + i] = is_own ? id : -1;
      p.weights[token * p.n_used + i] = is_own ? p.scale / sum : 0.0f;
      choice[at] = NAN;  // cannot be chosen again
    }
    __syncwarp();
  }
}

// A warp chooses the experts of one token; `shared` has route_floats() floats.
__device__ inline void route_token(const Route& p, int64_t token, const float* logits, float* shared, int lane) {
  float *scores = shared, *choice = scores + p.n_experts, *chosen = choice + p.n_experts;
  if (p.mixes_sparsely) {
#pragma unroll 1
    for (int e = lane; e < p.n_experts; e += 32) choice[e] = logits[e];
    __syncwarp();
    return mix_sparsely(p, token, choice, lane);
  }
  score(p, logits, scores, choice, lane);
  if (p.n_groups_used < p.n_groups) keep_best_groups(p, choice, chosen, lane);
  float sum = 0;
  Best best(choice, p.n_experts, lane);
#pragma unroll 1
  for (int i = 0; i < p.n_used; ++i) {
    const int found = best_of_warp(best),
              at = found == INT32_MAX ? i : found;  // only NaN is left, but the result must be an expert
    sum += scores[at];
    if (lane == at % 32) {
      chosen[i] = __int_as_float(at);
      choice[at] = NAN;  // cannot be chosen again
      best = Best(choice, p.n_experts, lane);
    }
  }
  __syncwarp();
  const float factor = p.normalize ? p.scale / fmaxf(sum, 1e-20f) : p.scale;
#pragma unroll 1
  for (int i = lane; i < p.n_used; i += 32) {
    const int at = __float_as_int(chosen[i]), id = at - p.first_own;
    const bool is_own = id >= 0 && id < p.n_own;
    p.ids[token * p.n_used + i] = is_own ? id : -1;
    const float own = p.expert_scale ? factor * p.expert_scale[at] : factor;
    p.weights[token * p.n_used + i] = is_own ? scores[at] * own : 0.0f;
  }
}

inline Route route_of(const Tensor& ids, const Tensor& weights, int64_t n_experts, const RouteArgs& a) {
  CHECK(ids.contiguous() && weights.contiguous() && ids.cols == a.n_used && weights.cols == a.n_used);
  CHECK(a.n_used <= n_experts && n_experts <= kMaxExperts && a.first_own + a.n_own <= n_experts);
  return {ids.i32(),
          weights.f32(),
          a.bias ? a.bias.f32() : nullptr,
          a.expert_scale ? a.expert_scale.f32() : nullptr,
          static_cast<int>(n_experts),
          a.n_used,
          a.n_groups,
          a.n_groups_used,
          a.scoring == Scoring::kSigmoid,
          a.normalize,
          a.scoring == Scoring::kSparseMixer,
          a.scale,
          a.first_own,
          a.n_own > 0 ? a.n_own : static_cast<int>(n_experts)};
}

}  // namespace ingot::cuda
