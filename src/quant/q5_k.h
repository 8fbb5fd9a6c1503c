// Q5_K: f16 d, f16 dmin; 12 bytes of scales and minima as in Q4_K; 32 bytes of fifth bits (element 32 * g + i has bit g
// of byte i); 128 bytes of nibbles as in Q4_K. w = (d * s) * code - (dmin * m).
#pragma once
#include "quant/q4_k.h"

namespace ingot::quant {

struct Q5_K : Grouped<Q5_K> {
  static constexpr const char* name = "Q5_K";
  static constexpr uint32_t ggml_type = 13;
  static constexpr int block_size = 256;
  static constexpr int block_bytes = 176;
  static constexpr int levels = 32;
  static constexpr int code_bits = 8;
  static constexpr int group = 32;
  static constexpr bool has_min = true;
  static constexpr int lowest_scale = 0, highest_scale = 63;
  static constexpr ScaleField scale_fields[] = {{0, 0.0018978f}, {2, 0.029416f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    unpack_k_scales(block + 4, load_f16(block), load_f16(block + 2), scales, mins);
    for (int g = 0; g < 8; ++g) {
      const uint8_t* nibbles = block + 48 + 32 * (g / 2);
      for (int i = 0; i < 32; ++i) {
        codes[32 * g + i] =
            static_cast<uint8_t>(((nibbles[i] >> (4 * (g % 2))) & 15) | ((block[16 + i] >> g) & 1) << 4);
      }
    }
  }
  INGOT_HD static void pack(const uint8_t* codes, const int* s, const int* m, float d, float dmin, uint8_t* block) {
    store_f16(block, d);
    store_f16(block + 2, dmin);
    pack_k_scales(s, m, block + 4);
    memset(block + 16, 0, 32);
    for (int i = 0; i < 256; ++i) block[16 + i % 32] |= static_cast<uint8_t>((codes[i] >> 4) << (i / 32));
    for (int i = 0; i < 4; ++i) pack_nibbles<32>(codes + 64 * i, block + 48 + 32 * i);
  }
};

}  // namespace ingot::quant
