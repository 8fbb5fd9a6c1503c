// F8_E4M3: f32 scale s, then 128 numbers of 8 bits: sign, 4 bits of exponent, 3 of mantissa (OCP's E4M3: no infinity;
// NaN has all bits set except the sign). w = s * number. The loader converts FP8 checkpoints to this format if a scale
// covers 128 columns or more. F8_E4M3_32 is the same with 32 numbers: for MXFP8, and for FP8 with other blocks. The
// values are not evenly spaced, so these formats have no codes and groups (grouped.h), only decode.
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

INGOT_HD float float_from_e4m3(uint32_t byte) {
  // Multiplying by 2^120 changes the exponent bias from 7 to 127 and normalises subnormals.
  const float magnitude = float_from_bits((byte & 0x7F) << 20) * 0x1p120f;
  const uint32_t nan = (byte & 0x7F) == 0x7F ? 0x7FC00000u : 0u;
  return float_from_bits(bits_from_float(magnitude) | nan | (byte & 0x80) << 24);
}

// Rounds to nearest, ties to even. Magnitudes above 448, infinity included, become 448, as on GPUs.
inline uint8_t e4m3_from_float(float x) {
  const uint32_t bits = bits_from_float(x), magnitude = bits & 0x7FFFFFFF, sign = bits >> 24 & 0x80;
  if (magnitude > 0x7F800000) return static_cast<uint8_t>(sign | 0x7F);
  if (magnitude >= 0x43E00000) return static_cast<uint8_t>(sign | 0x7E);  // 448
  if (magnitude < 0x3C800000) {  // 2^-6: adding 2^14 leaves steps of 2^-9
    const uint32_t steps = bits_from_float(float_from_bits(magnitude) + 0x1p14f) - bits_from_float(0x1p14f);
    return static_cast<uint8_t>(sign | steps);
  }
  const uint32_t nearest = (magnitude + 0x7FFFF + (magnitude >> 20 & 1)) >> 20;
  return static_cast<uint8_t>(sign | (nearest - (120 << 3)));
}

template <int n>
struct Float8Block {
  static constexpr int block_size = n;
  static constexpr int block_bytes = 4 + n;
  static constexpr ScaleField scale_fields[] = {{0, 0.0093245f, ScaleKind::kF32, false, n >= 128}};

  INGOT_HD static void decode(const uint8_t* block, float* y) {  // y: [n]
    const float scale = float_from_bits(load_u32(block));
    for (int i = 0; i < n; ++i) y[i] = scale * float_from_e4m3(block[4 + i]);
  }
  static void put(const uint8_t* codes, float scale, uint8_t* block) {
    memcpy(block, &scale, 4);
    memcpy(block + 4, codes, n);
  }
  // For random bytes (fill.cc): NaN becomes the largest number.
  static void drop_nan(uint8_t* block) {
    for (int i = 4; i < block_bytes; ++i) block[i] = static_cast<uint8_t>(block[i] - ((block[i] & 0x7F) == 0x7F));
  }
};

struct F8_E4M3 : Float8Block<128> {
  static constexpr const char* name = "F8_E4M3";
};
struct F8_E4M3_32 : Float8Block<32> {
  static constexpr const char* name = "F8_E4M3_32";
};

}  // namespace ingot::quant
