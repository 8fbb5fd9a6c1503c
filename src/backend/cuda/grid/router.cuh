// The choice of the experts of one or more tokens, each a row. Each block multiplies the residual stream by the router's
// matrix, of which it has a few experts. After a barrier for all blocks, a warp of each block for each row chooses among
// all logits. Meanwhile the other warps stage the input of the experts' products.
#pragma once
#include "backend/cuda/grid/products.cuh"

namespace ingot::cuda::grid {

// An integer with the same order as the float; NaN is below all numbers.
__device__ __forceinline__ uint32_t order_of(float v) {
  const uint32_t bits = __float_as_uint(v);
  return v != v ? 0 : bits >> 31 ? ~bits : bits | 0x80000000u;
}

template <class C>
struct Router {
  static constexpr Shape kShape = C::kShape;
  static constexpr int kExperts = divide_up(kShape.n_experts, kShape.n_blocks);  // of a block: every n_blocks-th
  static constexpr int kPieces = divide_up(kShape.dim, 4 * kThreads);            // of 4 columns, of a thread
  static constexpr int kLogits = divide_up(kShape.n_experts, 32);                // of a lane
  static constexpr int kNone = 0x7FFFFFFF;
  static constexpr int kRows = kShape.max_rows, kRowsAtOnce = smallest_of(kRows, largest_of(1, 8 / kPieces));
  static constexpr int kSums = kExperts + 1;  // of a row: of its experts, and of its squares
  const Block<C>& b;
  const Layer& layer;
  uint2 w[kExperts][kPieces];  // halves
  float4 norm[kPieces];
  unsigned barrier = 0;  // of thread 0

  static __device__ __forceinline__ int expert(int i) {
    return static_cast<int>(blockIdx.x) + i * kShape.n_blocks;
  }
  static __device__ __forceinline__ int column(int piece) {
    return 4 * (static_cast<int>(threadIdx.x) + piece * kThreads);
  }
  __device__ __forceinline__ Router(const Block<C>& block, const Layer& of) : b(block), layer(of) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      const bool in = column(piece) < kShape.dim;
      norm[piece] = in ? __ldg(reinterpret_cast<const float4*>(layer.ffn_norm + column(piece))) : float4{};
#pragma unroll
      for (int i = 0; i < kExperts; ++i)
        w[i][piece] = in && expert(i) < kShape.n_experts
                          ? __ldg(reinterpret_cast<const uint2*>(layer.router + int64_t{expert(i)} * kShape.dim +
                                                                 column(piece)))
                          : uint2{};
    }
  }

  // Writes the logits of the block's experts, and arrives at the barrier of all blocks.
  __device__ __forceinline__ void put_logits() {
    const int n_rows = kShape.has_rows() ? b.p.n_rows : 1;
    const auto sums_of = [&](int warp, int row) { return b.template sums<kGateUp>(0) + (warp * kRows + row) * kSums; };
#pragma unroll 1
    for (int first = 0; first < n_rows; first += kRowsAtOnce) {
      float sums[kRowsAtOnce][kSums] = {};
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i)
        if (!kShape.has_rows() || first + i < n_rows) add_row(sums[i], b.p.x + (first + i) * b.p.x_stride);
#pragma unroll
      for (int i = 0; i < kRowsAtOnce; ++i) {
        if (first + i >= n_rows) break;
#pragma unroll
        for (int k = 0; k < kSums; ++k) {
          const float sum = warp_sum(sums[i][k]);
          if (b.lane == 0) sums_of(b.warp, first + i)[k] = sum;
        }
      }
    }
    sync_block();
    if (b.warp > 0) return;
#pragma unroll 1
    for (int i = b.lane; i < kExperts * n_rows; i += 32) {
      const int row = i / kExperts, own = expert(i % kExperts);
      if (own >= kShape.n_experts) continue;
      float total = 0, all = 0;
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp)
        total += sums_of(warp, row)[i % kExperts], all += sums_of(warp, row)[kExperts];
      total *= rsqrtf(all / static_cast<float>(kShape.dim) + b.p.eps);
      b.p.logits[row * kShape.n_experts + own] =
          total + (layer.router_bias != nullptr ? layer.router_bias[own] : 0.0f);
    }
    __syncwarp();
    if (b.lane == 0) barrier = arrive_grid(b.p.barrier, kShape.n_blocks, blockIdx.x == 0);
  }

  // The first warps wait for all logits, and each chooses for a row.
  __device__ __forceinline__ void choose(const Ring<C>& ring) const {
    const int n_rows = kShape.has_rows() ? b.p.n_rows : 1;
    if (b.warp >= n_rows) return;
    if (threadIdx.x == 0) await_grid(b.p.barrier, barrier);
    __syncwarp();
    if constexpr (kShape.has_rows()) asm volatile("bar.sync 2, %0;" ::"r"(32 * n_rows) : "memory");
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
  // Adds the thread's part of a row to its sums.
  __device__ __forceinline__ void add_row(float (&sums)[kSums], const float* row /* [dim] */) const {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      if (column(piece) >= kShape.dim) continue;
      const float4 x = load4(row, column(piece)), normed = times(x, norm[piece]);
      sums[kExperts] += dot(x, x);
#pragma unroll
      for (int i = 0; i < kExperts; ++i) {
        const float2 low = __half22float2(half2_of(w[i][piece].x)), high = __half22float2(half2_of(w[i][piece].y));
        sums[i] += dot(normed, {low.x, low.y, high.x, high.y});
      }
    }
  }

  // Scores of experts lane, lane + 32, ... of a row. logits: [n_experts]
  __device__ __forceinline__ void score(float (&scores)[kLogits], const float* logits) const {
    float top = minus_infinity(), sum = 0;
#pragma unroll
    for (int j = 0; j < kLogits; ++j) {
      const int e = b.lane + 32 * j;
      scores[j] = e < kShape.n_experts ? __ldcg(logits + e) : minus_infinity();
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
