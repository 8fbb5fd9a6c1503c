#include "backend/cpu/grids.h"

#include "quant/iq1_s.h"
#include "quant/iq2_xxs.h"
#include "quant/iq3_s.h"
#include "quant/iq3_xxs.h"

namespace ingot::cpu {
namespace {

// Replaces the n indices of levels, `bits` bits each, by levels plus `offset`.
template <class Word>
void put_points(Word* points, int n_points, uint32_t (*grid)(int), int n, int bits, const int8_t* levels, int offset) {
  for (int entry = 0; entry < n_points; ++entry) {
    points[entry] = 0;
    for (int i = 0; i < n; ++i) {
      const uint32_t index = (grid(entry) >> (bits * i)) & ((1u << bits) - 1);
      points[entry] |= static_cast<Word>(levels[index] + offset) << (8 * i);
    }
  }
}

template <int n>
void put_planes(uint8_t (&planes)[2][n], uint32_t (*grid)(int)) {
  for (int entry = 0; entry < n; ++entry)
    for (int i = 0; i < 2; ++i) planes[i][entry] = static_cast<uint8_t>(grid(entry) >> (8 * i));
}

template <int n>
void put_planes(uint8_t (&planes)[4][n], const uint32_t (&points)[n]) {
  for (int entry = 0; entry < n; ++entry)
    for (int i = 0; i < 4; ++i) planes[i][entry] = static_cast<uint8_t>(points[entry] >> (8 * i));
}

Grids make_grids() {
  Grids g;
  put_points(g.iq1, 2048, quant::iq1_grid, 8, 2, quant::IQ1_S::codebook, kTopLevelIQ1);
  put_points(g.iq2_xxs, 256, quant::iq2_xxs_grid, 8, 2, quant::IQ2_XXS::codebook, 0);
  put_points(g.iq2_xs, 512, quant::iq2_xs_grid, 8, 2, quant::IQ2_XXS::codebook, 0);
  put_points(g.iq2_s, 1024, quant::iq2_s_grid, 8, 2, quant::IQ2_XXS::codebook, 0);
  put_points(g.iq3_xxs, 256, quant::iq3_xxs_grid, 4, 4, quant::IQ3_XXS::codebook, 0);
  put_points(g.iq3_s, 512, quant::iq3_s_grid, 4, 4, quant::IQ3_S::codebook, 0);
  put_planes(g.iq3_xxs_planes, g.iq3_xxs);
  put_planes(g.iq3_s_planes, g.iq3_s);
  put_planes(g.iq2_xxs_planes, quant::iq2_xxs_grid);
  put_planes(g.iq2_xs_planes, quant::iq2_xs_grid);
  put_planes(g.iq2_s_planes, quant::iq2_s_grid);
  for (int i = 0; i < 64; ++i) g.iq2_levels[i] = static_cast<uint8_t>(quant::IQ2_XXS::codebook[i % 4]);
  return g;
}

}  // namespace

const Grids kGrids = make_grids();

}  // namespace ingot::cpu
