// The common base of the block formats. A block holds unsigned codes; each group of codes has a scale and a minimum:
//   w = scale * value(code) + min      value(code) is the code itself, or codebook[code]; 0 <= code < levels
// A format derives from Grouped<itself>, defines its constants, and reads the bits of a block in `unpack`. Grouped
// provides `decode`. The backends' load-time repacking uses `unpack` too. The three kinds of format differ only in
// their constants:
//   symmetric   zero = z      min = -z * scale, exact because z is a power of two; decoded as scale * (code - z)
//   with min    has_min       the block stores min
//   codebook    codebook[16]  min = 0
// Products of f16 scales and codes fit in 24 bits, so decode rounds once at most, with or without fused multiply-add. A
// block of 256 elements has one factor d for all scales, and possibly a factor dmin for all minima. In such a block
//   scale = d * scale_unit * n     scale_unit is a power of two, n a signed 8-bit integer
// The backends have kernels for at most 32 elements with a common scale. If more elements share a scale, `unpack`
// repeats the scale for each group of 32, and `run` is the number of neighbouring groups that share a scale. A format
// that can be written also has `pack`, the inverse of `unpack`. `pack` takes codes, scale and minimum. For blocks of
// 256 elements, `pack` takes codes, the groups' integers s (lowest_scale to highest_scale) and m (0 to highest_scale),
// d and dmin (encode.cc).
#pragma once
#include "base/half.h"

namespace ingot::quant {

// How a scale field is stored: f16; a power of two, 2^(byte - 127); E4M3 without a sign; an f16 in the top nibbles of
// four u16, lowest nibble first; f32.
enum class ScaleKind : uint8_t { kF16, kE8M0, kUE4M3, kF16Nibbles, kF32 };

// A scale field of the block. If this field holds `unit` and all other bytes are random, the weights have mean 0 and
// deviation 1 (fill.cc).
struct ScaleField {
  int offset;  // bytes from the start of the block
  float unit;
  ScaleKind kind = ScaleKind::kF16;
  bool multiplies = false;  // multiplies the field before it, so sigma does not scale it
  bool shared = false;      // in checkpoints, whole rows or matrices share the value; random fills do too
};

template <class T>
concept HasCodebook = requires {
  T::codebook[0];
};

// A codebook as two integers, because device code cannot index a host array.
constexpr uint64_t codebook_word(const int8_t* entries) {
  uint64_t word = 0;
  for (int i = 0; i < 8; ++i) word |= static_cast<uint64_t>(static_cast<uint8_t>(entries[i])) << (8 * i);
  return word;
}
template <class T>
inline constexpr uint64_t kCodebookLow = codebook_word(T::codebook);
template <class T>
inline constexpr uint64_t kCodebookHigh = codebook_word(T::codebook + 8);

INGOT_HD int codebook_entry(uint64_t low, uint64_t high, int code) {
  return static_cast<int8_t>((code & 8 ? high : low) >> (8 * (code & 7)));
}

template <class T>
struct Grouped {
  static constexpr int zero = 0;
  static constexpr bool has_min = false;
  static constexpr float scale_unit = 1;
  static constexpr int run = 1;

  // The integer by which the scale is multiplied, without the minimum: codebook[code], or code - zero.
  INGOT_HD static int level(int code) {
    if constexpr (HasCodebook<T>) {
#if defined(__CUDA_ARCH__)
      return codebook_entry(kCodebookLow<T>, kCodebookHigh<T>, code);
#else
      return T::codebook[code];
#endif
    } else {
      return code - T::zero;
    }
  }

  INGOT_HD static void decode(const uint8_t* block, float* y) {  // y: [block_size]
    constexpr int kGroups = T::block_size / T::group;
    // Without alignas, GCC 12 at -O3 for AVX-512 reads a local array with aligned loads from unaligned addresses and
    // crashes.
    alignas(64) uint8_t codes[T::block_size];
    alignas(64) float scales[kGroups], mins[kGroups];
    T::unpack(block, codes, scales, mins);
    for (int g = 0; g < kGroups; ++g) {
      for (int i = g * T::group; i < (g + 1) * T::group; ++i) {
        const float product = scales[g] * static_cast<float>(level(codes[i]));
        if constexpr (T::has_min) {
          y[i] = product + mins[g];
        } else {
          y[i] = product;
        }
      }
    }
  }
};

INGOT_HD uint16_t load_u16(const uint8_t* p) {
  uint16_t value;
  memcpy(&value, p, 2);
  return value;
}
INGOT_HD uint32_t load_u32(const uint8_t* p) {
  uint32_t value;
  memcpy(&value, p, 4);
  return value;
}
INGOT_HD float load_f16(const uint8_t* p) { return float_from_f16(load_u16(p)); }
INGOT_HD void store_f16(uint8_t* p, float value) {
  const uint16_t half = f16_from_float(value);
  memcpy(p, &half, 2);
}

// Assembles the f16 of IQ1_M from four nibbles.
INGOT_HD uint16_t load_f16_nibbles(const uint8_t* p) {
  return static_cast<uint16_t>(p[1] >> 4 | (p[3] & 0xF0) | (p[5] & 0xF0) << 4 | (p[7] & 0xF0) << 8);
}

// Reads as ggml does: 0x7F is 0, not NaN, and the sign bit is ignored.
INGOT_HD float float_from_ue4m3(uint32_t byte) {
  const uint32_t exponent = byte >> 3 & 15, mantissa = byte & 7;
  if (byte == 0x7F) return 0;
  if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-9f;
  return float_from_bits((exponent + 120) << 23 | mantissa << 20);
}

// The bits of a scale field, for code that handles any format (fill.cc, tests). For an f32, only the upper half: a
// bf16.
inline void store_scale_bits(const ScaleField& field, uint8_t* block, uint16_t bits) {
  uint8_t* p = block + field.offset;
  if (field.kind == ScaleKind::kF16Nibbles) {
    for (int i = 0; i < 4; ++i)
      p[2 * i + 1] = static_cast<uint8_t>((p[2 * i + 1] & 15) | ((bits >> (4 * i)) & 15) << 4);
  } else if (field.kind == ScaleKind::kF32) {
    const uint32_t word = static_cast<uint32_t>(bits) << 16;
    memcpy(p, &word, 4);
  } else {
    memcpy(p, &bits, field.kind == ScaleKind::kF16 ? 2 : 1);
  }
}
inline uint16_t load_scale_bits(const ScaleField& field, const uint8_t* block) {
  const uint8_t* p = block + field.offset;
  if (field.kind == ScaleKind::kF16Nibbles) return load_f16_nibbles(p);
  if (field.kind == ScaleKind::kF32) return static_cast<uint16_t>(load_u32(p) >> 16);
  return field.kind == ScaleKind::kF16 ? load_u16(p) : *p;
}

// 2n codes of four bits: first the low nibbles of n bytes, then the high nibbles.
template <int n>
INGOT_HD void unpack_nibbles(const uint8_t* __restrict bytes, uint8_t* __restrict codes) {
  for (int i = 0; i < n; ++i) codes[i] = bytes[i] & 15;
  for (int i = 0; i < n; ++i) codes[n + i] = bytes[i] >> 4;
}
template <int n>
INGOT_HD void pack_nibbles(const uint8_t* __restrict codes, uint8_t* __restrict bytes) {
  for (int i = 0; i < n; ++i) bytes[i] = static_cast<uint8_t>((codes[i] & 15) | (codes[n + i] << 4));
}

// Packs the low two bits of 128 codes: bits 0-1 of 32 bytes hold the first 32 codes, bits 2-3 the next 32, and so on.
INGOT_HD void pack_bit_pairs(const uint8_t* __restrict codes, uint8_t* __restrict bytes) {
  for (int i = 0; i < 32; ++i) {
    bytes[i] = static_cast<uint8_t>((codes[i] & 3) | (codes[32 + i] & 3) << 2 | (codes[64 + i] & 3) << 4 |
                                    (codes[96 + i] & 3) << 6);
  }
}

// Adds 16 to codes[i] if bit i of the four bytes is set. A word holds eight codes and uses the eight bits of one byte.
INGOT_HD void unpack_fifth_bits(const uint8_t* __restrict bits, uint8_t* __restrict codes) {
  for (int i = 0; i < 4; ++i) {
    uint64_t word;
    memcpy(&word, codes + 8 * i, 8);
    const uint64_t own_bit = (bits[i] * 0x0101010101010101u) & 0x8040201008040201u;
    word |= ((own_bit + 0x7F7F7F7F7F7F7F7Fu) >> 3) & 0x1010101010101010u;
    memcpy(codes + 8 * i, &word, 8);
  }
}
INGOT_HD void pack_fifth_bits(const uint8_t* __restrict codes, uint8_t* __restrict bits) {
  for (int i = 0; i < 4; ++i) {
    int byte = 0;
    for (int j = 0; j < 8; ++j) byte |= (codes[8 * i + j] >> 4) << j;
    bits[i] = static_cast<uint8_t>(byte);
  }
}

}  // namespace ingot::quant
