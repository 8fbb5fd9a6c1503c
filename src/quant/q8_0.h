// Q8_0: f16 scale d; 32 signed bytes q. w = d * q. The code is q + 128, the byte with its top bit flipped.
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

struct Q8_0 : Grouped<Q8_0> {
  static constexpr const char* name = "Q8_0";
  static constexpr uint32_t ggml_type = 8;
  static constexpr int block_size = 32;
  static constexpr int block_bytes = 34;
  static constexpr int levels = 256;
  static constexpr int code_bits = 8;
  static constexpr int group = 32;
  static constexpr int zero = 128;
  static constexpr ScaleField scale_fields[] = {{0, 0.013532f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    scales[0] = load_f16(block);
    mins[0] = -zero * scales[0];
    for (int i = 0; i < 32; ++i) codes[i] = block[2 + i] ^ 0x80;
  }
  INGOT_HD static void pack(const uint8_t* codes, float scale, float /*min*/, uint8_t* block) {
    store_f16(block, scale);
    for (int i = 0; i < 32; ++i) block[2 + i] = codes[i] ^ 0x80;
  }
};

}  // namespace ingot::quant
