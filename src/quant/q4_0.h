// Q4_0: f16 scale d; 16 bytes: element i in the low nibble of byte i, element 16 + i in the high nibble.
// w = d * (code - 8).
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

struct Q4_0 : Grouped<Q4_0> {
  static constexpr const char* name = "Q4_0";
  static constexpr uint32_t ggml_type = 2;
  static constexpr int block_size = 32;
  static constexpr int block_bytes = 18;
  static constexpr int levels = 16;
  static constexpr int code_bits = 4;
  static constexpr int group = 32;
  static constexpr int zero = 8;
  static constexpr ScaleField scale_fields[] = {{0, 0.21567f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    scales[0] = load_f16(block);
    mins[0] = -zero * scales[0];
    unpack_nibbles<16>(block + 2, codes);
  }
  INGOT_HD static void pack(const uint8_t* codes, float scale, float /*min*/, uint8_t* block) {
    store_f16(block, scale);
    pack_nibbles<16>(codes, block + 2);
  }
};

}  // namespace ingot::quant
