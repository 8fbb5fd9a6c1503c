// Q2_K: 16 bytes, each a group's 4-bit scale s (low) and minimum m (high); 64 bytes of 2-bit codes; f16 d, f16 dmin.
// w = (d * s) * code - (dmin * m). Of each 32 code bytes, bits 0-1 are 32 elements, bits 2-3 the next 32, and so on.
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

struct Q2_K : Grouped<Q2_K> {
  static constexpr const char* name = "Q2_K";
  static constexpr uint32_t ggml_type = 10;
  static constexpr int block_size = 256;
  static constexpr int block_bytes = 84;
  static constexpr int levels = 4;
  static constexpr int code_bits = 4;
  static constexpr int group = 16;
  static constexpr bool has_min = true;
  static constexpr int lowest_scale = 0, highest_scale = 15;
  static constexpr ScaleField scale_fields[] = {{80, 0.072075f}, {82, 0.108112f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    const float d = load_f16(block + 80), dmin = load_f16(block + 82);
    for (int g = 0; g < 16; ++g) {
      scales[g] = d * static_cast<float>(block[g] & 15);
      mins[g] = -(dmin * static_cast<float>(block[g] >> 4));
    }
    for (int half = 0; half < 2; ++half) {
      for (int part = 0; part < 4; ++part) {
        for (int i = 0; i < 32; ++i) codes[128 * half + 32 * part + i] = (block[16 + 32 * half + i] >> (2 * part)) & 3;
      }
    }
  }
  INGOT_HD static void pack(const uint8_t* codes, const int* s, const int* m, float d, float dmin, uint8_t* block) {
    for (int g = 0; g < 16; ++g) block[g] = static_cast<uint8_t>(s[g] | m[g] << 4);
    pack_bit_pairs(codes, block + 16);
    pack_bit_pairs(codes + 128, block + 48);
    store_f16(block + 80, d);
    store_f16(block + 82, dmin);
  }
};

}  // namespace ingot::quant
