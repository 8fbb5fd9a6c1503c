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

Grids make_grids() {
  Grids g;
  put_points(g.iq1, 2048, quant::iq1_grid, 8, 2, quant::IQ1_S::codebook, kTopLevelIQ1);
  put_points(g.iq2_xxs, 256, quant::iq2_xxs_grid, 8, 2, quant::IQ2_XXS::codebook, 0);
  put_points(g.iq2_xs, 512, quant::iq2_xs_grid, 8, 2, quant::IQ2_XXS::codebook, 0);
  put_points(g.iq2_s, 1024, quant::iq2_s_grid, 8, 2, quant::IQ2_XXS::codebook, 0);
  put_points(g.iq3_xxs, 256, quant::iq3_xxs_grid, 4, 4, quant::IQ3_XXS::codebook, 0);
  put_points(g.iq3_s, 512, quant::iq3_s_grid, 4, 4, quant::IQ3_S::codebook, 0);
  return g;
}

}  // namespace

const Grids kGrids = make_grids();

}  // namespace ingot::cpu
