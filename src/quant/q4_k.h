// Q4_K: f16 d, f16 dmin; 12 bytes of 6-bit scales s and minima m for 8 groups; 128 bytes of nibbles: of each 32 bytes,
// the low nibbles are 32 elements and the high nibbles the next 32. w = (d * s) * code - (dmin * m).
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

// The 12 bytes that Q4_K and Q5_K share. Groups 0-3 are in the low six bits of bytes 0-3 (s) and 4-7 (m). Groups 4-7
// have their low four bits in bytes 8-11 (s low nibble, m high nibble) and their high two bits in the top bits of bytes
// 0-3 (s) and 4-7 (m).
INGOT_HD void unpack_k_scales(const uint8_t* __restrict packed, float d, float dmin, float* __restrict scales,
                              float* __restrict mins) {
  for (int g = 0; g < 4; ++g) {
    const int s = packed[g], m = packed[4 + g], low = packed[8 + g];
    scales[g] = d * static_cast<float>(s & 63);
    scales[4 + g] = d * static_cast<float>((low & 15) | (s >> 6) << 4);
    mins[g] = -(dmin * static_cast<float>(m & 63));
    mins[4 + g] = -(dmin * static_cast<float>((low >> 4) | (m >> 6) << 4));
  }
}

INGOT_HD void pack_k_scales(const int* s, const int* m, uint8_t* packed) {
  for (int g = 0; g < 4; ++g) {
    packed[g] = static_cast<uint8_t>(s[g] | (s[4 + g] >> 4) << 6);
    packed[4 + g] = static_cast<uint8_t>(m[g] | (m[4 + g] >> 4) << 6);
    packed[8 + g] = static_cast<uint8_t>((s[4 + g] & 15) | (m[4 + g] & 15) << 4);
  }
}

struct Q4_K : Grouped<Q4_K> {
  static constexpr const char* name = "Q4_K";
  static constexpr uint32_t ggml_type = 12;
  static constexpr int block_size = 256;
  static constexpr int block_bytes = 144;
  static constexpr int levels = 16;
  static constexpr int code_bits = 4;
  static constexpr int group = 32;
  static constexpr bool has_min = true;
  static constexpr int lowest_scale = 0, highest_scale = 63;
  static constexpr ScaleField scale_fields[] = {{0, 0.0038712f}, {2, 0.029034f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    unpack_k_scales(block + 4, load_f16(block), load_f16(block + 2), scales, mins);
    for (int i = 0; i < 4; ++i) unpack_nibbles<32>(block + 16 + 32 * i, codes + 64 * i);
  }
  INGOT_HD static void pack(const uint8_t* codes, const int* s, const int* m, float d, float dmin, uint8_t* block) {
    store_f16(block, d);
    store_f16(block + 2, dmin);
    pack_k_scales(s, m, block + 4);
    for (int i = 0; i < 4; ++i) pack_nibbles<32>(codes + 64 * i, block + 16 + 32 * i);
  }
};

}  // namespace ingot::quant
