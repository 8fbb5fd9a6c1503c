// Converts blocks in the file's layout to PackedWeight. One thread converts one block, with the format's own unpack().
#include "backend/cuda/launch.cuh"
#include "backend/cuda/matmul/pack.h"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 128;

// A format as codes and scales. The numbers of F8_E4M3 are the codes.
template <class T>
struct Coded : T {};
template <class T>
requires requires { T::drop_nan; }
struct Coded<T> : T {
  static constexpr int code_bits = 8, group = kUnit;
  static constexpr bool has_min = false;

  INGOT_HD static void unpack(const uint8_t* block, uint8_t* codes, float* scales, float* /*mins*/) {
    for (int i = 0; i < T::block_size / group; ++i) scales[i] = float_from_bits(quant::load_u32(block));
    for (int i = 0; i < T::block_size; ++i) codes[i] = block[4 + i];
  }
};

template <class T>
concept IsGrouped = requires {
  T::group;
};

template <class T>
__global__ void largest_kernel(const uint8_t* blocks, int64_t n_blocks, uint32_t* largest) {
  constexpr int kGroups = T::block_size / T::group;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  float amax = 0;
  if (i < n_blocks) {
    uint8_t codes[T::block_size];
    float scales[kGroups], mins[kGroups];
    T::unpack(blocks + i * T::block_bytes, codes, scales, mins);
    for (int g = 0; g < kGroups; ++g) {
      const float size = fmaxf(fabsf(scales[g]), T::has_min ? fabsf(mins[g]) / 128 : 0.0f);
      if (isfinite(size)) amax = fmaxf(amax, size);
    }
  }
#pragma unroll
  for (int s = 16; s > 0; s /= 2) amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, s));
  if (threadIdx.x % 32 == 0 && amax > 0) atomicMax(largest, __float_as_uint(amax));
}

// Writes 32 codes to a unit of a row of the tile.
template <class T>
__device__ void put_unit(uint8_t* tile, Layout layout, int row, int unit, const uint8_t* codes) {
  constexpr bool kEight = T::code_bits != 4;
  for (int t = 0; t < 4; ++t) {
    uint32_t words[2] = {};
    for (int i = 0; i < 8; ++i) {
      const uint32_t code = codes[16 * (i / 4) + 4 * t + i % 4];
      if (kEight) {
        words[i / 4] |= code << (8 * (i % 4));
      } else {
        words[0] |= (code & 15) << (4 * (layout == Layout::kCodebook4 ? i : i / 2 + i % 2 * 4));
      }
    }
    uint32_t* to = reinterpret_cast<uint32_t*>(tile + place_of_codes(kEight, row, unit, t));
    to[0] = words[0];
    if (kEight) to[1] = words[1];
  }
}

template <class T, class S>
__global__ void pack_kernel(const uint8_t* blocks, int64_t n_blocks, PackedWeight w, const uint32_t* largest) {
  constexpr int kGroups = T::block_size / T::group, kPerUnit = kUnit / T::group, kFields = T::has_min ? 2 : 1;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n_blocks) return;
  uint8_t codes[T::block_size];
  float scales[kGroups], mins[kGroups];
  T::unpack(blocks + i * T::block_bytes, codes, scales, mins);
  const int64_t per_row = w.n_in / T::block_size, expert = i / per_row / w.n_out, row = i / per_row % w.n_out,
                first_unit = i % per_row * (T::block_size / kUnit);
  const float inverse = largest != nullptr ? ldexpf(1.0f, -factor_exponent(__uint_as_float(*largest), w.layout)) : 1.0f;
  for (int u = 0; u < T::block_size / kUnit; ++u) {
    const int64_t tile =
        (expert * ((w.n_out + kTileRows - 1) / kTileRows) + row / kTileRows) * w.k_tiles + (first_unit + u) / 4;
    const int in_tile = static_cast<int>(row % kTileRows), unit = static_cast<int>((first_unit + u) % 4);
    constexpr int kTileBytes = kTileUnits * (T::code_bits == 4 ? 16 : 32);
    put_unit<T>(static_cast<uint8_t*>(const_cast<void*>(w.data)) + tile * kTileBytes, w.layout, in_tile, unit,
                codes + u * kUnit);
    S* out =
        static_cast<S*>(const_cast<void*>(w.scales)) + (tile * kTileUnits + in_tile * 4 + unit) * kPerUnit * kFields;
    for (int p = 0; p < kPerUnit; ++p) {
      out[p * kFields] = from_float<S>(scales[u * kPerUnit + p] * inverse);
      if (T::has_min) out[p * kFields + 1] = from_float<S>(mins[u * kPerUnit + p] * inverse);
    }
  }
}

// One thread for each block; a block may be a single element.
template <class T, class Out>
__global__ void dense_kernel(const uint8_t* blocks, int64_t n_blocks, Out* out) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n_blocks) return;
  float values[T::block_size];
  T::decode(blocks + i * T::block_bytes, values);
  for (int j = 0; j < T::block_size; ++j) out[i * T::block_size + j] = from_float<Out>(values[j]);
}

}  // namespace

void largest_scale(Format format, const void* blocks, int64_t n_blocks, uint32_t* largest_bits, Device& device) {
  visit(format, [&](auto type) {
    using T = Coded<decltype(type)>;
    if constexpr (IsGrouped<T>) {
      largest_kernel<T><<<blocks_for(n_blocks, kThreads), kThreads, 0, device.stream()>>>(
          static_cast<const uint8_t*>(blocks), n_blocks, largest_bits);
    }
  });
}

void pack_blocks(Format format, const void* blocks, const PackedWeight& w, const uint32_t* largest_bits,
                 Device& device) {
  visit(format, [&](auto type) {
    using T = Coded<decltype(type)>;
    if constexpr (IsGrouped<T>) {
      const int64_t n = w.n_experts * w.n_out * (w.n_in / T::block_size);
      const auto* from = static_cast<const uint8_t*>(blocks);
      if (w.f32) {
        pack_kernel<T, float><<<blocks_for(n, kThreads), kThreads, 0, device.stream()>>>(from, n, w, largest_bits);
      } else {
        pack_kernel<T, half><<<blocks_for(n, kThreads), kThreads, 0, device.stream()>>>(from, n, w, largest_bits);
      }
    }
  });
}

void pack_dense(Format format, const void* blocks, int64_t n_blocks, bool f32, void* to, Device& device) {
  visit(format, [&](auto type) {
    using T = decltype(type);
    if constexpr (!IsGrouped<T>) {
      const auto* from = static_cast<const uint8_t*>(blocks);
      if (f32) {
        dense_kernel<T>
            <<<blocks_for(n_blocks, kThreads), kThreads, 0, device.stream()>>>(from, n_blocks, static_cast<float*>(to));
      } else {
        dense_kernel<T>
            <<<blocks_for(n_blocks, kThreads), kThreads, 0, device.stream()>>>(from, n_blocks, static_cast<half*>(to));
      }
    }
  });
}

}  // namespace ingot::cuda
