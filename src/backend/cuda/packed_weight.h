// PackedWeight: a weight as the device's kernels want it. Dense formats become rows of the activation type. Block formats become
// codes of 4 or 8 bits and scales, in tiles of 16 rows by 128 columns, so that a warp's load of 16 bytes a lane is one piece of
// memory: of a tile, unit u = (row % 16) * 4 + (column % 128) / 32 holds 32 codes of one row.
//
//   codes 4 bits:  [tile, 64 units, 16 bytes]; each 32-bit word holds 8 codes, codes 2j and 2j + 1 in nibbles j and j + 4, so
//                  that one mask yields a pair in two half words; codebook formats keep them in plain order, for a table of pairs
//   codes 8 bits:  [tile, 2 halves of a unit, 64 units, 16 bytes]
//   scales:        [tile, 64 units, group16 ? 2 : 1, has_min ? 2 : 1]: the scale, then the minimum
//   w = factor * (scale * (code - zero, or codebook[code]) + minimum)
//
// The factor is a power of two that keeps scales well inside of f16. Tiles are padded with zero scales.
#pragma once
#include <cstdint>

namespace ingot::cuda {

enum class Layout : uint8_t { kDense, kCodes4, kCodebook4, kCodes8 };

inline constexpr int kTileRows = 16;
inline constexpr int kTileCols = 128;
inline constexpr int kUnit = 32;  // codes
inline constexpr int kTileUnits = kTileRows * kTileCols / kUnit;

struct PackedWeight {
  Layout layout = Layout::kDense;
  bool f32 = false;             // dense elements and scales are float, not half
  bool has_min = false;
  bool group16 = false;         // two scales a unit
  int zero = 0;
  float factor = 1.0f;
  uint64_t codebook_low = 0, codebook_high = 0;
  int64_t n_out = 0, n_in = 0;
  int64_t k_tiles = 0;          // tiles a row of them; 0: dense
  const void* data = nullptr;   // dense rows, or codes
  const void* scales = nullptr;
};

}  // namespace ingot::cuda
