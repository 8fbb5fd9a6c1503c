// IQ2_XXS: f16 d; for each group of 32 weights, four bytes (grid entries) and a u32 with four times 7 sign bits, lowest
// bits first, and a 4-bit scale s at the top. w = (d * (2s + 1) / 8) * codebook[code].
#pragma once
#include "quant/iq.h"

namespace ingot::quant {

struct IQ2_XXS : Grouped<IQ2_XXS> {
  static constexpr const char* name = "IQ2_XXS";
  static constexpr uint32_t ggml_type = 16;
  static constexpr int block_size = 256;
  static constexpr int block_bytes = 66;
  static constexpr int levels = 6;
  static constexpr int code_bits = 4;
  static constexpr int group = 32;
  static constexpr float scale_unit = 0.125f;
  static constexpr int8_t codebook[16] = {8, 25, 43, -8, -25, -43};
  static constexpr ScaleField scale_fields[] = {{0, 0.018734f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    const float unit = load_f16(block) * scale_unit;
    for (int g = 0; g < 8; ++g) {
      const uint8_t* entries = block + 2 + 8 * g;
      const uint32_t word = load_u32(entries + 4);
      scales[g] = unit * static_cast<float>(2 * (word >> 28) + 1);
      mins[g] = 0;
      for (int i = 0; i < 4; ++i) {
        put_iq2(iq2_xxs_grid(entries[i]), even_signs((word >> (7 * i)) & 127), codes + 32 * g + 8 * i);
      }
    }
  }
};

}  // namespace ingot::quant
