// Products of bf16 numbers on Intel's matrix unit (AMX): 16 tokens by 16 rows by 32 of k in one instruction. Everything
// else of the instruction set `amx` is that of avx512bf16.
#pragma once
#include "backend/cpu/kernels.h"

namespace ingot::cpu::amx {

// Whether the processor has the unit and the system lets this process use it.
bool is_usable();
bool has_int8();  // whether the unit also multiplies bytes

// The sizes of the eight tile registers.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

constexpr int kTokens = 32;  // of a tile

extern const TileRow kBf16Tiles;
extern const BlockRow kBf16Runs;
extern const ByteUnit kByteUnit;       // only if has_int8()
double peak_bf16(int64_t iterations);  // returns the number of operations
double peak_int8(int64_t iterations);  // the same; only if has_int8()

}  // namespace ingot::cpu::amx
