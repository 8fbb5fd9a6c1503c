// Computes the bytes of weights on a GPU from shapes alone. The GPU backend uses it, and so do memory plans without a
// GPU (planned_gpu.h).
#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/tensor.h"

namespace ingot {

// Codes are stored in units of 32, which form tiles (cuda/matmul/packed_weight.h has the same numbers).
inline constexpr int64_t kGpuTileRows = 16, kGpuTileCols = 128, kGpuUnit = 32;

inline int64_t gpu_code_bytes(const FormatInfo& format) { return format.code_bits == 4 ? 16 : 32; }  // of one unit
inline int64_t gpu_scale_bytes(const FormatInfo& format, bool f32) {
  return (format.group == 16 ? 2 : 1) * (format.has_min ? 2 : 1) * (f32 ? 4 : 2);
}
// The units of one expert, in whole tiles.
inline int64_t gpu_units(int64_t n_out, int64_t n_in) {
  const int64_t k_tiles = (n_in + kGpuTileCols - 1) / kGpuTileCols;
  return (n_out + kGpuTileRows - 1) / kGpuTileRows * k_tiles * (kGpuTileRows * kGpuTileCols / kGpuUnit);
}

// Whether a weight of this format is codes and scales, not numbers. f32: activations are f32.
inline bool gpu_stores_codes(const FormatInfo& format, bool f32) {
  return format.unpack != nullptr || (is_float8(format) && !f32);
}

// The bytes of a quantized weight's copy as halves (PackedWeight::halves), or 0 if it has none. use: WeightUse bits.
inline size_t gpu_halves_bytes(const Weight& shape, unsigned use) {
  constexpr int64_t kLeastElements = 1 << 16;  // smaller weights are decoded in no time
  const bool has_copy = (use & kForMatmul) != 0 && shape.n_experts == 1 && info(shape.format).unpack != nullptr &&
                        shape.n_out * shape.n_in >= kLeastElements;
  return has_copy ? static_cast<size_t>(shape.n_out * shape.n_in) * sizeof(uint16_t) : 0;
}

// f32: activations are f32, and so are scales and dense weights. 8-bit floats in rows need fewer bytes than this.
inline size_t gpu_packed_bytes(const Weight& shape, bool f32) {
  const FormatInfo& format = info(shape.format);
  const int64_t n_experts = shape.n_experts;
  if (!gpu_stores_codes(format, f32)) return static_cast<size_t>(n_experts * shape.n_out * shape.n_in * (f32 ? 4 : 2));
  return static_cast<size_t>(n_experts * gpu_units(shape.n_out, shape.n_in) *
                             (gpu_code_bytes(format) + gpu_scale_bytes(format, f32)));
}

}  // namespace ingot
