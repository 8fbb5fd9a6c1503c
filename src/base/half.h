// IEEE 754 binary16 and bfloat16 as bit patterns, converted to and from float. Usable from device code.
#pragma once
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define INGOT_HD __host__ __device__ __forceinline__
#else
#define INGOT_HD inline
#endif

namespace ingot {

INGOT_HD float float_from_bits(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

INGOT_HD uint32_t bits_from_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

// Exact for each of the 65,536 bit patterns, subnormals included. Compiles to one select and no branch.
INGOT_HD float float_from_f16(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(half & 0x7FFFu) << 13;
  if (magnitude >= 0x0F800000u) return float_from_bits(sign | magnitude | 0x7F800000u);  // infinity and NaN
  // Multiplying by 2^112 changes the exponent bias from 15 to 127 and normalises subnormals.
  return float_from_bits(sign | bits_from_float(float_from_bits(magnitude) * 0x1p112f));
}

// Rounds to nearest, ties to even; overflow gives infinity; NaN stays NaN.
INGOT_HD uint16_t f16_from_float(float value) {
  const uint32_t bits = bits_from_float(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return sign | 0x7E00u;
  if (magnitude >= 0x477FF000u) return sign | 0x7C00u;  // rounds to 65536 or more
  if (magnitude < 0x38800000u) {                        // below 2^-14: the addition makes 2^-24 the last bit
    return sign | static_cast<uint16_t>(bits_from_float(float_from_bits(magnitude) + 0.5f) - 0x3F000000u);
  }
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  return sign | static_cast<uint16_t>((rounded - 0x38000000u) >> 13);
}

INGOT_HD float float_from_bf16(uint16_t half) { return float_from_bits(static_cast<uint32_t>(half) << 16); }

// Rounds to nearest, ties to even; NaN stays NaN.
INGOT_HD uint16_t bf16_from_float(float value) {
  const uint32_t bits = bits_from_float(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace ingot
