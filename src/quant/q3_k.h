// Q3_K: 32 bytes of third bits; 64 bytes of low two bits, laid out as in Q2_K; 12 bytes of 6-bit scales s; f16 d.
// w = (d * (s - 32)) * (code - 4). Bit p of third-bit byte i belongs to element 32 * p + i.
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

struct Q3_K : Grouped<Q3_K> {
  static constexpr const char* name = "Q3_K";
  static constexpr uint32_t ggml_type = 11;
  static constexpr int block_size = 256;
  static constexpr int block_bytes = 110;
  static constexpr int levels = 8;
  static constexpr int code_bits = 4;
  static constexpr int group = 16;
  static constexpr int zero = 4;
  static constexpr int lowest_scale = -32, highest_scale = 31;
  static constexpr ScaleField scale_fields[] = {{108, 0.023074f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    const float d = load_f16(block + 108);
    for (int g = 0; g < 16; ++g) {  // low four bits: nibbles of bytes 0-7; high two: bytes 8-11, four groups a bit pair
      const int low = (block[96 + g % 8] >> (4 * (g / 8))) & 15;
      const int high = (block[104 + g % 4] >> (2 * (g / 4))) & 3;
      scales[g] = d * static_cast<float>((low | high << 4) - 32);
      mins[g] = -zero * scales[g];
    }
    for (int half = 0; half < 2; ++half) {
      for (int part = 0; part < 4; ++part) {
        for (int i = 0; i < 32; ++i) {
          const int low = (block[32 + 32 * half + i] >> (2 * part)) & 3;
          const int high = (block[i] >> (4 * half + part)) & 1;
          codes[128 * half + 32 * part + i] = static_cast<uint8_t>(low | high << 2);
        }
      }
    }
  }
  INGOT_HD static void pack(const uint8_t* codes, const int* s, const int*, float d, float, uint8_t* block) {
    memset(block, 0, 32);
    for (int i = 0; i < 256; ++i) block[i % 32] |= static_cast<uint8_t>((codes[i] >> 2) << (i / 32));
    pack_bit_pairs(codes, block + 32);
    pack_bit_pairs(codes + 128, block + 64);
    memset(block + 96, 0, 12);
    for (int g = 0; g < 16; ++g) {
      const int biased = s[g] + 32;
      block[96 + g % 8] |= static_cast<uint8_t>((biased & 15) << (4 * (g / 8)));
      block[104 + g % 4] |= static_cast<uint8_t>((biased >> 4) << (2 * (g / 4)));
    }
    store_f16(block + 108, d);
  }
};

}  // namespace ingot::quant
