// IQ4_XS: f16 d; for 8 groups of 32 weights, 6-bit scales s: the high two bits in a u16, the low four bits in 4 bytes
// of nibbles; then for each group 16 bytes of nibbles as in IQ4_NL, with the codebook of IQ4_NL.
// w = (d * (s - 32)) * codebook[code].
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
  static constexpr int lowest_scale = -32, highest_scale = 31;
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
  INGOT_HD static void pack(const uint8_t* codes, const int* s, const int*, float d, float, uint8_t* block) {
    store_f16(block, d);
    memset(block + 2, 0, 6);
    for (int g = 0; g < 8; ++g) {
      const int biased = s[g] + 32;
      block[2 + g / 4] |= static_cast<uint8_t>((biased >> 4) << (2 * (g % 4)));
      block[4 + g / 2] |= static_cast<uint8_t>((biased & 15) << (4 * (g % 2)));
      pack_nibbles<16>(codes + 32 * g, block + 8 + 16 * g);
    }
  }
};

}  // namespace ingot::quant
