// Shared by rows.cu and dense.cu: products of few rows, each with the matrix of its own expert, or weighted sums of
// such rows.
#pragma once
#include "backend/cuda/device.cuh"
#include "backend/cuda/matmul/product_shape.h"

namespace ingot::cuda::expert_rows_detail {

constexpr int kMaxTerms = 32;           // each lane holds one
constexpr size_t kMaxInput = 96 << 10;  // bytes of activations in shared memory

using Shape = ProductShape;  // accumulate: y += the weighted sum of n_terms neighbours

struct Params : Shape {
  PackedWeight w[2];
  const float* bias[2];
  const half* x;
  int64_t x_stride;
  int x_rows, n_rows;
  const int32_t* ids;
  const float* weights;
  void* y;
  int64_t y_stride;
};

// A lane's term of a sum: its expert and its weight, and its place among all terms.
struct Term {
  int expert = 0, place = 0;
  float weight = 1.0f;

  Term() = default;
  __device__ Term(const Params& p, int row, bool wanted, bool weighted) {
    if (!wanted) return;
    expert = __ldcg(p.ids + row);
    if (weighted) weight = __ldcg(p.weights + row);
  }
  // Moves the terms that have an expert to the first lanes, and returns their number. n: of terms.
  __device__ __forceinline__ int keep_own(int n, int lane) {
    uint32_t own = __ballot_sync(0xFFFFFFFFu, lane < n && expert >= 0);
    const int n_own = __popc(own);
#pragma unroll 1
    for (int i = 0; i < lane && i < n_own; ++i) own &= own - 1;
    place = own != 0 ? __ffs(static_cast<int>(own)) - 1 : 0;
    expert = __shfl_sync(0xFFFFFFFFu, expert, place);
    weight = __shfl_sync(0xFFFFFFFFu, weight, place);
    return n_own;
  }
  __device__ __forceinline__ int place_of(int lane) const { return __shfl_sync(0xFFFFFFFFu, place, lane); }
  __device__ __forceinline__ int64_t expert_of(int lane) const { return __shfl_sync(0xFFFFFFFFu, expert, lane); }
  __device__ __forceinline__ float weight_of(int lane) const { return __shfl_sync(0xFFFFFFFFu, weight, lane); }
};

__device__ __forceinline__ float* output_of(const Params& p, int sum, int64_t out) {  // in f32
  return static_cast<float*>(p.y) + sum * p.y_stride + out;
}

// Writes output `out` of a sum. The lanes from `first` on hold the terms of the sum. `before` is the old value if the
// sum is added to it. Whole warps call this function.
template <int kGates>
__device__ __forceinline__ void put(const Params& p, const Shape& s, int sum, int64_t out, const float (&sums)[kGates],
                                    float before, bool writes, const Term& term, int first = 0) {
  float total[kGates];
#pragma unroll
  for (int j = 0; j < kGates; ++j) {
    total[j] = sums[j];
    if (!s.has_bias || p.bias[j] == nullptr) continue;
#pragma unroll 1
    for (int k = first; k < first + s.n_terms; ++k) {
      const int64_t expert = term.expert_of(k);
      const float weight = term.weight_of(k);
      if (writes) total[j] += weight * p.bias[j][expert * s.n_out[0] + out];
    }
  }
  if (!writes) return;
  const float value = kGates == 2 ? act_mul(total[0], total[kGates - 1], s.act) : total[0];
  if (s.y_f32) {
    *output_of(p, sum, out) = s.accumulate ? before + value : value;
  } else {
    static_cast<half*>(p.y)[sum * p.y_stride + out] = from_float<half>(value);
  }
}

}  // namespace ingot::cuda::expert_rows_detail
