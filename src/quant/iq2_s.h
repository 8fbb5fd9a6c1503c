// IQ2_S: f16 d; the low 8 bits of 32 grid entries, one for each 8 weights; 32 bytes of signs; the entries' 2 high bits
// in 8 bytes, lowest first; 8 bytes of 4-bit scales s, low nibbles first. w = (d * (2s + 1) / 8) * codebook[code].
#pragma once
#include "quant/iq2_xxs.h"

namespace ingot::quant {

struct IQ2_S : Grouped<IQ2_S> {
  static constexpr const char* name = "IQ2_S";
  static constexpr uint32_t ggml_type = 22;
  static constexpr int block_size = 256;
  static constexpr int block_bytes = 82;
  static constexpr int levels = 6;
  static constexpr int code_bits = 4;
  static constexpr int group = 16;
  static constexpr float scale_unit = 0.125f;
  static constexpr auto& codebook = IQ2_XXS::codebook;
  static constexpr ScaleField scale_fields[] = {{0, 0.017721f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    const float unit = load_f16(block) * scale_unit;
    for (int g = 0; g < 16; ++g) {
      const int s = (block[74 + g / 2] >> (4 * (g % 2))) & 15;
      scales[g] = unit * static_cast<float>(2 * s + 1);
      mins[g] = 0;
    }
    for (int i = 0; i < 32; ++i) {
      const int high = (block[66 + i / 4] >> (2 * (i % 4))) & 3;
      put_iq2(iq2_s_grid(block[2 + i] | high << 8), block[34 + i], codes + 8 * i);
    }
  }
};

}  // namespace ingot::quant
