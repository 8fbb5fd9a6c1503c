// Products of many tokens and quantized weights on a matrix unit that multiplies bytes (Kernels::byte_unit). A part of
// a panel is unpacked to bytes in the first-level cache. The unit then computes the integer sums of some groups, and
// vectors apply the scales: the same integers, scales and order as in quant_tile.cc, so the results have the same bits.
//
// The unit and the vectors work in turns, because a core that has instructions of the unit in flight runs half as many
// multiplications of vectors. Sums of a run, 16 KiB, stay in the first-level cache between the turns.
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/panel_sums.h"
#include "backend/cpu/kernels/quant_part.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

namespace ingot::cpu::INGOT_ISA {
namespace {

static_assert(W == kByteTile);
constexpr int kLineBytes = 64;
constexpr int kBytesAhead = 2048;  // of the next part, so that its last lines arrive in time, too

struct Scratch {
  PartScales scales;
  int32_t quads[kPartGroups][kGroup / 4][kPanelRows];
  ByteSums run_sums;
  PanelSums sums;
};
alignas(64) thread_local Scratch scratch;

// Codes with a minimum have no zero point. From others the zero is subtracted, so they have a sign.
template <int kind>
void unpack_bytes(const MatmulJob& job, const uint8_t* panel, int64_t first, int n, Scratch& s) {
  typedef uint8_t B __attribute__((vector_size(4 * W)));
  const B zero = (uint8_t)(Kind<kind>::k.has_min ? 0 : job.zero) - B{};
  unpack_part<kind, false>(job, panel, first, n, s.scales, [&](int g, int quad, int row, I codes) {
    const B bytes = (B)codes - zero;
    __builtin_memcpy(&s.quads[g][quad][row], &bytes, sizeof(bytes));
  });
}

using UnpackFn = void (*)(const MatmulJob& job, const uint8_t* panel, int64_t first, int n, Scratch& s);
struct Unpackers {
  UnpackFn of[kQuantKindCount];
};
template <int... kind>
constexpr Unpackers unpackers_of(Lanes<kind...>) {
  return {{unpack_bytes<kind>...}};
}
constexpr Unpackers kUnpackers = unpackers_of(LanesOf<kQuantKindCount>());

// Adds the sums of groups [first, first + n) of the part, times the scales, to sums [m, 32 rows]. `act` is the first
// group's record in the activation tile. Prefetches n_later lines for each 16 rows of a group.
template <bool has_min, int parts, int M>
void add_scaled_sums(const Scratch& s, int first, int n, const uint8_t* act, const uint8_t* later, int n_later,
                     float* sums) {
  constexpr int group_bytes = M * (kGroup + 4 + 4 * parts * (has_min ? 2 : 1));
  for (int half = 0; half < kPanelRows / W; ++half) {
    const int row = half * W;
    F acc[M];
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) acc[m] = load(sums + m * kPanelRows + row);
#pragma GCC unroll 1
    for (int i = 0; i < n; ++i) {
      const uint8_t *a_scale = act + i * group_bytes + 4 * parts * M, *a_sum = a_scale + 4 * M;
      for (int line = 0; line < n_later; ++line, later += kLineBytes) __builtin_prefetch(later, 0, 2);
#pragma GCC unroll 2
      for (int part = 0; part < parts; ++part) {
        const F own = load(&s.scales[0][first + i][part][row]);
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) {
          const I sum = load_as<I>(s.run_sums[i * parts + part][half][m]);
          acc[m] += to_float(sum) * (own * all(load_as<float>(a_scale + m * 4)));
        }
      }
      if constexpr (has_min) {
#pragma GCC unroll 2
        for (int part = 0; part < parts; ++part) {
          const F min = load(&s.scales[1][first + i][part][row]);
#pragma GCC unroll 16
          for (int m = 0; m < M; ++m) acc[m] += min * all(load_as<float>(a_sum + (part * M + m) * 4));
        }
      }
    }
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) store(sums + m * kPanelRows + row, acc[m]);
  }
}

using AddFn = void (*)(const Scratch& s, int first, int n, const uint8_t* act, const uint8_t* later, int n_later,
                       float* sums);
struct AddRow {
  AddFn of[kByteTile];  // [m - 1]
};
template <bool has_min, int parts, int... m>
constexpr AddRow adders_of(Lanes<m...>) {
  return {{add_scaled_sums<has_min, parts, m + 1>...}};
}
constexpr AddRow kAdders[2][2] = {  // [has_min][parts - 1]
    {adders_of<false, 1>(LanesOf<kByteTile>()), adders_of<false, 2>(LanesOf<kByteTile>())},
    {adders_of<true, 1>(LanesOf<kByteTile>()), adders_of<true, 2>(LanesOf<kByteTile>())}};

// All of k, for the tokens of tiles [tile_begin_, tile_end).
INLINE void multiply_panel(const MatmulJob& job, int64_t panel, int tile_begin_, int tile_end, Scratch& s,
                           int& configured) {
  const ByteUnit& unit = *job.kernels->byte_unit;
  const bool has_min = kQuantKinds[job.kind].has_min;
  const int parts = block_layout(kQuantKinds[job.kind]).parts, run_groups = kByteSums / parts;
  const uint8_t* from = job.panels + panel * job.panel_bytes;
  const int first_token = tile_begin(job.tiling, tile_begin_);
  const int64_t n_groups = job.n_in / kGroup, group_bytes = job.act_token_bytes / n_groups;
  const int64_t part_lines = kPartGroups * job.panel_bytes / n_groups / kLineBytes;
  const int64_t n_times = 3 * kPartGroups * (tile_end - tile_begin_);  // that lines are prefetched in a part
  const int n_later = (int)((part_lines + n_times - 1) / n_times);
  memset(s.sums, 0, (size_t)(tile_begin(job.tiling, tile_end) - first_token) * sizeof(s.sums[0]));
  for (int64_t g = 0; g < n_groups; g += kPartGroups) {
    const int n = (int)(n_groups - g < kPartGroups ? n_groups - g : kPartGroups);
    kUnpackers.of[job.kind](job, from, g, n, s);
    const uint8_t* later = from + (g + n) * job.panel_bytes / n_groups + kBytesAhead;
    for (int tile = tile_begin_; tile < tile_end; ++tile) {
      const int token = tile_begin(job.tiling, tile), m = tile_begin(job.tiling, tile + 1) - token;
      if (m != configured) unit.configure(m, parts), configured = m;
      for (int first = 0; first < n; first += run_groups) {
        const int n_run = n - first < run_groups ? n - first : run_groups;
        const uint8_t* act = job.act + token * job.act_token_bytes + (g + first) * group_bytes * m;
        unit.run[parts - 1][has_min]({.codes = (const uint8_t*)s.quads[first],
                                      .act = act + (group_bytes - kGroup) * m,
                                      .act_group_bytes = group_bytes * m,
                                      .n_groups = n_run,
                                      .later = later,
                                      .n_later = n_later,
                                      .sums = &s.run_sums});
        kAdders[has_min][parts - 1].of[m - 1](s, first, n_run, act, later + n_run * n_later * kLineBytes, n_later,
                                              s.sums[token - first_token]);
        later += 3 * n_run * n_later * kLineBytes;
      }
    }
  }
}

}  // namespace

void matmul_in_int8(const MatmulJob& job, const PanelRange& range) {
  int configured = 0;  // tokens
  for_each_panel(job, range, scratch.sums, [&](int64_t panel, int first, int last) {
    multiply_panel(job, panel, first, last, scratch, configured);
  });
  if (configured > 0) job.kernels->byte_unit->release();
}

}  // namespace ingot::cpu::INGOT_ISA
