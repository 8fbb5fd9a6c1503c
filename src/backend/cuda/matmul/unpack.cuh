// Decodes one row of a PackedWeight of codes or of 8-bit floats, 8 elements at a time, for kernels that have no faster
// way.
#pragma once
#include "backend/cuda/launch.cuh"
#include "quant/f8_e4m3.h"

namespace ingot::cuda {

__device__ __forceinline__ void decode_float8(const PackedWeight& w, int64_t row, int64_t i, float (&out)[8]) {
  const auto* numbers = static_cast<const __nv_fp8_e4m3*>(w.data) + row * w.n_in + 8 * i;
  const float scale = static_cast<const float*>(w.scales)[8 * i / kScaleCols * column_scales(w.n_out) + row];
#pragma unroll
  for (int j = 0; j < 8; ++j) out[j] = scale * to_float(numbers[j]);
}

// Elements 8 * i to 8 * i + 7 of a row, without the factor.
template <class S>
__device__ __forceinline__ void decode8(const PackedWeight& w, int64_t row, int64_t i, float (&out)[8]) {
  if (w.layout == Layout::kFloat8) return decode_float8(w, row, i, out);
  const int64_t tile = row / kTileRows * w.k_tiles + i / 16;
  const int in_tile = static_cast<int>(row % kTileRows), unit = static_cast<int>(i / 4 % 4),
            h = static_cast<int>(i / 2 % 2);
  const int per_unit = w.group16 ? 2 : 1, fields = w.has_min ? 2 : 1;
  const S* field = static_cast<const S*>(w.scales) +
                   ((tile * kTileUnits + in_tile * 4 + unit) * per_unit + (w.group16 ? h : 0)) * fields;
  const float scale = to_float(field[0]), min = w.has_min ? to_float(field[1]) : 0.0f;
  const bool eight = has_bytes(w.layout), plain = w.layout == Layout::kCodebook4;
  const auto level_of = [&](int code) {
    if (w.layout == Layout::kCodesE4M3) return quant::float_from_e4m3(static_cast<uint32_t>(code));
    const int level = has_zero(w.layout) ? code - w.zero : quant::codebook_entry(w.codebook_low, w.codebook_high, code);
    return static_cast<float>(level) * level_unit(w.layout);
  };
  const uint8_t* codes = static_cast<const uint8_t*>(w.data) + tile * (eight ? 32 * kTileUnits : 16 * kTileUnits);
#pragma unroll
  for (int lane = 0; lane < 2; ++lane) {
    const int t = static_cast<int>(i % 2) * 2 + lane;
    const uint32_t word =
        *reinterpret_cast<const uint32_t*>(codes + place_of_codes(eight, in_tile, unit, t) + (eight ? 4 * h : 0));
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int nibble = plain ? 4 * h + j : 2 * h + j / 2 + j % 2 * 4;
      const int code = static_cast<int>(eight ? word >> (8 * j) & 255 : word >> (4 * nibble) & 15);
      out[4 * lane + j] = scale * level_of(code) + min;
    }
  }
}

}  // namespace ingot::cuda
