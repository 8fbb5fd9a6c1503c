// Codes with a scale and a minimum. The loader converts integer checkpoints of Hugging Face and MLX to these formats
// (quantized_rows.cc); the checkpoints store codes, scales and zero points in separate tensors, in an order that
// depends on the method. A block is f32 scale s, f32 minimum m, then the codes: 4 bits each as in Q4_0, or 8 bits. w =
// s * code + m. In nearly all files s is an f16 or a bf16, and m is an f16, a bf16 or s times an 8-bit integer. So
// decode rounds only once.
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

template <class T, int bits, int size>
struct Affine : Grouped<T> {
  static constexpr int block_size = size;
  static constexpr int block_bytes = 8 + size * bits / 8;
  static constexpr int levels = 1 << bits;
  static constexpr int code_bits = bits;
  static constexpr int group = 32;
  static constexpr int run = size / group;
  static constexpr bool has_min = true;
  static constexpr ScaleField scale_fields[] = {{0, bits == 4 ? 0.21693f : 0.013532f, ScaleKind::kF32},
                                                {4, bits == 4 ? -1.62698f : -1.72532f, ScaleKind::kF32}};

  INGOT_HD static void unpack(const uint8_t* __restrict block, uint8_t* __restrict codes, float* __restrict scales,
                              float* __restrict mins) {
    for (int g = 0; g < run; ++g) {
      scales[g] = float_from_bits(load_u32(block));
      mins[g] = float_from_bits(load_u32(block + 4));
    }
    if constexpr (bits == 4) {
      unpack_nibbles<size / 2>(block + 8, codes);
    } else {
      for (int i = 0; i < size; ++i) codes[i] = block[8 + i];
    }
  }
  // The inverse of unpack, for loaders.
  static void put(const uint8_t* __restrict codes, float scale, float min, uint8_t* __restrict block) {
    memcpy(block, &scale, 4);
    memcpy(block + 4, &min, 4);
    if constexpr (bits == 4) {
      pack_nibbles<size / 2>(codes, block + 8);
    } else {
      memcpy(block + 8, codes, size);
    }
  }
};

struct AFFINE4_32 : Affine<AFFINE4_32, 4, 32> {
  static constexpr const char* name = "AFFINE4_32";
};
struct AFFINE4_64 : Affine<AFFINE4_64, 4, 64> {
  static constexpr const char* name = "AFFINE4_64";
};
struct AFFINE8_32 : Affine<AFFINE8_32, 8, 32> {
  static constexpr const char* name = "AFFINE8_32";
};
struct AFFINE8_64 : Affine<AFFINE8_64, 8, 64> {
  static constexpr const char* name = "AFFINE8_64";
};

}  // namespace ingot::quant
