// For kernels in which a few lanes have the rows of a head's matrix, column by column, in registers.
#pragma once
#include <type_traits>

#include "backend/cuda/recurrence/copies.cuh"
#include "backend/cuda/recurrence/recurrence.h"

namespace ingot::cuda::recurrence {

inline constexpr int kColumnLanes = 8;  // of each column

// The j-th row of a lane; rows are in groups of four neighbours.
__device__ __forceinline__ int row_of(int j, int lane) { return 4 * kColumnLanes * (j / 4) + 4 * lane + j % 4; }

// Loads a lane's rows from shared memory.
template <int kPer>
__device__ __forceinline__ void load_rows(float (&to)[kPer], const float* from, int lane) {
#pragma unroll
  for (int j = 0; j < kPer; j += 4) {
    const float4 v = *reinterpret_cast<const float4*>(from + row_of(j, lane));
    to[j] = v.x, to[j + 1] = v.y, to[j + 2] = v.z, to[j + 3] = v.w;
  }
}

template <int kPer>
__device__ __forceinline__ float dot_rows(const float (&a)[kPer], const float (&b)[kPer]) {
  float sums[4] = {};
#pragma unroll
  for (int j = 0; j < kPer; ++j) sums[j % 4] = fmaf(a[j], b[j], sums[j % 4]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// Adds up the lanes of a column. Sums that are made together do not wait for each other.
template <int kSums>
__device__ __forceinline__ void sum_lanes(float (&sums)[kSums]) {
#pragma unroll
  for (int s = kColumnLanes / 2; s > 0; s /= 2)
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] += __shfl_xor_sync(0xFFFFFFFFu, sums[i], s);
}

// A lane's rows of a column of n_rows elements in memory, 16 bytes at a time if kPacks. Rows past the last are zeros.
template <bool kPacks, int kPer>
__device__ __forceinline__ void load_column(float (&to)[kPer], const float* from, int lane, int n_rows) {
#pragma unroll
  for (int j = 0; j < kPer; j += 4) {
    const int row = row_of(j, lane);
    if constexpr (kPacks) {
      const float4 v = row < n_rows ? *reinterpret_cast<const float4*>(from + row) : float4{};
      to[j] = v.x, to[j + 1] = v.y, to[j + 2] = v.z, to[j + 3] = v.w;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) to[j + i] = row + i < n_rows ? from[row + i] : 0.0f;
    }
  }
}
template <bool kPacks, int kPer>
__device__ __forceinline__ void store_column(float* to, const float (&from)[kPer], int lane, int n_rows) {
#pragma unroll
  for (int j = 0; j < kPer; j += 4) {
    const int row = row_of(j, lane);
    if constexpr (kPacks) {
      if (row < n_rows)
        *reinterpret_cast<float4*>(to + row) = make_float4(from[j], from[j + 1], from[j + 2], from[j + 3]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (row + i < n_rows) to[row + i] = from[j + i];
    }
  }
}

// True if the columns of these states, of n_rows elements each, can be loaded 16 bytes at a time.
inline bool packs_columns(const DeviceStates& states, int n_rows) {
  return n_rows % 4 == 0 && states.slot_floats % 4 == 0 && reinterpret_cast<uintptr_t>(states.data) % 16 == 0;
}
// True if rows of x can be copied 16 bytes at a time.
inline bool packs_rows(const Tensor& x) {
  return x.stride % 4 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

// Calls start(integral_constant<tokens of a chunk>, bool_constant<whether memory is read 16 bytes at a time>). kTokens:
// in long sequences; others get short chunks, so that more blocks run at once.
template <int kTokens, class F>
void with_chunks(bool is_long, bool packs, F&& start) {
  const auto choose = [&](auto tokens) { packs ? start(tokens, std::true_type()) : start(tokens, std::false_type()); };
  is_long ? choose(std::integral_constant<int, kTokens>()) : choose(std::integral_constant<int, 2>());
}

// Copies n rows of `width` floats to shared memory without waiting, 16 bytes at a time if kPacks. The rest of a row
// becomes zeros.
template <bool kPacks, int kRow>
__device__ __forceinline__ void copy_rows(float (*to)[kRow], const float* from, int64_t stride, int n, int width,
                                          int n_threads) {
  constexpr int kStep = kPacks ? 4 : 1, kPerRow = kRow / kStep;
  for (int i = threadIdx.x; i < n * kPerRow; i += n_threads) {
    const int t = i / kPerRow, column = i % kPerRow * kStep;
    const bool in = column < width;
    const float* at = from + t * stride + (in ? column : 0);
    kPacks ? copy16(&to[t][column], at, in) : copy_float(&to[t][column], at, in);
  }
}

}  // namespace ingot::cuda::recurrence
