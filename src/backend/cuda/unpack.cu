// From PackedWeight back to numbers: slices of a weight for the dense matmul, and rows of an embedding table.
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 128;

// Elements 32 * group to 32 * group + 31 of a row, without the factor.
template <class S>
__device__ __forceinline__ void decode_unit(const PackedWeight& w, int64_t row, int64_t group, float* out) {
  const int64_t tile = row / kTileRows * w.k_tiles + group / 4;
  const int unit = static_cast<int>(row % kTileRows * 4 + group % 4);
  const int per_unit = w.group16 ? 2 : 1, fields = w.has_min ? 2 : 1;
  const S* scales = static_cast<const S*>(w.scales) + (tile * kTileUnits + unit) * per_unit * fields;
  const bool eight = w.layout == Layout::kCodes8, codebook = w.layout == Layout::kCodebook4;
  const uint8_t* data = static_cast<const uint8_t*>(w.data);
#pragma unroll
  for (int h = 0; h < 2; ++h) {  // of 16 elements
    const S* field = scales + (w.group16 ? h * fields : 0);
    const float scale = to_float(field[0]), min = w.has_min ? to_float(field[1]) : 0.0f;
    uint32_t words[4];
    if (eight) {
      *reinterpret_cast<uint4*>(words) = load_stream(data + ((tile * 2 + h) * kTileUnits + unit) * 16);
    } else {
      *reinterpret_cast<uint2*>(words) = *reinterpret_cast<const uint2*>(data + (tile * kTileUnits + unit) * 16 + 8 * h);
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      int code;
      if (eight) {
        code = words[i / 4] >> (8 * (i % 4)) & 255;
      } else {
        code = words[i / 8] >> (4 * (codebook ? i % 8 : i % 8 / 2 + i % 2 * 4)) & 15;
      }
      const int level = codebook ? quant::codebook_entry(w.codebook_low, w.codebook_high, code) : code - w.zero;
      out[16 * h + i] = scale * static_cast<float>(level) + min;
    }
  }
}

template <class Out>
__global__ void unpack_kernel(Out* out, PackedWeight w, int64_t first, int64_t n_units) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n_units) return;
  const int64_t per_row = w.n_in / kUnit, row = i / per_row, group = i % per_row;
  float values[kUnit];
  decode_unit<Out>(w, first + row, group, values);
  alignas(16) Out packed[kUnit];
#pragma unroll
  for (int j = 0; j < kUnit; ++j) packed[j] = from_float<Out>(values[j]);
  uint4* to = reinterpret_cast<uint4*>(out + i * kUnit);
#pragma unroll
  for (int j = 0; j < static_cast<int>(kUnit * sizeof(Out) / 16); ++j) to[j] = reinterpret_cast<const uint4*>(packed)[j];
}

template <class S, class Y>
__global__ void embed_codes_kernel(Y* x, int64_t stride, PackedWeight w, const int32_t* tokens, float scale) {
  const int64_t row = tokens[blockIdx.x];
  for (int64_t group = threadIdx.x; group < w.n_in / kUnit; group += blockDim.x) {
    float values[kUnit];
    decode_unit<S>(w, row, group, values);
    for (int j = 0; j < kUnit; ++j) x[blockIdx.x * stride + group * kUnit + j] = from_float<Y>(values[j] * w.factor * scale);
  }
}

template <class S, class Y>
__global__ void embed_dense_kernel(Y* x, int64_t stride, PackedWeight w, const int32_t* tokens, float scale) {
  const S* row = static_cast<const S*>(w.data) + tokens[blockIdx.x] * w.n_in;
  for (int64_t i = threadIdx.x; i < w.n_in; i += blockDim.x) x[blockIdx.x * stride + i] = from_float<Y>(to_float(row[i]) * scale);
}

template <class S, class Y>
void embed_as(const Tensor& x, const PackedWeight& w, const int32_t* tokens, float scale, cudaStream_t stream) {
  const auto n = static_cast<unsigned>(x.rows);
  if (w.layout == Layout::kDense) {
    embed_dense_kernel<S, Y><<<n, 256, 0, stream>>>(static_cast<Y*>(x.data), x.stride, w, tokens, scale);
  } else {
    embed_codes_kernel<S, Y><<<n, 64, 0, stream>>>(static_cast<Y*>(x.data), x.stride, w, tokens, scale);
  }
}

}  // namespace

void unpack_rows(void* out, const PackedWeight& w, int64_t first, int64_t n, cudaStream_t stream) {
  const int64_t units = n * (w.n_in / kUnit);
  if (w.f32) {
    unpack_kernel<<<blocks_for(units, kThreads), kThreads, 0, stream>>>(static_cast<float*>(out), w, first, units);
  } else {
    unpack_kernel<<<blocks_for(units, kThreads), kThreads, 0, stream>>>(static_cast<half*>(out), w, first, units);
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
