// How kernels read the scales, signs and codes of a block of IQ1, IQ2, IQ3 or TQ1_0, as it is in the file (quant/iq.h,
// quant/tq1_0.h). file_blocks.cc has the products.
#pragma once
#include "backend/cpu/grids.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/simd.h"

namespace ingot::cpu::INGOT_ISA {
namespace {

// What is computed for a whole block at a time, before its points are looked up.
struct Row {
  uint16_t entries[2 * kGroup];  // of the table of points
  uint32_t marks[kSuperGroups];  // for each group: a bit for each level, or a byte for each point
  // The scales, in units of the block's scale.
  uint32_t multiples[kSuperGroups];          // if a group has one: in both halves of the word
  uint8_t part_multiples[2 * kSuperGroups];  // if a group has two
};

// ---- bits to lanes ----

// Adds an eighth bit to the seven low bits of each byte, so that the number of set bits is even.
template <class V>
INLINE V with_even_bits(V sevens) {
  V parity = sevens ^ sevens >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return sevens | (V)((Groups)(parity << 7) & 0x80808080u);
}

// A scale s stands for the multiple 2s + 1.
INLINE void put_scales(Groups scales, Row& row) {
  const Groups values = (scales | scales << 16) * 2 + 0x00010001u;
  __builtin_memcpy(row.multiples, &values, sizeof(values));
}
INLINE void put_scales(Half scales, Row& row) {
  const Half values = scales + scales + 1;
  __builtin_memcpy(row.part_multiples, &values, sizeof(values));
}

// Of the words of eight groups: four times seven sign bits in the low 28 bits, and a scale s in the other four.
INLINE void put_words(Groups words, Row& row) {
  const Groups signs = with_even_bits((words & 0x7F) | (words << 1 & 0x7F00) | (words << 2 & 0x7F0000) |
                                      (words << 3 & 0x7F000000));
  __builtin_memcpy(row.marks, &signs, sizeof(signs));
  put_scales(words >> 28, row);
}

// Scales of four bits, low bits first: one for each group, or two.
INLINE void put_nibbles(const uint8_t* nibbles, Row& row) {
  put_scales((Groups{} + load_as<uint32_t>(nibbles)) >> Groups{0, 4, 8, 12, 16, 20, 24, 28} & 15, row);
}
INLINE void put_part_nibbles(const uint8_t* nibbles, Row& row) {
  typedef uint64_t Two __attribute__((vector_size(16)));
  const Two both = Two{} + load_as<uint64_t>(nibbles);
  put_scales((Half)__builtin_shufflevector((Half)both, (Half)(both >> 4), 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6,
                                           22, 7, 23) &
                 15,
             row);
}

// Bytes [16 * half, 16 * half + 16) of p, as words.
INLINE Words widened(const uint8_t* p, int half) { return widen(load_as<Half>(p + 16 * half)); }

// Four words, each for four points in a row.
INLINE Words for_points(const uint8_t* words) {
  const Words all = (Words)(Points{} + load_as<uint64_t>(words));
  return __builtin_shufflevector(all, all, 0, 0, 0, 0, 1, 1, 1, 1, 10, 10, 10, 10, 11, 11, 11, 11);
}
INLINE Words in_turn(uint16_t a, uint16_t b, uint16_t c, uint16_t d) {
  return Words{a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d};
}

INLINE void put_entries(Row& row, int half, Words entries) {
  __builtin_memcpy(row.entries + 16 * half, &entries, sizeof(entries));
}

// ---- kAtOnce groups at a time (isa/one_group.h, isa/two_groups.h) ----

// The levels, without the marks that start_multiples accounts for.
template <class T>
INLINE Bytes codes_to_multiply(const uint8_t* block, const Row& row, int g) {
  if constexpr (requires { &T::points; })
    return T::points(block, row, g);
  else
    return T::levels(block, row, g);
}

// The codes of two groups at a time, computed for the whole block.
template <class T>
INLINE auto codes_of_pairs(const uint8_t* block, const Row& row) {
  struct {
    Numbers levels[kSuperGroups / kAtOnce];
    Numbers operator()(int g) const { return levels[g / kAtOnce]; }
  } codes;
  if constexpr (kLooksUpBytes && T::top > 0)
    T::all_levels(block, row, codes.levels);
  else
#pragma GCC unroll 4
    for (int g = 0; g < kSuperGroups; g += kAtOnce)
      codes.levels[g / kAtOnce] = two_of(codes_to_multiply<T>(block, row, g), codes_to_multiply<T>(block, row, g + 1));
  return codes;
}

// The codes of a block, as a function of the first group. Codes are below 128.
template <class T>
INLINE auto codes_of(const uint8_t* block, const Row& row) {
  if constexpr (kAtOnce == 1) {
    return [ block, &row ](int g) __attribute__((always_inline)) { return codes_to_multiply<T>(block, row, g); };
  } else {
    return codes_of_pairs<T>(block, row);
  }
}

// ---- points ----

template <int... i>
INLINE Bytes joined(Half a, Half b, Lanes<i...>) {
  return __builtin_shufflevector(a, b, i...);
}
INLINE Bytes joined(Half a, Half b) { return joined(a, b, LanesOf<32>()); }

template <class Entry>
INLINE Bytes points_of(const uint64_t* grid, const Entry* e) {
  return (Bytes)Points{grid[e[0]], grid[e[1]], grid[e[2]], grid[e[3]]};
}
template <class Entry>
INLINE Bytes points_of(const uint32_t* grid, const Entry* e) {
  return joined(four_words(grid[e[0]], grid[e[1]], grid[e[2]], grid[e[3]]),
                four_words(grid[e[4]], grid[e[5]], grid[e[6]], grid[e[7]]));
}

// ---- formats: read() fills what levels() needs, and returns the block's f16; levels() returns the codes of a group.
// ---- If `top` is not 0, they are magnitudes up to `top`, and the marks are signs ----

struct IQ2_XXS {
  static constexpr int bytes = 66, kind = kByteKind32, top = kTopLevelIQ2;
  INLINE uint16_t read(const uint8_t* block, Row& row) {
    const Groups low = load_as<Groups>(block + 2), high = load_as<Groups>(block + 34);
    put_words(__builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15), row);
    return load_as<uint16_t>(block);
  }
  INLINE Bytes levels(const uint8_t* block, const Row&, int g) {
    return points_of(kGrids.iq2_xxs, block + 2 + 8 * g);
  }
  template <class Levels>
  INLINE void all_levels(const uint8_t* block, const Row&, Levels& levels) {
    look_up_bytes(kGrids.iq2_xxs_planes, kGrids.iq2_levels, block + 2, levels);
  }
};

struct IQ2_XS {
  static constexpr int bytes = 74, kind = kByteKind16, top = kTopLevelIQ2;
  INLINE uint16_t read(const uint8_t* block, Row& row) {
    const Words low = load_as<Words>(block + 2), high = load_as<Words>(block + 34);
    put_entries(row, 0, low & 511);
    put_entries(row, 1, high & 511);
    const Bytes signs = __builtin_shufflevector((Bytes)with_even_bits(low >> 9), (Bytes)with_even_bits(high >> 9), 0, 2,
                                                4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40,
                                                42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62);
    __builtin_memcpy(row.marks, &signs, sizeof(signs));
    put_part_nibbles(block + 66, row);
    return load_as<uint16_t>(block);
  }
  INLINE Bytes levels(const uint8_t*, const Row& row, int g) {
    return points_of(kGrids.iq2_xs, row.entries + 4 * g);
  }
  template <class Levels>
  INLINE void all_levels(const uint8_t*, const Row& row, Levels& levels) {
    look_up(kGrids.iq2_xs_planes, kGrids.iq2_levels, row.entries, levels);
  }
};

struct IQ2_S {
  static constexpr int bytes = 82, kind = kByteKind16, top = kTopLevelIQ2;
  INLINE uint16_t read(const uint8_t* block, Row& row) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const Words high = (Words)spread(load_as<uint32_t>(block + 66 + 4 * half)) & 0xFF;
      put_entries(row, half, widened(block + 2, half) | (high * in_turn(256, 64, 16, 4) & 0x300));
    }
    __builtin_memcpy(row.marks, block + 34, sizeof(row.marks));
    put_part_nibbles(block + 74, row);
    return load_as<uint16_t>(block);
  }
  INLINE Bytes levels(const uint8_t*, const Row& row, int g) {
    return points_of(kGrids.iq2_s, row.entries + 4 * g);
  }
  template <class Levels>
  INLINE void all_levels(const uint8_t*, const Row& row, Levels& levels) {
    look_up(kGrids.iq2_s_planes, kGrids.iq2_levels, row.entries, levels);
  }
};

struct IQ3_XXS {
  static constexpr int bytes = 98, kind = kByteKind32, top = kTopLevelIQ3XXS;
  INLINE uint16_t read(const uint8_t* block, Row& row) {
    put_words(load_as<Groups>(block + 66), row);
    return load_as<uint16_t>(block);
  }
  INLINE Bytes levels(const uint8_t* block, const Row&, int g) {
    return points_of(kGrids.iq3_xxs, block + 2 + 8 * g);
  }
  template <class Levels>
  INLINE void all_levels(const uint8_t* block, const Row&, Levels& levels) {
    look_up(kGrids.iq3_xxs_planes, block + 2, nullptr, levels);
  }
};

struct IQ3_S {
  static constexpr int bytes = 110, kind = kByteKind32, top = kTopLevelIQ3S;
  INLINE uint16_t read(const uint8_t* block, Row& row) {
    if constexpr (!kLooksUpBytes)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const Bytes ninth = mask_of(load_as<uint32_t>(block + 66 + 4 * half)) & 1;
        uint8_t bits[kGroup];
        __builtin_memcpy(bits, &ninth, kGroup);
        for (int i = 0; i < 2; ++i)
          put_entries(row, 2 * half + i, widened(block + 2 + kGroup * half, i) | widened(bits, i) << 8);
      }
    __builtin_memcpy(row.marks, block + 74, sizeof(row.marks));
    put_nibbles(block + 106, row);
    return load_as<uint16_t>(block);
  }
  INLINE Bytes levels(const uint8_t*, const Row& row, int g) {
    return points_of(kGrids.iq3_s, row.entries + 8 * g);
  }
  template <class Levels>
  INLINE void all_levels(const uint8_t* block, const Row&, Levels& levels) {
    const uint64_t ninths = load_as<uint64_t>(block + 66);
    look_up(kGrids.iq3_s_planes, block + 2, &ninths, levels);
  }
};

// A mark is what moving a point's levels down by two eighths subtracts from each of its levels.
struct IQ1_S {
  static constexpr int bytes = 50, kind = kByteKind32, top = 0;
  INLINE uint16_t read(const uint8_t* block, Row& row) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const Words word = for_points(block + 34 + 8 * half);
      const Words bits = word * in_turn(256, 32, 4, 0) | (word >> 1 & in_turn(0, 0, 0, 0xFFFF));
      put_entries(row, half, widened(block + 2, half) | (bits & 0x700));
    }
    typedef uint16_t Eight __attribute__((vector_size(16)));
    const Groups words = __builtin_convertvector(load_as<Eight>(block + 34), Groups);
    const Groups marks = (words >> 15) * 0x02020202u;
    __builtin_memcpy(row.marks, &marks, sizeof(marks));
    put_scales(words >> 12 & 7, row);
    return load_as<uint16_t>(block);
  }
  INLINE Bytes points(const uint8_t*, const Row& row, int g) { return points_of(kGrids.iq1, row.entries + 4 * g); }
  INLINE Bytes levels(const uint8_t* block, const Row& row, int g) {
    return points(block, row, g) - (Bytes)(Groups{} + row.marks[g]);
  }
};

struct IQ1_M {
  static constexpr int bytes = 56, kind = kByteKind16, top = 0;
  INLINE uint16_t read(const uint8_t* block, Row& row) {
    const uint64_t words = load_as<uint64_t>(block + 48);
    const Words scales = for_points(block + 48) * in_turn(512, 64, 8, 1) >> 9 & 7;
    put_scales(__builtin_convertvector(scales, Half), row);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const Words word = for_points(block + 32 + 8 * half);
      const Words bits = word * in_turn(256, 16, 1, 0) | (word >> 4 & in_turn(0, 0, 0, 0xFFFF));
      put_entries(row, half, widened(block, half) | (bits & 0x700));
      const Words down = word * in_turn(4096, 256, 16, 1) >> 14 & 2;
      const Half marks = __builtin_convertvector(down, Half);
      __builtin_memcpy(row.marks + 4 * half, &marks, sizeof(marks));
    }
    return (uint16_t)((words >> 12 & 0xF) | (words >> 24 & 0xF0) | (words >> 36 & 0xF00) | (words >> 48 & 0xF000));
  }
  INLINE Bytes levels(const uint8_t*, const Row& row, int g) {
    return points_of(kGrids.iq1, row.entries + 4 * g) - spread(row.marks[g]);
  }
};

// Digits of three values. The first digit of a fraction of 256 is the whole part of three times the fraction. Here
// fractions have a sign, since 128 is subtracted (three times that is 128 again): such numbers are faster to compare.
INLINE Bytes digit_of(Bytes fraction) {
  typedef int8_t Signed __attribute__((vector_size(32)));
  return (Bytes)(((Signed)fraction < 86 - 128) - ((Signed)fraction > 170 - 128) + 1);
}

struct TQ1_0 {
  static constexpr int bytes = 54, kind = kByteKind256, top = 0;
  INLINE uint16_t read(const uint8_t* block, Row&) { return load_as<uint16_t>(block + 52); }
  // Groups 0 to 4 are the digits of 32 bytes, the next two and a half those of 16 bytes, the rest those of 4 bytes.
  INLINE Bytes levels(const uint8_t* block, const Row&, int g) {
    constexpr uint8_t powers[] = {1, 3, 9, 27, 81};
    if (g < 5) return digit_of((Bytes)((load_as<Bytes>(block) ^ 128) * powers[g]));
    const Half bytes16 = load_as<Half>(block + 32) ^ 128;
    const Half first = (Half)(bytes16 * powers[2 * (g - 5)]);
    if (g < 7) return digit_of(joined(first, (Half)(bytes16 * powers[2 * (g - 5) + 1])));
    typedef uint32_t Four __attribute__((vector_size(16)));
    const Half last = (Half)(Four{} + load_as<uint32_t>(block + 48)) ^ 128;
    return digit_of(joined(first, (Half)(last * Half{1, 1, 1, 1, 3, 3, 3, 3, 9, 9, 9, 9, 27, 27, 27, 27})));
  }
};

}  // namespace
}  // namespace ingot::cpu::INGOT_ISA
