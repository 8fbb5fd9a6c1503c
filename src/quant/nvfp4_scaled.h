// NVFP4_SCALED: f32 scale s of the whole tensor, then a block of NVFP4. w = s * (e / 2) * codebook[code]. The loader
// converts NVFP4 checkpoints of ModelOpt and compressed-tensors to this format: their tensors have a tensor-wide scale,
// for which ggml's blocks have no field.
#pragma once
#include "quant/nvfp4.h"

namespace ingot::quant {

struct NVFP4_SCALED : Grouped<NVFP4_SCALED> {
  static constexpr const char* name = "NVFP4_SCALED";
  static constexpr int block_size = 64;
  static constexpr int block_bytes = 40;
  static constexpr int levels = 16;
  static constexpr int code_bits = 4;
  static constexpr int group = 16;
  static constexpr auto& codebook = MXFP4::codebook;
  static constexpr ScaleField scale_fields[] = {
      {0, 0.3418f, ScaleKind::kF32},
      {4, 1.0f, ScaleKind::kUE4M3, true},
      {5, 1.0f, ScaleKind::kUE4M3, true},
      {6, 1.0f, ScaleKind::kUE4M3, true},
      {7, 1.0f, ScaleKind::kUE4M3, true},
  };

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    const float scale = float_from_bits(load_u32(block));
    NVFP4::unpack(block + 4, codes, scales, mins);
    for (int g = 0; g < 4; ++g) scales[g] *= scale;
  }
};

}  // namespace ingot::quant
