// TQ2_0: of each 32 bytes, bits 0-1 are 32 elements, bits 2-3 the next 32, and so on; after 64 bytes f16 d.
// w = d * (code - 1).
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

struct TQ2_0 : Grouped<TQ2_0> {
  static constexpr const char* name = "TQ2_0";
  static constexpr uint32_t ggml_type = 35;
  static constexpr int block_size = 256;
  static constexpr int block_bytes = 66;
  static constexpr int levels = 4;
  static constexpr int code_bits = 4;
  static constexpr int group = 32;
  static constexpr int run = 8;
  static constexpr int zero = 1;
  static constexpr ScaleField scale_fields[] = {{64, 0.8165f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    for (int g = 0; g < 8; ++g) {
      scales[g] = load_f16(block + 64);
      mins[g] = -zero * scales[g];
    }
    for (int part = 0; part < 8; ++part) {
      for (int i = 0; i < 32; ++i) codes[32 * part + i] = (block[32 * (part / 4) + i] >> (2 * (part % 4))) & 3;
    }
  }
};

}  // namespace ingot::quant
