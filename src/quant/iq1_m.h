// IQ1_M: the low 8 bits of 32 grid entries, one for each 8 weights; 16 bytes of nibbles, low nibbles first, each with
// an entry's 3 high bits and the direction in which its levels are moved (see IQ1_S); four u16, each with four 3-bit
// scales s, lowest bits first, and a nibble of the f16 d. w = (d * (2s + 1) / 8) * codebook[code].
#pragma once
#include "quant/iq1_s.h"

namespace ingot::quant {

struct IQ1_M : Grouped<IQ1_M> {
  static constexpr const char* name = "IQ1_M";
  static constexpr uint32_t ggml_type = 29;
  static constexpr int block_size = 256;
  static constexpr int block_bytes = 56;
  static constexpr int levels = 6;
  static constexpr int code_bits = 4;
  static constexpr int group = 16;
  static constexpr float scale_unit = 0.125f;
  static constexpr auto& codebook = IQ1_S::codebook;
  static constexpr ScaleField scale_fields[] = {{48, 0.13894f, ScaleKind::kF16Nibbles}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    const float unit = float_from_f16(load_f16_nibbles(block + 48)) * scale_unit;
    for (int g = 0; g < 16; ++g) {
      const int s = (load_u16(block + 48 + g / 4 * 2) >> (3 * (g % 4))) & 7;
      scales[g] = unit * static_cast<float>(2 * s + 1);
      mins[g] = 0;
    }
    for (int i = 0; i < 32; ++i) {
      const int nibble = block[32 + i / 2] >> (4 * (i % 2));
      put_iq1(iq1_grid(block[i] | (nibble & 7) << 8), nibble >> 3 & 1, codes + 8 * i);
    }
  }
};

}  // namespace ingot::quant
