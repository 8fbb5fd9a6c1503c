// Q2_0: f16 d; 16 bytes of 2-bit codes, lowest first. w = d * (code - 1).
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

struct Q2_0 : Grouped<Q2_0> {
  static constexpr const char* name = "Q2_0";
  static constexpr uint32_t ggml_type = 42;
  static constexpr int block_size = 64;
  static constexpr int block_bytes = 18;
  static constexpr int levels = 4;
  static constexpr int code_bits = 4;
  static constexpr int group = 32;
  static constexpr int run = 2;
  static constexpr int zero = 1;
  static constexpr ScaleField scale_fields[] = {{0, 0.8165f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    for (int g = 0; g < 2; ++g) {
      scales[g] = load_f16(block);
      mins[g] = -zero * scales[g];
    }
    for (int i = 0; i < 64; ++i) codes[i] = block[2 + i / 4] >> (2 * (i % 4)) & 3;
  }
};

}  // namespace ingot::quant
