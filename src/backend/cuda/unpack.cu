// From PackedWeight back to numbers: slices of a weight for the dense matmul, and rows of an embedding table.
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 128;

// Elements 8 * i to 8 * i + 7 of a row, without the factor.
template <class S>
__device__ __forceinline__ void decode8(const PackedWeight& w, int64_t row, int64_t i, float (&out)[8]) {
  const int64_t tile = row / kTileRows * w.k_tiles + i / 16;
  const int in_tile = static_cast<int>(row % kTileRows), unit = static_cast<int>(i / 4 % 4),
            h = static_cast<int>(i / 2 % 2);
  const int per_unit = w.group16 ? 2 : 1, fields = w.has_min ? 2 : 1;
  const S* field = static_cast<const S*>(w.scales) +
                   ((tile * kTileUnits + in_tile * 4 + unit) * per_unit + (w.group16 ? h : 0)) * fields;
  const float scale = to_float(field[0]), min = w.has_min ? to_float(field[1]) : 0.0f;
  const bool eight = w.layout == Layout::kCodes8, codebook = w.layout == Layout::kCodebook4;
  const uint8_t* codes = static_cast<const uint8_t*>(w.data) + tile * (eight ? 32 * kTileUnits : 16 * kTileUnits);
#pragma unroll
  for (int lane = 0; lane < 2; ++lane) {
    const int t = static_cast<int>(i % 2) * 2 + lane;
    const uint32_t word =
        *reinterpret_cast<const uint32_t*>(codes + place_of_codes(eight, in_tile, unit, t) + (eight ? 4 * h : 0));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int nibble = codebook ? 4 * h + j : 2 * h + j / 2 + j % 2 * 4;
      const int code = static_cast<int>(eight ? word >> (8 * j) & 255 : word >> (4 * nibble) & 15);
      const int level = codebook ? quant::codebook_entry(w.codebook_low, w.codebook_high, code) : code - w.zero;
      out[4 * lane + j] = scale * static_cast<float>(level) + min;
    }
  }
}

__device__ __forceinline__ void store8(half* to, const float (&v)[8]) {
  uint32_t words[4];
#pragma unroll
  for (int j = 0; j < 4; ++j)
    words[j] = bits_of(__halves2half2(from_float<half>(v[2 * j]), from_float<half>(v[2 * j + 1])));
  *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
}
__device__ __forceinline__ void store8(float* to, const float (&v)[8]) {
  reinterpret_cast<float4*>(to)[0] = make_float4(v[0], v[1], v[2], v[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(v[4], v[5], v[6], v[7]);
}

// One row a blockIdx.y, 8 elements a thread.
template <class Out>
__global__ void unpack_kernel(Out* out, const __grid_constant__ PackedWeight w, int64_t first) {
  start_dependent();
  const int64_t i = int64_t{blockIdx.y} * kThreads + threadIdx.x, row = blockIdx.x;
  if (8 * i >= w.n_in) return;
  float values[8];
  decode8<Out>(w, first + row, i, values);
  store8(out + row * w.n_in + 8 * i, values);
}

template <class S, class Y>
__global__ void embed_codes_kernel(Y* x, int64_t stride, PackedWeight w, const int32_t* tokens, float scale) {
  start_dependent();
  const int64_t row = tokens[blockIdx.x];
  for (int64_t i = threadIdx.x; i < w.n_in / 8; i += blockDim.x) {
    float values[8];
    decode8<S>(w, row, i, values);
    for (int j = 0; j < 8; ++j) x[blockIdx.x * stride + 8 * i + j] = from_float<Y>(values[j] * w.factor * scale);
  }
}

template <class S, class Y>
__global__ void embed_dense_kernel(Y* x, int64_t stride, PackedWeight w, const int32_t* tokens, float scale) {
  start_dependent();
  const S* row = static_cast<const S*>(w.data) + tokens[blockIdx.x] * w.n_in;
  for (int64_t i = threadIdx.x; i < w.n_in; i += blockDim.x)
    x[blockIdx.x * stride + i] = from_float<Y>(to_float(row[i]) * scale);
}

template <class S, class Y>
void embed_as(const Tensor& x, const PackedWeight& w, const int32_t* tokens, float scale, cudaStream_t stream) {
  const auto n = static_cast<unsigned>(x.rows);
  if (w.layout == Layout::kDense) {
    launch(embed_dense_kernel<S, Y>, dim3(n), 256, 0, stream, static_cast<Y*>(x.data), x.stride, w, tokens, scale);
  } else {
    launch(embed_codes_kernel<S, Y>, dim3(n), 64, 0, stream, static_cast<Y*>(x.data), x.stride, w, tokens, scale);
  }
}

}  // namespace

void unpack_rows(void* out, const PackedWeight& w, int64_t first, int64_t n, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(n), blocks_for(w.n_in / 8, kThreads));
  if (w.f32) {
    launch(unpack_kernel<float>, grid, kThreads, 0, stream, static_cast<float*>(out), w, first);
  } else {
    launch(unpack_kernel<half>, grid, kThreads, 0, stream, static_cast<half*>(out), w, first);
  }
}

void embed_rows(const Tensor& x, const PackedWeight& table, const int32_t* tokens, float scale, cudaStream_t stream) {
  if (x.rows == 0) return;
  with_type(x.dtype, [&](auto* y) {
    using Y = std::remove_pointer_t<decltype(y)>;
    if (table.f32) {
      embed_as<float, Y>(x, table, tokens, scale, stream);
    } else {
      embed_as<half, Y>(x, table, tokens, scale, stream);
    }
  });
}

}  // namespace ingot::cuda
