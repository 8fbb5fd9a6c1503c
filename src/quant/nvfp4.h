// NVFP4: four scales e in E4M3 without a sign, each for 16 elements; for each group 8 bytes of nibbles, low nibbles
// first, each an E2M1 number. As in MXFP4, levels are doubled and scales halved: w = (e / 2) * codebook[code]. A scale
// for a whole tensor is stored as a separate tensor.
#pragma once
#include "quant/mxfp4.h"

namespace ingot::quant {

struct NVFP4 : Grouped<NVFP4> {
  static constexpr const char* name = "NVFP4";
  static constexpr uint32_t ggml_type = 40;
  static constexpr int block_size = 64;
  static constexpr int block_bytes = 36;
  static constexpr int levels = 16;
  static constexpr int code_bits = 4;
  static constexpr int group = 16;
  static constexpr auto& codebook = MXFP4::codebook;
  static constexpr ScaleField scale_fields[] = {
      {0, 0.3418f, ScaleKind::kUE4M3},
      {1, 0.3418f, ScaleKind::kUE4M3},
      {2, 0.3418f, ScaleKind::kUE4M3},
      {3, 0.3418f, ScaleKind::kUE4M3},
  };

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    for (int g = 0; g < 4; ++g) {
      scales[g] = 0.5f * float_from_ue4m3(block[g]);
      mins[g] = 0;
      unpack_nibbles<8>(block + 4 + 8 * g, codes + 16 * g);
    }
  }
};

}  // namespace ingot::quant
