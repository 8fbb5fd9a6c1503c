// Converts a PackedWeight back to numbers: slices of a weight for the dense matmul, and rows of an embedding table.
#include <cuda_bf16.h>

#include <algorithm>

#include "backend/cuda/kernels.h"
#include "backend/cuda/matmul/launch.cuh"
#include "backend/cuda/matmul/unpack.cuh"

namespace ingot::cuda {
namespace {

using namespace tile_step;

constexpr int kThreads = 128;
constexpr int kTileWarps = 8;

__device__ __forceinline__ void store8(float* to, const float (&v)[8]) {
  reinterpret_cast<float4*>(to)[0] = make_float4(v[0], v[1], v[2], v[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(v[4], v[5], v[6], v[7]);
}

__device__ __forceinline__ void store8(half* to, const float (&v)[8]) {
  __align__(16) half halves[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) halves[j] = from_float<half>(v[j]);
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(halves);
}

// Decodes without the factor: one row for each blockIdx.x, 8 elements for each thread.
template <class S>
__global__ void unpack_kernel(S* out, const __grid_constant__ PackedWeight w, int64_t first) {
  start_dependent();
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x, row = blockIdx.x;
  if (8 * i >= w.n_in) return;
  float values[8];
  decode8<S>(w, first + row, i, values);
  store8(out + row * w.n_in + 8 * i, values);
}

// Decodes to halves, one warp for each tile, through shared memory, with the functions of the products. `out` begins
// with the first row of tile `first_tile`.
template <class K>
__global__ void __launch_bounds__(32 * kTileWarps)
    unpack_tiles_kernel(half* out, const __grid_constant__ PackedWeight w, int first_tile, int64_t n_rows) {
  __shared__ __align__(16) char slots[kTileWarps][K::kSlotBytes];
  __shared__ uint32_t table[K::kLayout == Layout::kCodebook4 ? 256 : 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, step = static_cast<int>(blockIdx.y) * kTileWarps + warp;
  let_next_start();
  if constexpr (K::kLayout == Layout::kCodebook4) fill_levels(table, w);
  if (step < w.k_tiles)
    Source<K>(w, first_tile + static_cast<int>(blockIdx.x), lane, step)
        .copy_next(shared_address(slots[warp]), lane, true);
  matvec_step::end_copies();
  matvec_step::await_copies<0>();
  __syncthreads();
  wait_for_previous();
  if (step >= w.k_tiles) return;
  const half2 offset = __float2half2_rn(1024.0f + static_cast<float>(w.zero));
  const int64_t row = int64_t{blockIdx.x} * kTileRows + lane / 4;
#pragma unroll
  for (int unit = 0; unit < 4; ++unit) {
    const int column = step * kTileCols + unit * kUnit + 4 * (lane % 4);
    if (column >= w.n_in) break;
    uint32_t a[2][4];
    HalfTile<K>(slots[warp], unit / 2, lane).decode(a, unit % 2, offset, table);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (row + 8 * r >= n_rows) continue;
      half* to = out + (row + 8 * r) * w.n_in + column;
      *reinterpret_cast<uint2*>(to) = make_uint2(a[r][0], a[r][1]);
      *reinterpret_cast<uint2*>(to + 16) = make_uint2(a[r][2], a[r][3]);
    }
  }
}

// Rounds halves, two in a word, to the 8 bits of precision that a bf16 has. NaN stays NaN.
__device__ __forceinline__ uint32_t rounded(uint32_t pair) {
  const float2 v = eight_bits(__half22float2(half2_of(pair)));
  return bits_of(__floats2half2_rn(v.x, v.y));
}

// w: n uint4, and is rounded in place.
__global__ void round_kernel(uint4* w, int64_t n) {
  start_dependent();
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += int64_t{gridDim.x} * kThreads) {
    const uint4 v = w[i];
    w[i] = make_uint4(rounded(v.x), rounded(v.y), rounded(v.z), rounded(v.w));
  }
}

__device__ __forceinline__ int64_t table_row(int32_t token, const PackedWeight& table) {
  return token < table.n_out ? token : 0;
}

template <class S, class Y>
__global__ void embed_codes_kernel(Y* x, int64_t stride, PackedWeight w, const int32_t* tokens, float scale) {
  start_dependent();
  const int64_t row = table_row(tokens[blockIdx.x], w);
  for (int64_t i = threadIdx.x; i < w.n_in / 8; i += blockDim.x) {
    float values[8];
    decode8<S>(w, row, i, values);
    for (int j = 0; j < 8; ++j) x[blockIdx.x * stride + 8 * i + j] = from_float<Y>(values[j] * w.factor * scale);
  }
}

template <class S, class Y>
__global__ void embed_dense_kernel(Y* x, int64_t stride, PackedWeight w, const int32_t* tokens, float scale) {
  start_dependent();
  const S* row = static_cast<const S*>(w.data) + table_row(tokens[blockIdx.x], w) * w.n_in;
  for (int64_t i = threadIdx.x; i < w.n_in; i += blockDim.x)
    x[blockIdx.x * stride + i] = from_float<Y>(to_float(row[i]) * scale);
}

template <class S, class Y>
void embed_as(const Tensor& x, const PackedWeight& w, const int32_t* tokens, float scale, Device& device) {
  const auto n = static_cast<unsigned>(x.rows);
  if (w.layout == Layout::kDense) {
    launch(device, embed_dense_kernel<S, Y>, dim3(n), 256, 0, static_cast<Y*>(x.data), x.stride, w, tokens, scale);
  } else {
    launch(device, embed_codes_kernel<S, Y>, dim3(n), 64, 0, static_cast<Y*>(x.data), x.stride, w, tokens, scale);
  }
}

}  // namespace

void unpack_rows(void* out, const PackedWeight& w, int64_t first, int64_t n, Device& device) {
  const dim3 grid(static_cast<unsigned>(n), blocks_for(w.n_in / 8, kThreads));
  if (w.f32) return launch(device, unpack_kernel<float>, grid, kThreads, 0, static_cast<float*>(out), w, first);
  if (w.layout == Layout::kFloat8)
    return launch(device, unpack_kernel<half>, grid, kThreads, 0, static_cast<half*>(out), w, first);
  CHECK_EQ(first % kTileRows, 0);
  matvec_step::with_codes(w, [&](auto kind) {
    launch(device, unpack_tiles_kernel<decltype(kind)>,
           dim3(blocks_for(n, kTileRows), blocks_for(w.k_tiles, kTileWarps)), 32 * kTileWarps, 0,
           static_cast<half*>(out), w, static_cast<int>(first / kTileRows), n);
  });
}

void round_halves(void* w, int64_t n, Device& device) {
  CHECK_EQ(n % 8, 0);
  constexpr int64_t kMaxBlocks = 1024;
  const dim3 grid(static_cast<unsigned>(std::min(kMaxBlocks, (n / 8 + kThreads - 1) / kThreads)));
  launch(device, round_kernel, grid, kThreads, 0, static_cast<uint4*>(w), n / 8);
}

void embed_rows(const Tensor& x, const PackedWeight& table, const int32_t* tokens, float scale, Device& device) {
  if (x.rows == 0) return;
  with_type(x.dtype, [&](auto* y) {
    using Y = std::remove_pointer_t<decltype(y)>;
    if (table.f32) {
      embed_as<float, Y>(x, table, tokens, scale, device);
    } else {
      embed_as<half, Y>(x, table, tokens, scale, device);
    }
  });
}

}  // namespace ingot::cuda
