// IQ1_S: f16 d; the low 8 bits of 32 grid entries, one for each 8 weights; for each group of 32 weights a u16 with the
// 3 high bits of four entries, lowest bits first, a 3-bit scale s, and the direction in which the levels -1, 0, 1 are
// moved by 1/8. w = (d * (2s + 1) / 8) * codebook[code].
#pragma once
#include "quant/iq.h"

namespace ingot::quant {

struct IQ1_S : Grouped<IQ1_S> {
  static constexpr const char* name = "IQ1_S";
  static constexpr uint32_t ggml_type = 19;
  static constexpr int block_size = 256;
  static constexpr int block_bytes = 50;
  static constexpr int levels = 6;
  static constexpr int code_bits = 4;
  static constexpr int group = 32;
  static constexpr float scale_unit = 0.125f;
  static constexpr int8_t codebook[16] = {-7, 1, 9, -9, -1, 7};  // moved up, moved down
  static constexpr ScaleField scale_fields[] = {{0, 0.13894f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    const float unit = load_f16(block) * scale_unit;
    for (int g = 0; g < 8; ++g) {
      const int word = load_u16(block + 34 + 2 * g);
      scales[g] = unit * static_cast<float>(2 * ((word >> 12) & 7) + 1);
      mins[g] = 0;
      for (int i = 0; i < 4; ++i) {
        const int high = (word >> (3 * i)) & 7;
        put_iq1(iq1_grid(block[2 + 4 * g + i] | high << 8), word >> 15, codes + 32 * g + 8 * i);
      }
    }
  }
};

}  // namespace ingot::quant
