// What products with the blocks of a file (file_block.h) do for a group of 32 numbers. two_groups.h has the same
// functions for two groups at once. dot_scaled returns sums of four products times factors, eight sums for each group.
// If a group has two parts, the first half of its sums belongs to the first part. Sums times a multiple are exact
// integers below 2^24, so every instruction set gives the same bits.
//
// A set includes this file after its own signs_of, with_signs_of, dot_scaled, twice_in_lanes and pair_of_bytes.
#pragma once
#include "backend/cpu/kernels/isa/plain.h"

namespace ingot::cpu::INGOT_ISA {

constexpr int kAtOnce = 1;  // groups
constexpr bool kLooksUpBytes = false;
typedef Bytes Numbers;  // of the groups
typedef Floats Totals;  // the sums as floats

// What the sums of group g are multiplied by. `Row` is the one of file_block.h.
template <int parts, class Row>
INLINE auto factors_of(const Row& row, int g) {
  if constexpr (parts == 1)
    return twice_in_lanes(row.multiples[g]);
  else
    return pair_of_bytes(row.part_multiples, g);
}
// The signs of group g, in the form that with_signs_of needs.
template <class Row>
INLINE Bytes signs_at(const Row& row, int g) {
  return signs_of(row.marks[g]);
}
INLINE float scales_at(const float* scales, int g) { return scales[g]; }

// From the totals of even and of odd groups.
INLINE void halves_of(const Totals (&totals)[2], Floats (&halves)[2]) { halves[0] = totals[0], halves[1] = totals[1]; }

}  // namespace ingot::cpu::INGOT_ISA
