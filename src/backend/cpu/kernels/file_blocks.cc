// Products with panels that hold the blocks of the file, [n_in / 256, 32 rows, bytes of a block].
//
// IQ1, IQ2 and IQ3 store an index into a table of points instead of 4 or 8 weights (quant/iq.h), and TQ1_0 stores five
// weights in a byte. Panels with a field for each weight are up to twice as large. Products are two to three times as
// fast with them, as long as memory is fast enough, because nothing has to be looked up.
//
// For few tokens, each row of weights is multiplied by each token: the levels of a group are looked up into a register
// and multiplied at once (TQ1_0: ternary_rows.cc). VBMI looks up 64 bytes at once in tables of 128 bytes, so a few
// instructions find all levels of a block; IQ1's table of 2,048 points is too large for that.
//
// For more tokens, the blocks of 32 rows are unpacked to a block of a panel with one byte for each code, which stays in
// the first-level cache for all tokens.
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/file_block.h"
#include "backend/cpu/kernels/panel_sums.h"
#include "backend/cpu/kernels/quant_panel.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

namespace ingot::cpu::INGOT_ISA {
namespace {

constexpr int kRowsAtOnce = W < 8 ? 8 : W;

// Writes the scales of a group to their places in the block of a panel at `out`.
template <class T>
INLINE void put_row_scales(const Row& read, int g, int row, uint8_t* out) {
  constexpr BlockLayout b = block_layout(kQuantKinds[T::kind]);
  constexpr uint32_t zero = T::top > 0 ? T::top : kTopLevelIQ1;
  uint8_t* scales = out + b.head_bytes + g * b.record_bytes;
  if constexpr (b.parts == 2) {
    const uint32_t one = read.part_multiples[2 * g], two = read.part_multiples[2 * g + 1];
    const uint32_t words[] = {one | one << 16, two | two << 16, (-zero * one & 0xFFFF) | -zero * two << 16};
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i) __builtin_memcpy(scales + (i * kPanelRows + row) * 4, &words[i], 4);
  } else if constexpr (!b.shared) {
    scales[row] = (uint8_t)read.multiples[g];
  }
}

// The codes of a row's block, as bytes without a sign.
template <class T>
INLINE void put_codes(const uint8_t* block, const Row& row, uint8_t* out) {
  if constexpr (T::top > 0) {
    const auto levels = codes_of<T>(block, row);
#pragma GCC unroll 8
    for (int g = 0; g < kSuperGroups; g += kAtOnce) {
      const Numbers codes = with_signs_of(levels(g), signs_at(row, g)) + (uint8_t)T::top;
      __builtin_memcpy(out + kGroup * g, &codes, sizeof(codes));
    }
  } else {
#pragma GCC unroll 8
    for (int g = 0; g < kSuperGroups; ++g) {
      const Bytes codes = T::levels(block, row, g);
      __builtin_memcpy(out + kGroup * g, &codes, sizeof(codes));
    }
  }
}

// Unpacks the blocks of 32 rows, one after another, to a block of a panel of T::kind (kernels.h).
template <class T>
void unpack_rows(const uint8_t* blocks, uint8_t* out) {
  constexpr BlockLayout b = block_layout(kQuantKinds[T::kind]);
  alignas(64) uint8_t codes[kRowsAtOnce][kGroup * kSuperGroups];
  Row rows[kRowsAtOnce];
  for (int first = 0; first < kPanelRows; first += kRowsAtOnce, blocks += kRowsAtOnce * T::bytes) {
#pragma GCC unroll 1
    for (int i = 0; i < kRowsAtOnce; ++i) {
      prefetch<T::bytes>(blocks + i * T::bytes + kPrefetchAhead);
      const uint16_t base = T::read(blocks + i * T::bytes, rows[i]);
      __builtin_memcpy(out + 2 * (first + i), &base, 2);
#pragma GCC unroll 8
      for (int g = 0; g < kSuperGroups; ++g) put_row_scales<T>(rows[i], g, first + i, out);
    }
#pragma GCC unroll 1
    for (int i = 0; i < kRowsAtOnce; ++i) put_codes<T>(blocks + i * T::bytes, rows[i], codes[i]);
    for (int row = 0; row < kRowsAtOnce; row += W)
      for (int quad = 0; quad < kGroup * kSuperGroups / 4; quad += W) {
        F quads[W];
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i) quads[i] = load((const float*)(codes[row + i] + 4 * quad));
        transpose(quads);
        // A vector of W rows and W quads: for W = 16, two groups.
        uint8_t* record = out + b.head_bytes + quad / 8 * b.record_bytes + b.codes_at;
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i)
          store((float*)(record + i / 8 * b.record_bytes + ((quad + i) % 8 * kPanelRows + first + row) * 4), quads[i]);
      }
  }
}

// ---- few tokens: each row of weights times each token, without a panel in between ----

// A block of a token's activations (ActLayout::by_row).
template <int parts>
struct ActBlock {
  float scales[kSuperGroups];
  float starts[kSuperGroups * parts];  // times the scale
  int8_t numbers[kSuperGroups][kGroup];
};

INLINE float total_of(Floats v) {
  float lanes[8];
  __builtin_memcpy(lanes, &v, sizeof(v));
  return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

// Some rows of a block, as they are read before their points are looked up.
template <class T>
struct ReadRows {
  static constexpr int parts = block_layout(kQuantKinds[T::kind]).parts, n_scales = kSuperGroups * parts;
  Row rows[kRowsAtOnce];
  float bases[kRowsAtOnce];
};

template <class T>
void read_rows(const uint8_t* blocks, ReadRows<T>& to) {
  uint16_t halves[kRowsAtOnce];
  for (int i = 0; i < kRowsAtOnce; ++i, blocks += T::bytes) {
    prefetch<T::bytes>(blocks + kPrefetchAhead);
    halves[i] = T::read(blocks, to.rows[i]);
  }
  for (int i = 0; i < kRowsAtOnce; i += W) store(to.bases + i, load_f16(halves + i));
}

// What a row's starts are multiplied by, for groups or parts [first, first + 8).
template <class T>
INLINE Floats start_multiples(const Row& row, int first) {
  if constexpr (ReadRows<T>::parts == 1) {
    const Floats multiples = __builtin_convertvector(load_as<Sums>(row.multiples) & 0xFFFF, Floats);
    // A mark moves all levels of a group down, so it moves the group's zero.
    return multiples *
           (__builtin_convertvector(load_as<Sums>(row.marks) & 0xFF, Floats) * (1.0f / kTopLevelIQ1) + 1.0f);
  }
  float multiples[2 * kSuperGroups];
  for (int i = 0; i < 2 * kSuperGroups; i += W) store(multiples + i, to_float(load_bytes(row.part_multiples + i)));
  return load_as<Floats>(multiples + first);
}

// Adds the products of a row's block and a block of M tokens, token_stride blocks apart, to sums [M]. It is not
// inlined, because GCC 12 then stops with an internal error.
template <class T, int M>
__attribute__((noinline)) void dot_row(const uint8_t* block, const Row& row, float base,
                                       const ActBlock<ReadRows<T>::parts>* tokens, int64_t token_stride, Floats* sums) {
  constexpr int parts = ReadRows<T>::parts;
  Totals total[M][2 / kAtOnce] = {};  // of even and of odd groups, so that fewer additions wait for each other
  const auto codes = codes_of<T>(block, row);
#pragma GCC unroll 8
  for (int g = 0; g < kSuperGroups; g += kAtOnce) {
    const Numbers levels = codes(g);
    const auto factors = factors_of<parts>(row, g);
    [[maybe_unused]] const auto signs = signs_at(row, g);
#pragma GCC unroll 4
    for (int m = 0; m < M; ++m) {
      const auto& a = tokens[m * token_stride];
      Numbers numbers = load_as<Numbers>(a.numbers[g]);
      if constexpr (T::top > 0) numbers = with_signs_of(numbers, signs);
      total[m][g / kAtOnce % (2 / kAtOnce)] +=
          __builtin_convertvector(dot_scaled(levels, numbers, factors), Totals) * scales_at(a.scales, g);
    }
  }
#pragma GCC unroll 4
  for (int m = 0; m < M; ++m) {
    Floats halves[2];
    halves_of(total[m], halves);
    if constexpr (T::top == 0)
#pragma GCC unroll 2
      for (int i = 0; i < ReadRows<T>::n_scales; i += 8)
        halves[i / 8] += start_multiples<T>(row, i) * load_as<Floats>(tokens[m * token_stride].starts + i);
    sums[m] += (halves[0] + halves[1]) * base;
  }
}

// out [M, 32 rows] of a panel.
template <class T, int M>
void dot_rows(const uint8_t* panel, const uint8_t* act, int64_t n_in, float* out) {
  const int64_t n_blocks = n_in / (kGroup * kSuperGroups);
  const auto* tokens = (const ActBlock<ReadRows<T>::parts>*)act;
  Floats sums[kPanelRows][M] = {};
  ReadRows<T> read;
  for (int64_t block = 0; block < n_blocks; ++block)
    for (int first = 0; first < kPanelRows; first += kRowsAtOnce) {
      read_rows<T>(panel, read);
#pragma GCC unroll 1
      for (int i = 0; i < kRowsAtOnce; ++i, panel += T::bytes)
        dot_row<T, M>(panel, read.rows[i], read.bases[i], tokens + block, n_blocks, sums[first + i]);
    }
  for (int row = 0; row < kPanelRows; ++row)
    for (int m = 0; m < M; ++m) out[m * kPanelRows + row] = total_of(sums[row][m]);
}

template <class T>
void dot_few_rows(const uint8_t* panel, const uint8_t* act, int m, int64_t n_in, float* out) {
  if (m == 1) return dot_rows<T, 1>(panel, act, n_in, out);
  if (m == 2) return dot_rows<T, 2>(panel, act, n_in, out);
  if (m == 3) return dot_rows<T, 3>(panel, act, n_in, out);
  dot_rows<T, 4>(panel, act, n_in, out);
}

template <class T>
constexpr FileBlockFns fns_of() {
  return {unpack_rows<T>, dot_few_rows<T>};
}

// ---- many tokens ----

struct Scratch {
  uint8_t block[kMaxByteBlock];
  PanelSums sums;
  float out[kMaxTile][kPanelRows];
};
alignas(64) thread_local Scratch scratch;

// All of k, for the tokens of tiles [first, last). Adds the products of each block to the sums.
INLINE void multiply_panel(const MatmulJob& job, int64_t panel, int first, int last, Scratch& s) {
  const int64_t n_blocks = job.n_in / (kGroup * kSuperGroups), act_bytes = job.act_token_bytes / n_blocks;
  const uint8_t* from = job.panels + panel * job.panel_bytes;
  const int first_token = tile_begin(job.tiling, first);
  memset(s.sums, 0, (size_t)(tile_begin(job.tiling, last) - first_token) * sizeof(s.sums[0]));
  for (int64_t block = 0; block < n_blocks; ++block) {
    job.file_blocks->unpack_rows(from + block * (job.panel_bytes / n_blocks), s.block);
    for (int tile = first; tile < last; ++tile) {
      const int token = tile_begin(job.tiling, tile), m = tile_begin(job.tiling, tile + 1) - token;
      const uint8_t* act = job.act + token * job.act_token_bytes + block * act_bytes * m;
      job.tiles[m - 1](s.block, act, kGroup * kSuperGroups, nullptr, s.out[0]);
      float* sums = s.sums[token - first_token];
      for (int i = 0; i < m * kPanelRows; i += W) store(sums + i, load(sums + i) + load(s.out[0] + i));
    }
  }
}

}  // namespace

void dot_file_blocks(const MatmulJob& job, const PanelRange& range) {
  alignas(64) float out[kFewTokens * kPanelRows];
  for (int64_t panel = range.panel_begin; panel < range.panel_end; ++panel)
    for (int tile = range.tile_begin; tile < range.tile_end; ++tile) {
      const int token = tile_begin(job.tiling, tile), m = tile_begin(job.tiling, tile + 1) - token;
      job.file_blocks->dot_rows(job.panels + panel * job.panel_bytes, job.act + token * job.act_token_bytes, m,
                                job.n_in, out);
      finish(job, out, panel, token, m);
    }
}

void matmul_in_bytes(const MatmulJob& job, const PanelRange& range) {
  for_each_panel(job, range, scratch.sums,
                 [&](int64_t panel, int first, int last) { multiply_panel(job, panel, first, last, scratch); });
}

const FileBlockFns kFileBlocks[] = {
    fns_of<IQ1_S>(), fns_of<IQ1_M>(),   fns_of<IQ2_XXS>(), fns_of<IQ2_XS>(),
    fns_of<IQ2_S>(), fns_of<IQ3_XXS>(), fns_of<IQ3_S>(),   {unpack_rows<TQ1_0>, dot_ternary_rows}};

}  // namespace ingot::cpu::INGOT_ISA
