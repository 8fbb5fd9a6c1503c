// Converts blocks in the file's layout to weights in the device's layout (pack.cu, for cuda_weights.cc).
#pragma once
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/matmul/packed_weight.h"
#include "quant/format.h"

namespace ingot::cuda {

// The exponent of PackedWeight::factor, from the largest scale (or minimum divided by 128). With this factor, scales
// are below 128 and weights below 2^15.
INGOT_HD int factor_exponent(float largest) {
  int exponent = 7;
  if (largest > 0) frexpf(largest, &exponent);
  return exponent - 7 < -120 ? -120 : exponent - 7;
}

// Writes that largest value to *largest_bits (the bits of a float, zero before the call).
void largest_scale(Format format, const void* blocks, int64_t n_blocks, uint32_t* largest_bits, Device& device);
// Fills w.data and w.scales, which must be zero, with the factor from *largest_bits (on the device; null: factor 1).
void pack_blocks(Format format, const void* blocks, const PackedWeight& w, const uint32_t* largest_bits,
                 Device& device);
// Decodes blocks to rows of halves, or of floats.
void pack_dense(Format format, const void* blocks, int64_t n_blocks, bool f32, void* to, Device& device);

}  // namespace ingot::cuda
