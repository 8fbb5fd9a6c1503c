// IQ3_XXS: f16 d; 64 grid entries, one for each 4 weights; for each group of 32 weights a u32 with four times 7 sign
// bits, lowest bits first, and a 4-bit scale s at the top. w = (d * (2s + 1) / 4) * codebook[code].
#pragma once
#include "quant/iq.h"

namespace ingot::quant {

struct IQ3_XXS : Grouped<IQ3_XXS> {
  static constexpr const char* name = "IQ3_XXS";
  static constexpr uint32_t ggml_type = 18;
  static constexpr int block_size = 256;
  static constexpr int block_bytes = 98;
  static constexpr int levels = 16;
  static constexpr int code_bits = 4;
  static constexpr int group = 32;
  static constexpr float scale_unit = 0.25f;
  static constexpr int8_t codebook[16] = {4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62};
  static constexpr ScaleField scale_fields[] = {{0, 0.0070305f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    const float unit = load_f16(block) * scale_unit;
    for (int g = 0; g < 8; ++g) {
      const uint32_t word = load_u32(block + 66 + 4 * g);
      scales[g] = unit * static_cast<float>(2 * (word >> 28) + 1);
      mins[g] = 0;
      for (int i = 0; i < 4; ++i) {
        const uint8_t* entries = block + 2 + 8 * g + 2 * i;
        put_iq3(iq3_xxs_grid(entries[0]), iq3_xxs_grid(entries[1]), even_signs((word >> (7 * i)) & 127),
                codes + 32 * g + 8 * i);
      }
    }
  }
};

}  // namespace ingot::quant
