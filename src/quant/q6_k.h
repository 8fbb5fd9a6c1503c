// Q6_K: 128 bytes of low nibbles; 64 bytes of high bit pairs; 16 signed scales s; f16 d. w = (d * s) * (code - 32).
// Each half block of 128 elements has 64 low bytes (low nibbles: 64 elements, high nibbles: the next 64) and 32 high
// bytes (bits 0-1: 32 elements, bits 2-3 the next 32, and so on).
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

struct Q6_K : Grouped<Q6_K> {
  static constexpr const char* name = "Q6_K";
  static constexpr uint32_t ggml_type = 14;
  static constexpr int block_size = 256;
  static constexpr int block_bytes = 210;
  static constexpr int levels = 64;
  static constexpr int code_bits = 8;
  static constexpr int group = 16;
  static constexpr int zero = 32;
  static constexpr int lowest_scale = -128, highest_scale = 127;
  static constexpr ScaleField scale_fields[] = {{208, 0.00073223f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    const float d = load_f16(block + 208);
    for (int g = 0; g < 16; ++g) {
      scales[g] = d * static_cast<float>(static_cast<int8_t>(block[192 + g]));
      mins[g] = -zero * scales[g];
    }
    for (int half = 0; half < 2; ++half) {
      for (int part = 0; part < 4; ++part) {
        const uint8_t* low = block + 64 * half + 32 * (part % 2);
        const uint8_t* high = block + 128 + 32 * half;
        for (int i = 0; i < 32; ++i) {
          codes[128 * half + 32 * part + i] =
              static_cast<uint8_t>(((low[i] >> (4 * (part / 2))) & 15) | ((high[i] >> (2 * part)) & 3) << 4);
        }
      }
    }
  }
  INGOT_HD static void pack(const uint8_t* codes, const int* s, const int*, float d, float, uint8_t* block) {
    for (int half = 0; half < 2; ++half) {
      pack_nibbles<64>(codes + 128 * half, block + 64 * half);
      uint8_t high[128];
      for (int i = 0; i < 128; ++i) high[i] = codes[128 * half + i] >> 4;
      pack_bit_pairs(high, block + 128 + 32 * half);
    }
    for (int g = 0; g < 16; ++g) block[192 + g] = static_cast<uint8_t>(s[g]);
    store_f16(block + 208, d);
  }
};

}  // namespace ingot::quant
