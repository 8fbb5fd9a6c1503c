// The loop of products that unpack a panel part by part: each part is multiplied by many tokens before the next one, so
// the sums of these tokens are kept until the last part.
#pragma once
#include "backend/cpu/kernels.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/kernels/tables.h"

namespace ingot::cpu::INGOT_ISA {

constexpr int kSumTokens = 512;  // tokens whose sums are kept at a time
using PanelSums = float[kSumTokens][kPanelRows];

// multiply(panel, first, last) writes all of k of a panel, for the tokens of tiles [first, last), to sums.
template <class Multiply>
INLINE void for_each_panel(const MatmulJob& job, const PanelRange& range, const PanelSums& sums, Multiply&& multiply) {
  const int n_tiles = kSumTokens / ((job.tiling.n_tokens + job.tiling.n_tiles - 1) / job.tiling.n_tiles);  // at a time
  for (int first = range.tile_begin; first < range.tile_end; first += n_tiles) {
    const int last = first + n_tiles < range.tile_end ? first + n_tiles : range.tile_end;
    const int first_token = tile_begin(job.tiling, first);
    for (int64_t panel = range.panel_begin; panel < range.panel_end; ++panel) {
      multiply(panel, first, last);
      for (int tile = first; tile < last; ++tile) {
        const int token = tile_begin(job.tiling, tile);
        finish(job, sums[token - first_token], panel, token, tile_begin(job.tiling, tile + 1) - token);
      }
    }
  }
}

}  // namespace ingot::cpu::INGOT_ISA
