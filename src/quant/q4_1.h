// Q4_1: f16 scale d, f16 minimum m; 16 bytes of nibbles as in Q4_0. w = d * code + m.
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

struct Q4_1 : Grouped<Q4_1> {
  static constexpr const char* name = "Q4_1";
  static constexpr uint32_t ggml_type = 3;
  static constexpr int block_size = 32;
  static constexpr int block_bytes = 20;
  static constexpr int levels = 16;
  static constexpr int code_bits = 4;
  static constexpr int group = 32;
  static constexpr bool has_min = true;
  static constexpr ScaleField scale_fields[] = {{0, 0.21693f}, {2, -1.62698f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    scales[0] = load_f16(block);
    mins[0] = load_f16(block + 2);
    unpack_nibbles<16>(block + 4, codes);
  }
  INGOT_HD static void pack(const uint8_t* codes, float scale, float min, uint8_t* block) {
    store_f16(block, scale);
    store_f16(block + 2, min);
    pack_nibbles<16>(codes, block + 4);
  }
};

}  // namespace ingot::quant
