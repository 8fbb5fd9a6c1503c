// A tile of up to 32 tokens times a panel of 32 rows. The eight tile registers hold four sums, [16 tokens, 16 rows] f32
// each, two tiles of tokens, [16 tokens, 32 of k], and two of weights, [16 pairs of k, 16 rows, 2].
//
// Each tile configures the unit and releases it, because a thread that holds state of the unit is slower to switch.
#include <immintrin.h>

#include <utility>

#include "backend/cpu/amx/amx.h"

namespace ingot::cpu::amx {
namespace {

constexpr int kRows = 16, kRowBytes = 64;  // of a tile register
constexpr int kBlock = 32;                 // of k in one instruction
constexpr int kPanelPairBytes = kPanelRows * 4;
constexpr int64_t kSumStride = kPanelRows * sizeof(float);  // bytes from token to token

constexpr TileConfig config_of(int low, int high) {
  TileConfig c;
  const int rows[] = {low, low, high, high, low, high, kRows, kRows};
  for (int i = 0; i < 8; ++i)
    if (rows[i] > 0) c.rows[i] = static_cast<uint8_t>(rows[i]), c.row_bytes[i] = kRowBytes;
  return c;
}

// Tiles 0 and 1 are the sums of the first 16 tokens, tiles 2 and 3 those of the others, if there are any.
template <bool has_high>
[[gnu::always_inline]] inline void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (has_high) {
    _tile_zero(2);
    _tile_zero(3);
  }
}
template <bool has_high>
[[gnu::always_inline]] inline void load_sums(const float* sums /* [m, 32] */) {
  _tile_loadd(0, sums, kSumStride);
  _tile_loadd(1, sums + kRows, kSumStride);
  if constexpr (has_high) {
    _tile_loadd(2, sums + kRows * kPanelRows, kSumStride);
    _tile_loadd(3, sums + kRows * kPanelRows + kRows, kSumStride);
  }
}
template <bool has_high>
[[gnu::always_inline]] inline void store_sums(float* sums /* [m, 32] */) {
  _tile_stored(0, sums, kSumStride);
  _tile_stored(1, sums + kRows, kSumStride);
  if constexpr (has_high) {
    _tile_stored(2, sums + kRows * kPanelRows, kSumStride);
    _tile_stored(3, sums + kRows * kPanelRows + kRows, kSumStride);
  }
}
// Multiplies the tokens behind the first 16 by the weights in tiles 6 and 7.
template <bool has_high>
[[gnu::always_inline]] inline void multiply_high(const uint8_t* act /* bf16 [m, 32] */) {
  if constexpr (has_high) {
    _tile_loadd(5, act + kRows * kRowBytes, kRowBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

template <int m>
void bf16_tile(const uint8_t* panel /* bf16 [n_in / 2, 32, 2] */, const uint8_t* act /* bf16 [n_in / 32, m, 32] */,
               int64_t n_in, const uint8_t*, float* out /* [m, 32] */) {
  constexpr int low = m < kRows ? m : kRows, high = m - low;
  static constexpr TileConfig config = config_of(low, high);
  _tile_loadconfig(&config);
  zero_sums<(m > kRows)>();
  for (int64_t block = 0; block < n_in / kBlock; ++block) {
    _tile_loadd(6, panel, kPanelPairBytes);
    _tile_loadd(7, panel + kRowBytes, kPanelPairBytes);
    _tile_loadd(4, act, kRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    multiply_high<(m > kRows)>(act);
    panel += kRows * kPanelPairBytes;
    act += m * kRowBytes;
  }
  store_sums<(m > kRows)>(out);
  _tile_release();
}

// The sums of one panel's 32 rows stay in registers. A tile's activations stay in the first-level cache for all panels:
// weights are loaded with the hint that the cache need not keep them.
template <int m>
void bf16_run(const BlockRun& r) {
  constexpr int low = m < kRows ? m : kRows, high = m - low;
  static constexpr TileConfig config = config_of(low, high);
  _tile_loadconfig(&config);
  const uint8_t* later = r.later;
  const int n_later = (m + r.n_panels - 1) / r.n_panels;  // lines to prefetch in a block
  for (int i = 0; i < r.n_panels; ++i) {
    float* sums = r.sums + i * kMaxTile * kPanelRows;
    r.adds ? load_sums<(m > kRows)>(sums) : zero_sums<(m > kRows)>();
    const uint8_t *panel = r.panels + i * r.panel_bytes, *act = r.act;
    for (int64_t block = 0; block < r.n_blocks; ++block) {
      _tile_stream_loadd(6, panel, kPanelPairBytes);
      _tile_loadd(4, act, kRowBytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_stream_loadd(7, panel + kRowBytes, kPanelPairBytes);
      for (int line = 0; line < n_later; ++line) __builtin_prefetch(later + line * kRowBytes, 0, 2);
      _tile_dpbf16ps(1, 4, 7);
      multiply_high<(m > kRows)>(act);
      panel += kRows * kPanelPairBytes;
      act += m * kRowBytes;
      later += n_later * kRowBytes;
    }
    store_sums<(m > kRows)>(sums);
  }
  _tile_release();
}

template <int... m>
constexpr TileRow row_of(std::integer_sequence<int, m...>) {
  return {{bf16_tile<m + 1>...}};
}
template <int... m>
constexpr BlockRow runs_of(std::integer_sequence<int, m...>) {
  return {{bf16_run<m + 1>...}};
}

}  // namespace

const TileRow kBf16Tiles = row_of(std::make_integer_sequence<int, kTokens>());
const BlockRow kBf16Runs = runs_of(std::make_integer_sequence<int, kTokens>());

double peak_bf16(int64_t iterations) {
  constexpr int64_t kOps = int64_t{2} * kRows * kRows * kBlock;  // of an instruction
  const int64_t n = iterations / 8;                              // the time of as many iterations of other sets
  static constexpr TileConfig config = config_of(kRows, kRows);
  _tile_loadconfig(&config);  // zeroes the tiles
  for (int64_t i = 0; i < n; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
  return static_cast<double>(4 * n * kOps);
}

double peak_int8(int64_t iterations) {
  constexpr int64_t kOps = int64_t{2} * kRows * kRows * kRowBytes;
  const int64_t n = iterations / 8;
  static constexpr TileConfig config = config_of(kRows, kRows);
  _tile_loadconfig(&config);
  for (int64_t i = 0; i < n; ++i) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
  return static_cast<double>(4 * n * kOps);
}

}  // namespace ingot::cpu::amx
