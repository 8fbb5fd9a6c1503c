// Common parts of the IQ1, IQ2 and IQ3 formats. Eight weights (four in IQ3) are one entry of a grid, a fixed table of
// points. In IQ2 and IQ3 an entry holds magnitudes, and the block stores the signs separately. A code is the index of a
// magnitude, plus 3 (IQ2) or 8 (IQ3) for a negative weight; the codebook lists both signs. A scale field s stands for
// the scale (2s + 1) * scale_unit * d.
#pragma once
#include "quant/grouped.h"

namespace ingot::quant {

// The grids, made by tools/quant_tables/make.py. An entry is a 16-bit word of eight 2-bit or four 4-bit indices. The
// tables are static inside functions because device code cannot index a host array.
INGOT_HD uint32_t iq1_grid(int entry) {
  static constexpr uint16_t table[2048] = {
#include "quant/grids/iq1.inc"
  };
  return table[entry];
}
INGOT_HD uint32_t iq2_xxs_grid(int entry) {
  static constexpr uint16_t table[256] = {
#include "quant/grids/iq2_xxs.inc"
  };
  return table[entry];
}
INGOT_HD uint32_t iq2_xs_grid(int entry) {
  static constexpr uint16_t table[512] = {
#include "quant/grids/iq2_xs.inc"
  };
  return table[entry];
}
INGOT_HD uint32_t iq2_s_grid(int entry) {
  static constexpr uint16_t table[1024] = {
#include "quant/grids/iq2_s.inc"
  };
  return table[entry];
}
INGOT_HD uint32_t iq3_xxs_grid(int entry) {
  static constexpr uint16_t table[256] = {
#include "quant/grids/iq3_xxs.inc"
  };
  return table[entry];
}
INGOT_HD uint32_t iq3_s_grid(int entry) {
  static constexpr uint16_t table[512] = {
#include "quant/grids/iq3_s.inc"
  };
  return table[entry];
}

// Spreads eight 2-bit fields, or eight 4-bit fields, to bytes.
INGOT_HD uint64_t bytes_of_pairs(uint32_t fields) {
  uint64_t x = fields;
  x = (x | x << 24) & 0x000000FF000000FFu;
  x = (x | x << 12) & 0x000F000F000F000Fu;
  return (x | x << 6) & 0x0303030303030303u;
}
INGOT_HD uint64_t bytes_of_nibbles(uint32_t fields) {
  uint64_t x = fields;
  x = (x | x << 16) & 0x0000FFFF0000FFFFu;
  x = (x | x << 8) & 0x00FF00FF00FF00FFu;
  return (x | x << 4) & 0x0F0F0F0F0F0F0F0Fu;
}

// Spreads eight bits to bytes of 0 and 1: masks bit i in byte i, and moves the bit to the byte's top, then its bottom.
INGOT_HD uint64_t bytes_of_bits(uint32_t bits) {
  const uint64_t own_bit = (bits * 0x0101010101010101u) & 0x8040201008040201u;
  return ((own_bit + 0x7F7F7F7F7F7F7F7Fu) >> 7) & 0x0101010101010101u;
}

// Adds the eighth sign bit, which makes the number of set bits even.
INGOT_HD uint32_t even_signs(uint32_t seven) {
  uint32_t parity = seven ^ seven >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return seven | (parity & 1) << 7;
}

INGOT_HD void put_iq2(uint32_t entry, uint32_t signs, uint8_t* codes) {
  const uint64_t bytes = bytes_of_pairs(entry) + 3 * bytes_of_bits(signs);
  memcpy(codes, &bytes, 8);
}
INGOT_HD void put_iq3(uint32_t entry, uint32_t next_entry, uint32_t signs, uint8_t* codes) {
  const uint64_t bytes = bytes_of_nibbles(entry | next_entry << 16) + 8 * bytes_of_bits(signs);
  memcpy(codes, &bytes, 8);
}

// IQ1 has levels -1, 0, 1, moved up or down by 1/8: in eighths, 1 + 8 * {-1, 0, 1} or -1 + 8 * {-1, 0, 1}.
INGOT_HD void put_iq1(uint32_t entry, bool down, uint8_t* codes) {
  const uint64_t bytes = bytes_of_pairs(entry) + (down ? 0x0303030303030303u : 0u);
  memcpy(codes, &bytes, 8);
}

}  // namespace ingot::quant
