// IQ4_NL: f16 scale d; nibbles as in Q4_0, each the index of one of 16 unevenly spaced levels. w = d * codebook[code].
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

struct IQ4_NL : Grouped<IQ4_NL> {
  static constexpr const char* name = "IQ4_NL";
  static constexpr uint32_t ggml_type = 20;
  static constexpr int block_size = 32;
  static constexpr int block_bytes = 18;
  static constexpr int levels = 16;
  static constexpr int code_bits = 4;
  static constexpr int group = 32;
  static constexpr int8_t codebook[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  static constexpr ScaleField scale_fields[] = {{0, 0.014828f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    scales[0] = load_f16(block);
    mins[0] = 0;
    unpack_nibbles<16>(block + 2, codes);
  }
  INGOT_HD static void pack(const uint8_t* codes, float scale, float /*min*/, uint8_t* block) {
    store_f16(block, scale);
    pack_nibbles<16>(codes, block + 2);
  }
};

}  // namespace ingot::quant
