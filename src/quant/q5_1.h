// Q5_1: f16 scale d, f16 minimum m; fifth bits and nibbles as in Q5_0. w = d * code + m.
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

struct Q5_1 : Grouped<Q5_1> {
  static constexpr const char* name = "Q5_1";
  static constexpr uint32_t ggml_type = 7;
  static constexpr int block_size = 32;
  static constexpr int block_bytes = 24;
  static constexpr int levels = 32;
  static constexpr int code_bits = 8;
  static constexpr int group = 32;
  static constexpr bool has_min = true;
  static constexpr ScaleField scale_fields[] = {{0, 0.108306f}, {2, -1.67874f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    scales[0] = load_f16(block);
    mins[0] = load_f16(block + 2);
    unpack_nibbles<16>(block + 8, codes);
    unpack_fifth_bits(block + 4, codes);
  }
  INGOT_HD static void pack(const uint8_t* codes, float scale, float min, uint8_t* block) {
    store_f16(block, scale);
    store_f16(block + 2, min);
    pack_fifth_bits(codes, block + 4);
    pack_nibbles<16>(codes, block + 8);
  }
};

}  // namespace ingot::quant
