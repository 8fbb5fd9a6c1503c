// IQ2_XS: f16 d; 32 u16, each with the 9-bit grid entry and 7 sign bits of 8 weights; 8 bytes of 4-bit scales s, low
// nibbles first. w = (d * (2s + 1) / 8) * codebook[code].
#pragma once
#include "quant/iq2_xxs.h"

namespace ingot::quant {

struct IQ2_XS : Grouped<IQ2_XS> {
  static constexpr const char* name = "IQ2_XS";
  static constexpr uint32_t ggml_type = 17;
  static constexpr int block_size = 256;
  static constexpr int block_bytes = 74;
  static constexpr int levels = 6;
  static constexpr int code_bits = 4;
  static constexpr int group = 16;
  static constexpr float scale_unit = 0.125f;
  static constexpr auto& codebook = IQ2_XXS::codebook;
  static constexpr ScaleField scale_fields[] = {{0, 0.017860f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    const float unit = load_f16(block) * scale_unit;
    for (int g = 0; g < 16; ++g) {
      const int s = (block[66 + g / 2] >> (4 * (g % 2))) & 15;
      scales[g] = unit * static_cast<float>(2 * s + 1);
      mins[g] = 0;
    }
    for (int i = 0; i < 32; ++i) {
      const uint32_t word = load_u16(block + 2 + 2 * i);
      put_iq2(iq2_xs_grid(word & 511), even_signs(word >> 9), codes + 8 * i);
    }
  }
};

}  // namespace ingot::quant
