// Integer sums of products of bytes: up to 16 tokens times 32 rows times 32 or 16 of k. An instruction takes as many
// cycles as there are tokens, whatever k is.
//
// Tiles 0 to 3 are sums of two groups in turns, [tokens, 16 rows] int32 each; 4 and 5 are tokens, [tokens, k]; 6 and 7
// are codes, [k / 4, 16 rows, 4]. Sums are stored while the next ones are computed.
#include <immintrin.h>

#include "backend/cpu/amx/amx.h"

namespace ingot::cpu::amx {
namespace {

constexpr int kTileBytes = 64;  // of a row of a tile register
constexpr int kQuadBytes = kPanelRows * 4;

struct ByteConfigs {
  TileConfig of[2][kByteTile];  // [parts - 1][m - 1]
};
constexpr ByteConfigs make_configs() {
  ByteConfigs configs;
  for (int parts = 1; parts <= 2; ++parts)
    for (int m = 1; m <= kByteTile; ++m) {
      TileConfig& c = configs.of[parts - 1][m - 1];
      const int k = kGroup / parts;
      for (int tile = 0; tile < 8; ++tile) {
        const bool is_tokens = tile == 4 || tile == 5, is_codes = tile >= 6;
        c.row_bytes[tile] = static_cast<uint16_t>(is_tokens ? k : kTileBytes);
        c.rows[tile] = static_cast<uint8_t>(is_codes ? k / 4 : m);
      }
    }
  return configs;
}
constexpr ByteConfigs kConfigs = make_configs();

void configure(int m, int parts) { _tile_loadconfig(&kConfigs.of[parts - 1][m - 1]); }
void release() { _tile_release(); }

// The two tiles of rows of an even and of an odd sum.
template <bool is_signed>
[[gnu::always_inline]] inline void multiply_even(const uint8_t* act, const uint8_t* codes) {
  _tile_loadd(4, act, kGroup);
  _tile_loadd(6, codes, kQuadBytes);
  _tile_zero(0);
  if constexpr (is_signed) _tile_dpbssd(0, 4, 6);
  if constexpr (!is_signed) _tile_dpbsud(0, 4, 6);
  _tile_loadd(7, codes + kTileBytes, kQuadBytes);
  _tile_zero(1);
  if constexpr (is_signed) _tile_dpbssd(1, 4, 7);
  if constexpr (!is_signed) _tile_dpbsud(1, 4, 7);
}
template <bool is_signed>
[[gnu::always_inline]] inline void multiply_odd(const uint8_t* act, const uint8_t* codes) {
  _tile_loadd(5, act, kGroup);
  _tile_loadd(6, codes, kQuadBytes);
  _tile_zero(2);
  if constexpr (is_signed) _tile_dpbssd(2, 5, 6);
  if constexpr (!is_signed) _tile_dpbsud(2, 5, 6);
  _tile_loadd(7, codes + kTileBytes, kQuadBytes);
  _tile_zero(3);
  if constexpr (is_signed) _tile_dpbssd(3, 5, 7);
  if constexpr (!is_signed) _tile_dpbsud(3, 5, 7);
}
[[gnu::always_inline]] inline void store_even(int32_t (&sums)[2][kByteTile][kByteTile]) {
  _tile_stored(0, sums[0], kTileBytes);
  _tile_stored(1, sums[1], kTileBytes);
}
[[gnu::always_inline]] inline void store_odd(int32_t (&sums)[2][kByteTile][kByteTile]) {
  _tile_stored(2, sums[0], kTileBytes);
  _tile_stored(3, sums[1], kTileBytes);
}

template <int parts, bool is_signed>
void byte_run(const ByteRun& r) {
  const int n = r.n_groups * parts;
  const auto act = [&](int i) { return r.act + i / parts * r.act_group_bytes + i % parts * (kGroup / parts); };
  const auto codes = [&](int i) { return r.codes + i * (kGroup / 4 / parts) * kQuadBytes; };
  const uint8_t* later = r.later;
  const auto prefetch = [&] {
    for (int line = 0; line < r.n_later; ++line, later += kTileBytes) __builtin_prefetch(later, 0, 2);
  };
  for (int i = 0; i < n; i += 2) {
    prefetch();
    if (parts == 1) prefetch();
    multiply_even<is_signed>(act(i), codes(i));
    if (i > 0) store_odd((*r.sums)[i - 1]);
    if (i + 1 < n) multiply_odd<is_signed>(act(i + 1), codes(i + 1));
    store_even((*r.sums)[i]);
  }
  if (n % 2 == 0) store_odd((*r.sums)[n - 1]);
}

}  // namespace

const ByteUnit kByteUnit = {
    .configure = configure,
    .release = release,
    .run = {{byte_run<1, true>, byte_run<1, false>}, {byte_run<2, true>, byte_run<2, false>}},
};

}  // namespace ingot::cpu::amx
