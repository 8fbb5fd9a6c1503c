// IQ3_S: f16 d; the low 8 bits of 64 grid entries, one for each 4 weights; the entries' ninth bits in 8 bytes; 32 bytes
// of signs; 4 bytes of 4-bit scales s, low nibbles first. w = (d * (2s + 1)) * codebook[code].
#pragma once
#include "quant/iq.h"

namespace ingot::quant {

struct IQ3_S : Grouped<IQ3_S> {
  static constexpr const char* name = "IQ3_S";
  static constexpr uint32_t ggml_type = 21;
  static constexpr int block_size = 256;
  static constexpr int block_bytes = 110;
  static constexpr int levels = 16;
  static constexpr int code_bits = 4;
  static constexpr int group = 32;
  static constexpr int8_t codebook[16] = {1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15};
  static constexpr ScaleField scale_fields[] = {{0, 0.0071282f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    const float d = load_f16(block);
    for (int g = 0; g < 8; ++g) {
      const int s = (block[106 + g / 2] >> (4 * (g % 2))) & 15;
      scales[g] = d * static_cast<float>(2 * s + 1);
      mins[g] = 0;
      const int high = block[66 + g] << 8;
      for (int i = 0; i < 4; ++i) {
        const uint8_t* entries = block + 2 + 8 * g + 2 * i;
        put_iq3(iq3_s_grid(entries[0] | (high >> (2 * i) & 256)), iq3_s_grid(entries[1] | (high >> (2 * i + 1) & 256)),
                block[74 + 4 * g + i], codes + 32 * g + 8 * i);
      }
    }
  }
};

}  // namespace ingot::quant
