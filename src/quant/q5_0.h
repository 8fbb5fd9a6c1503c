// Q5_0: f16 scale d; 4 bytes, the fifth bit of element i in bit i; 16 bytes of nibbles as in Q4_0. w = d * (code - 16).
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

struct Q5_0 : Grouped<Q5_0> {
  static constexpr const char* name = "Q5_0";
  static constexpr uint32_t ggml_type = 6;
  static constexpr int block_size = 32;
  static constexpr int block_bytes = 22;
  static constexpr int levels = 32;
  static constexpr int code_bits = 8;
  static constexpr int group = 32;
  static constexpr int zero = 16;
  static constexpr ScaleField scale_fields[] = {{0, 0.10815f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    scales[0] = load_f16(block);
    mins[0] = -zero * scales[0];
    unpack_nibbles<16>(block + 6, codes);
    unpack_fifth_bits(block + 2, codes);
  }
  INGOT_HD static void pack(const uint8_t* codes, float scale, float /*min*/, uint8_t* block) {
    store_f16(block, scale);
    pack_fifth_bits(codes, block + 2);
    pack_nibbles<16>(codes, block + 6);
  }
};

}  // namespace ingot::quant
