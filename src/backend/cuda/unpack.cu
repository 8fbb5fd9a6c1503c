// From PackedWeight back to numbers: slices of a weight for the dense matmul, and rows of an embedding table.
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/unpack.cuh"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 128;

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
