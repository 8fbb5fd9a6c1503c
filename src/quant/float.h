// The dense formats: one number a block. They have no codes or groups, only decode and encode.
#pragma once
#include "base/half.h"

namespace ingot::quant {

struct F32 {
  static constexpr const char* name = "F32";
  static constexpr uint32_t ggml_type = 0;
  static constexpr int block_size = 1;
  static constexpr int block_bytes = 4;
  INGOT_HD static void decode(const uint8_t* block, float* y) { memcpy(y, block, 4); }
  INGOT_HD static void encode(const float* x, uint8_t* block) { memcpy(block, x, 4); }
};

struct F16 {
  static constexpr const char* name = "F16";
  static constexpr uint32_t ggml_type = 1;
  static constexpr int block_size = 1;
  static constexpr int block_bytes = 2;
  INGOT_HD static void decode(const uint8_t* block, float* y) {
    uint16_t bits;
    memcpy(&bits, block, 2);
    *y = float_from_f16(bits);
  }
  INGOT_HD static void encode(const float* x, uint8_t* block) {
    const uint16_t bits = f16_from_float(*x);
    memcpy(block, &bits, 2);
  }
};

struct BF16 {
  static constexpr const char* name = "BF16";
  static constexpr uint32_t ggml_type = 30;
  static constexpr int block_size = 1;
  static constexpr int block_bytes = 2;
  INGOT_HD static void decode(const uint8_t* block, float* y) {
    uint16_t bits;
    memcpy(&bits, block, 2);
    *y = float_from_bf16(bits);
  }
  INGOT_HD static void encode(const float* x, uint8_t* block) {
    const uint16_t bits = bf16_from_float(*x);
    memcpy(block, &bits, 2);
  }
};

}  // namespace ingot::quant
