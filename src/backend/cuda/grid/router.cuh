// The choice of the experts of one or more tokens, each a row. Each block multiplies the columns of the residual stream
// that it has just written by the router's matrix. After the barrier behind this phase, a warp of each block for each
// row chooses among all logits. Meanwhile the other warps stage the input of the experts' products.
#pragma once
#include "backend/cuda/grid/products.cuh"

namespace ingot::cuda::grid {

// An integer with the same order as the float; NaN is below all numbers.
__device__ __forceinline__ uint32_t order_of(float v) {
  const uint32_t bits = __float_as_uint(v);
  return v != v ? 0 : bits >> 31 ? ~bits : bits | 0x80000000u;
}

// A block's share of the router's product: the columns of the residual stream that the block writes in the phase kOut.
// The blocks' parts of a logit are added up as integers, so the order does not matter. The norm's factor follows later.
template <class C>
struct RouterShare {
  static constexpr bool kTakes = true;
  static constexpr Shape kShape = C::kShape;
  static constexpr int kUnits = divide_up(plan_of(kShape, kOut).n_units, kShape.n_blocks);
  static constexpr int kExperts = up_to(kShape.n_experts, 32), kAbreast = kThreads / kExperts;  // rows at a time
  static constexpr float kOne = 0x1p28f, kMost = 0x1p26f;  // the integer of 1; the largest part
  const Block<C>& b;
  const int first_unit, n_units;
  const int expert;
  uint4 w[kUnits][2];  // halves

  __device__ __forceinline__ explicit RouterShare(const Block<C>& block)
      : RouterShare(block, Units(plan_of(kShape, kOut).n_units, kShape.n_blocks)) {}
  __device__ __forceinline__ RouterShare(const Block<C>& block, const Units& units)
      : b(block),
        first_unit(units.first),
        n_units(units.end - units.first),
        expert(static_cast<int>(threadIdx.x) % kExperts) {}
  __device__ __forceinline__ void load(const half* router /* [n_experts, dim] */) {
#pragma unroll
    for (int i = 0; i < kUnits; ++i) {
      const bool in = i < n_units && expert < kShape.n_experts;
      const half* from = router + int64_t{expert} * kShape.dim + (first_unit + i) * kTileRows;
#pragma unroll
      for (int j = 0; j < 2; ++j) w[i][j] = in ? __ldg(reinterpret_cast<const uint4*>(from) + j) : uint4{};
    }
  }
  // Values of a row's 16 columns of a unit: x, then x times the norm's weight.
  __device__ __forceinline__ float* values(int unit, int row) const {
    return b.fresh + ((unit - first_unit) * kShape.max_rows + row) * 2 * kTileRows;
  }
  // Notes a new value of the residual stream. norm: the weight of its column.
  __device__ __forceinline__ void put(int unit, int row, int column, float x, float norm) const {
    values(unit, row)[column] = x, values(unit, row)[kTileRows + column] = x * norm;
  }
  // Adds the noted values to all logits, and writes their squares.
  __device__ __forceinline__ void add() const {
    sync_block();
    if (n_units == 0) return;
    const int n_rows = kShape.has_rows() ? b.p.n_rows : 1, thread = static_cast<int>(threadIdx.x);
    const bool adds = expert < kShape.n_experts && thread < kAbreast * kExperts;
#pragma unroll 1
    for (int row = thread / kExperts; adds && row < n_rows; row += kAbreast) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kUnits; ++i) {
        if (i >= n_units) break;
        const float4* x = reinterpret_cast<const float4*>(values(first_unit + i, row) + kTileRows);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const uint32_t pairs[2] = {word_of(w[i][j / 2], j % 2 * 2), word_of(w[i][j / 2], j % 2 * 2 + 1)};
          const float2 low = __half22float2(half2_of(pairs[0])), high = __half22float2(half2_of(pairs[1]));
          sum += dot(x[j], {low.x, low.y, high.x, high.y});
        }
      }
      const float part = fminf(fmaxf(sum, -kMost), kMost) * kOne;
      asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(b.p.logits + row * kShape.n_experts + expert),
                   "l"(__float2ll_rn(part))
                   : "memory");
    }
    const int unit = thread / kShape.max_rows, row = thread % kShape.max_rows;
    if (unit >= n_units || row >= n_rows) return;
    float squares = 0;
#pragma unroll
    for (int i = 0; i < kTileRows; i += 4) {
      const float4 x = *reinterpret_cast<const float4*>(values(first_unit + unit, row) + i);
      squares += dot(x, x);
    }
    b.p.squares[(first_unit + unit) * kShape.max_rows + row] = squares;
  }
  // Sets the sums of all logits to zero. Between this and add(), there must be a barrier for all blocks.
  static __device__ __forceinline__ void clear(const Params& p) {
    const int i = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
    if (i < (kShape.has_rows() ? p.n_rows : 1) * kShape.n_experts) p.logits[i] = 0;
  }
};

template <class C>
struct Router {
  static constexpr Shape kShape = C::kShape;
  static constexpr int kLogits = divide_up(kShape.n_experts, 32);  // of a lane
  static constexpr int kUnits = plan_of(kShape, kOut).n_units, kSquares = divide_up(kUnits, 32);
  static constexpr int kNone = 0x7FFFFFFF;
  const Block<C>& b;
  const Layer& layer;

  // When all logits are complete, each of the first warps chooses for a row.
  __device__ __forceinline__ void choose(const Ring<C>& ring) const {
    if (b.warp >= (kShape.has_rows() ? b.p.n_rows : 1)) return;
    float scores[kLogits];
    score(scores, b.p.logits + b.warp * kShape.n_experts);
    uint32_t keys[kLogits];  // 0: already chosen, NaN or no expert
#pragma unroll
    for (int j = 0; j < kLogits; ++j) {
      const int e = b.lane + 32 * j;
      const bool has_bias = layer.choice_bias != nullptr;
      keys[j] = e < kShape.n_experts ? order_of(scores[j] + (has_bias ? layer.choice_bias[e] : 0.0f)) : 0;
    }
    int expert = 0;
    float weight = 0;
#pragma unroll 1
    for (int i = 0; i < kShape.n_used; ++i) {
      uint32_t best = 0;
      int at = kNone;
#pragma unroll
      for (int j = 0; j < kLogits; ++j)
        if (keys[j] > best) best = keys[j], at = b.lane + 32 * j;
      const uint32_t warp_best = __reduce_max_sync(0xFFFFFFFFu, best);
      int found = __reduce_min_sync(0xFFFFFFFFu, best == warp_best ? at : kNone);
      if (found == kNone) found = i;  // only NaN is left, but the result must be an expert
      float of_found = 0;
#pragma unroll
      for (int j = 0; j < kLogits; ++j)
        if (found == b.lane + 32 * j) of_found = scores[j], keys[j] = 0;
      of_found = __shfl_sync(0xFFFFFFFFu, of_found, found % 32);
      if (b.lane == i) expert = found, weight = of_found;
    }
    const float total = kShape.normalize ? fmaxf(warp_sum(weight), 1e-20f) : 1.0f;
    if (b.lane < kShape.n_used) {
      b.choice[b.warp].experts[b.lane] = expert;
      b.choice[b.warp].weights[b.lane] = weight * b.p.route_scale / total;
    }
    __syncwarp();
    if (b.lane == 0) arrive(ring.chosen());
  }

 private:
  // Scores of experts lane, lane + 32, ... of a row. sums: [n_experts]
  __device__ __forceinline__ void score(float (&scores)[kLogits], const int64_t* sums) const {
    int64_t own[kLogits];
    float squares = 0, top = minus_infinity(), sum = 0;
#pragma unroll
    for (int j = 0; j < kLogits; ++j) own[j] = b.lane + 32 * j < kShape.n_experts ? __ldcg(sums + b.lane + 32 * j) : 0;
#pragma unroll
    for (int j = 0; j < kSquares; ++j)
      if (b.lane + 32 * j < kUnits) squares += __ldcg(b.p.squares + (b.lane + 32 * j) * kShape.max_rows + b.warp);
    const float inverse = rsqrtf(warp_sum(squares) / static_cast<float>(kShape.dim) + b.p.eps) / RouterShare<C>::kOne;
#pragma unroll
    for (int j = 0; j < kLogits; ++j) {
      const int e = b.lane + 32 * j;
      scores[j] = minus_infinity();
      if (e < kShape.n_experts)
        scores[j] = static_cast<float>(own[j]) * inverse + (layer.router_bias != nullptr ? layer.router_bias[e] : 0.0f);
      top = fmaxf(top, scores[j]);
    }
    if constexpr (kShape.sigmoid) {
#pragma unroll
      for (float& v : scores) v = 1.0f / (1.0f + expf(-v));
      return;
    }
#pragma unroll
    for (int i = 16; i > 0; i /= 2) top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, i));
#pragma unroll
    for (float& v : scores) v = expf(v - top), sum += v;
    const float factor = 1.0f / warp_sum(sum);
#pragma unroll
    for (float& v : scores) v *= factor;
  }
};

}  // namespace ingot::cuda::grid
