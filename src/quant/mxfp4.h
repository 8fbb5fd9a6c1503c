// MXFP4 (OCP Microscaling v1.0): one E8M0 exponent e; nibbles as in Q4_0, each an E2M1 number.
// w = 2^(e-127) * e2m1(code). The codebook holds doubled levels, which are integers; the scale is halved: 2^(e-128). In
// OCP's format e = 255 is NaN; here it is 2^128, as in ggml.
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

struct MXFP4 : Grouped<MXFP4> {
  static constexpr const char* name = "MXFP4";
  static constexpr uint32_t ggml_type = 39;
  static constexpr int block_size = 32;
  static constexpr int block_bytes = 17;
  static constexpr int levels = 16;
  static constexpr int code_bits = 4;
  static constexpr int group = 32;
  static constexpr int8_t codebook[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  static constexpr ScaleField scale_fields[] = {{0, 0.17087f, ScaleKind::kE8M0}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    const uint32_t e = block[0];
    scales[0] = float_from_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);  // e = 0 and 1 give subnormals
    mins[0] = 0;
    unpack_nibbles<16>(block + 1, codes);
  }
  // scale: 2^-126 to 2^127.
  INGOT_HD static void pack(const uint8_t* codes, float scale, float /*min*/, uint8_t* block) {
    block[0] = static_cast<uint8_t>((bits_from_float(scale) >> 23) + 1);
    pack_nibbles<16>(codes, block + 1);
  }
};

// Whether the entries of a codebook are E2M1 numbers, doubled. codebook: [16], or null.
constexpr bool is_e2m1(const int8_t* codebook) {
  return codebook != nullptr && codebook_word(codebook) == kCodebookLow<MXFP4> &&
         codebook_word(codebook + 8) == kCodebookHigh<MXFP4>;
}

}  // namespace ingot::quant
