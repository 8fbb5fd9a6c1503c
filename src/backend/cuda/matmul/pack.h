// Converts blocks in the file's layout to weights in the device's layout (pack.cu, for device_weights.cc).
#pragma once
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/matmul/packed_weight.h"
#include "quant/format.h"

namespace ingot::cuda {

// The exponent by which scales are divided, from the largest scale (or minimum divided by 128). Then scales are below
// 128, and weights below 2^15, or with E4M3, whose largest number is 448, below 57,344.
//
// Levels of E2M1 are at most 6 * 2^-14, so their scales may be below 2^15, and weights are below 12. They must be so
// large, because a kernel multiplies in f16: the least level, 2^-15, times the largest scale is at least 1/2, and no
// product rounds as a subnormal if its scale is at least 2^-13 of the largest. Below that, products are multiples of
// 2^-24: exact for MXFP4 down to 2^-23 of the largest scale, and for all scales of NVFP4.
INGOT_HD int factor_exponent(float largest, Layout layout) {
  const int max_exponent = layout == Layout::kCodesE2M1 ? 15 : 7;
  int exponent = max_exponent;
  if (largest > 0) frexpf(largest, &exponent);
  return exponent - max_exponent < -120 ? -120 : exponent - max_exponent;
}
// PackedWeight::factor: undoes the division, and turns levels of the layout into those of the format.
inline float factor_of(float largest, Layout layout) {
  return std::ldexp(1.0f, factor_exponent(largest, layout)) / level_unit(layout);
}

// Writes that largest value to *largest_bits (the bits of a float, zero before the call).
void largest_scale(Format format, const void* blocks, int64_t n_blocks, uint32_t* largest_bits, Device& device);
// Fills w.data and w.scales, which must be zero. *largest_bits is on the device; null: scales stay as they are.
void pack_blocks(Format format, const void* blocks, const PackedWeight& w, const uint32_t* largest_bits,
                 Device& device);
// Decodes blocks to rows of halves, or of floats.
void pack_dense(Format format, const void* blocks, int64_t n_blocks, bool f32, void* to, Device& device);

}  // namespace ingot::cuda
