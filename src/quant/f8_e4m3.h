// F8_E4M3: f32 scale s, then 32 numbers of 8 bits: sign, 4 bits of exponent, 3 of mantissa (OCP's E4M3: no infinity, all
// ones are NaN). w = s * number. What FP8 checkpoints are gathered into at load, whatever part of a matrix shares a scale
// there, and MXFP8. Its numbers are on no even grid, so it has no codes and groups (grouped.h), only decode.
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

INGOT_HD float float_from_e4m3(uint32_t byte) {
  // 2^120 moves the exponent bias from 7 to 127, and normalises subnormals on the way.
  const float magnitude = float_from_bits((byte & 0x7F) << 20) * 0x1p120f;
  const uint32_t nan = (byte & 0x7F) == 0x7F ? 0x7FC00000u : 0u;
  return float_from_bits(bits_from_float(magnitude) | nan | (byte & 0x80) << 24);
}

struct F8_E4M3 {
  static constexpr const char* name = "F8_E4M3";
  static constexpr int block_size = 32;
  static constexpr int block_bytes = 36;
  static constexpr ScaleField scale_fields[] = {{0, 0.0093245f, ScaleKind::kF32}};

  INGOT_HD static void decode(const uint8_t* block, float* y) {  // y: [32]
    const float scale = float_from_bits(load_u32(block));
    for (int i = 0; i < 32; ++i) y[i] = scale * float_from_e4m3(block[4 + i]);
  }
  static void put(const uint8_t* codes, float scale, uint8_t* block) {
    memcpy(block, &scale, 4);
    memcpy(block + 4, codes, 32);
  }
  // For random bytes (fill.cc): those that are NaN become the largest number.
  static void drop_nan(uint8_t* block) {
    for (int i = 4; i < block_bytes; ++i) block[i] = static_cast<uint8_t>(block[i] - ((block[i] & 0x7F) == 0x7F));
  }
};

}  // namespace ingot::quant
