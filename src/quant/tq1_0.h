// TQ1_0: a byte holds five ternary digits, as a fraction of 256: digit k is the whole part of 3 times the fraction of
// byte * 3^k. 32 bytes hold digit 0 of 32 elements, then digit 1 of the next 32, and so on, 160 elements in all; 16
// bytes hold 80 elements in the same way; 4 bytes hold four digits of the last 16 elements; then f16 d. w = d * (code -
// 1).
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

struct TQ1_0 : Grouped<TQ1_0> {
  static constexpr const char* name = "TQ1_0";
  static constexpr uint32_t ggml_type = 34;
  static constexpr int block_size = 256;
  static constexpr int block_bytes = 54;
  static constexpr int levels = 3;
  static constexpr int code_bits = 4;
  static constexpr int group = 32;
  static constexpr int run = 8;
  static constexpr int zero = 1;
  static constexpr ScaleField scale_fields[] = {{52, 1.2233f}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    for (int g = 0; g < 8; ++g) {
      scales[g] = load_f16(block + 52);
      mins[g] = -zero * scales[g];
    }
    unpack_digits<5, 32>(block, codes);
    unpack_digits<5, 16>(block + 32, codes + 160);
    unpack_digits<4, 4>(block + 48, codes + 240);
  }

 private:
  template <int n_digits, int n_bytes>
  INGOT_HD static void unpack_digits(const uint8_t* __restrict bytes, uint8_t* __restrict codes) {
    int power = 1;
    for (int k = 0; k < n_digits; ++k, power *= 3) {
      for (int i = 0; i < n_bytes; ++i) {
        codes[k * n_bytes + i] = static_cast<uint8_t>((bytes[i] * power & 255) * 3 >> 8);
      }
    }
  }
};

}  // namespace ingot::quant
