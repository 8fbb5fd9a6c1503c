// Q1_0: f16 d; 16 bytes of bits, lowest first. w = d * codebook[bit], which is -d or d.
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

struct Q1_0 : Grouped<Q1_0> {
  static constexpr const char* name = "Q1_0";
  static constexpr uint32_t ggml_type = 41;
  static constexpr int block_size = 128;
  static constexpr int block_bytes = 18;
  static constexpr int levels = 2;
  static constexpr int code_bits = 4;
  static constexpr int group = 32;
  static constexpr int run = 4;
  static constexpr int8_t codebook[16] = {-1, 1};
  static constexpr ScaleField scale_fields[] = {{0, 1.0f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    for (int g = 0; g < 4; ++g) {
      scales[g] = load_f16(block);
      mins[g] = 0;
    }
    for (int i = 0; i < 128; ++i) codes[i] = block[2 + i / 8] >> (i % 8) & 1;
  }
};

}  // namespace ingot::quant
