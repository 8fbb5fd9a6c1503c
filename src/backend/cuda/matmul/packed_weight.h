// PackedWeight: a weight in the layout of the device's kernels. Dense formats become rows of the activation type. Block
// formats become codes of 4 or 8 bits and scales, in tiles of 16 rows by 128 columns. A tile has four units of 32
// columns each; a warp reads 512 contiguous bytes at once. In a unit, lane t of four owns columns 4t to 4t + 3 and 16 +
// 4t to 16 + 4t + 3. These 8 codes are numbered in this order.
//
//   codes 4 bits:  [tile, 16 rows, 4 lanes, 4 units] words of 8 codes; codes 2j and 2j + 1 in nibbles j and j + 4,
//                  so one mask yields a pair in two half words; kCodebook4: plain order, for a table of pairs
//   codes 8 bits:  [tile, 2 pairs of units, 16 rows, 4 lanes, 2 units, 8 bytes]
//   scales:        [tile, 16 rows, 4 units, group16 ? 2 : 1, has_min ? 2 : 1]: the scale, then the minimum
//   w = factor * (scale * level + minimum)
//   level:         kCodes4, kCodes8: code - zero; kCodebook4: codebook[code]
//                  kCodesE2M1, kCodesE4M3: the code is a float, which shifts or one instruction make an f16
//
// The factor is a power of two that keeps scales well within f16. Tiles are padded with zero scales. If there is enough
// memory, a single matrix also has a copy as rows of halves, without the factor, most of them rounded.
//
// A single matrix of F8_E4M3 (kFloat8) stays rows of numbers [n_out, n_in], as cuBLASLt needs them. The scales are f32,
// in two tables (below). A product uses the table for its ScaleGrid.
#pragma once
#include <cstdint>

#include "base/half.h"  // INGOT_HD

namespace ingot::cuda {

enum class Layout : uint8_t { kDense, kCodes4, kCodebook4, kCodes8, kFloat8, kCodesE2M1, kCodesE4M3 };

INGOT_HD constexpr bool has_bytes(Layout layout) {  // else nibbles, if it has codes
  return layout == Layout::kCodes8 || layout == Layout::kCodesE4M3;
}
INGOT_HD constexpr bool has_zero(Layout layout) { return layout == Layout::kCodes4 || layout == Layout::kCodes8; }

// What a level of a format (quant/grouped.h) is in the layout. The bits of an E2M1 number, put where an f16 has them,
// are the number times 2^-14, and formats have it doubled.
INGOT_HD constexpr float level_unit(Layout layout) { return layout == Layout::kCodesE2M1 ? 0x1p-15f : 1.0f; }

// The weights that share a scale, with kFloat8: 128 columns of a row, a whole row, or a block of 128 x 128.
enum class ScaleGrid : uint8_t { kColumns, kRows, kBlocks };
inline constexpr int kScaleCols = 128;

inline constexpr int kTileRows = 16;
inline constexpr int kTileCols = 128;
inline constexpr int kUnit = 32;  // codes
inline constexpr int kTileUnits = kTileRows * kTileCols / kUnit;

// Byte offset, from the start of a tile, of lane t's codes in one unit of a row.
INGOT_HD int place_of_codes(bool eight_bits, int row, int unit, int t) {
  const int lane = row * 4 + t;
  return eight_bits ? (unit / 2 * 64 + lane) * 16 + unit % 2 * 8 : lane * 16 + unit * 4;
}

// Sizes of the tables of scales of 8-bit floats, in floats; cuBLASLt requires multiples of four.
//   columns  [n_in / 128, column_scales(n_out)]         the scale of row r and 128 columns from 128 k on: at [k, r]
//   blocks   [n_out / 128 upwards, block_scales(n_in)]  the scale of the first row of each 128
INGOT_HD constexpr int64_t column_scales(int64_t n_out) { return (n_out + 3) / 4 * 4; }
INGOT_HD constexpr int64_t block_scales(int64_t n_in) { return (n_in / kScaleCols + 3) / 4 * 4; }
INGOT_HD constexpr int64_t blocks_at(int64_t n_out, int64_t n_in) { return n_in / kScaleCols * column_scales(n_out); }
INGOT_HD constexpr int64_t float8_scales(int64_t n_out, int64_t n_in) {
  return blocks_at(n_out, n_in) + (n_out + kScaleCols - 1) / kScaleCols * block_scales(n_in);
}

struct PackedWeight {
  Layout layout = Layout::kDense;
  ScaleGrid grid = ScaleGrid::kColumns;  // with kFloat8
  bool f32 = false;  // dense elements and scales are f32, not f16
  bool has_min = false;
  bool group16 = false;  // two scales in each unit
  int zero = 0;
  float factor = 1.0f;
  uint64_t codebook_low = 0, codebook_high = 0;
  int64_t n_out = 0, n_in = 0;
  int64_t k_tiles = 0;         // tiles in a row of tiles; 0: dense
  const void* data = nullptr;  // dense rows, or codes
  const void* scales = nullptr;
  int64_t n_experts = 1;  // number of matrices, each with its own whole tiles; data and scales belong to the first
  const PackedWeight* whole = nullptr;  // the weight that this one is a part of, with kDense (DeviceWeights::join)
  PackedWeight* halves = nullptr;       // a copy of a quantized weight, with kDense: for products of many rows
  int64_t expert_bytes = 0, expert_scale_bytes = 0;  // bytes of data and of scales from one expert to the next
};

}  // namespace ingot::cuda
