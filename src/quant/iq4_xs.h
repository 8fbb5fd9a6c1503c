// IQ4_XS: f16 d; 8 groups of 32, each with a 6-bit scale s: high two bits in a u16, low four in 4 bytes of nibbles;
// then for each group 16 bytes of nibbles as in IQ4_NL, with its codebook. w = (d * (s - 32)) * codebook[code].
#pragma once
#include "quant/iq4_nl.h"

namespace ingot::quant {

struct IQ4_XS : Grouped<IQ4_XS> {
  static constexpr const char* name = "IQ4_XS";
  static constexpr uint32_t ggml_type = 23;
  static constexpr int block_size = 256;
  static constexpr int block_bytes = 136;
  static constexpr int levels = 16;
  static constexpr int code_bits = 4;
  static constexpr int group = 32;
  static constexpr auto& codebook = IQ4_NL::codebook;
  static constexpr ScaleField scale_fields[] = {{0, 0.00080241f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    const float d = load_f16(block);
    const int high = load_u16(block + 2);
    for (int g = 0; g < 8; ++g) {
      const int s = ((block[4 + g / 2] >> (4 * (g % 2))) & 15) | ((high >> (2 * g)) & 3) << 4;
      scales[g] = d * static_cast<float>(s - 32);
      mins[g] = 0;
      unpack_nibbles<16>(block + 8 + 16 * g, codes + 32 * g);
    }
  }
};

}  // namespace ingot::quant
