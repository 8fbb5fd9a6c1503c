// Unpacks a part of a quantized panel: the scales as f32, and the codes in bytes.
#pragma once
#include "backend/cpu/kernels/quant_panel.h"

namespace ingot::cpu::INGOT_ISA {

constexpr int kPartGroups = kSuperGroups;                 // groups of 32 in a part
using PartScales = float[2][kPartGroups][2][kPanelRows];  // [scales and minima, group, part of the group, row]

// Groups [first, first + n) of a panel. With `ahead`, prefetches later groups. put(group, quad, row, codes) gets four
// codes of each of rows [row, row + W).
template <int kind, bool ahead, class Put>
INLINE void unpack_part(const MatmulJob& job, const uint8_t* panel, int64_t first, int n, PartScales& part_scales,
                        Put&& put) {
  constexpr BlockLayout b = Kind<kind>::layout;
  const I book = Kind<kind>::k.span > 0 ? repeat16(job.codebook) : I{};
  F base[2][kPanelRows / W] = {};  // of scales and minima
  for (int g = 0; g < n; ++g) {
    const uint8_t* block = panel + (first + g) / b.n_groups * b.bytes;
    const uint8_t* record = block + b.head_bytes + (first + g) % b.n_groups * b.record_bytes;
    const uint8_t* scales = b.shared ? block : record;
    if constexpr (ahead) prefetch<b.record_bytes>(record + kPrefetchAhead);
    for (int field = 0; field <= Kind<kind>::k.has_min; ++field) {
      if ((first + g) % b.n_groups == 0) load_base<kind>(base[field], block, field, 0);
      for (int p = 0; p < b.parts; ++p)
        for (int row = 0; row < kPanelRows; row += W)
          store(&part_scales[field][g][p][row], load_scale<kind>(scales, field, p, row, base[field][row / W]));
    }
    for (int row = 0; row < kPanelRows; row += W)
#pragma GCC unroll 8
      for (int quad = 0; quad < kGroup / 4; ++quad)
        put(g, quad, row, load_codes<kind>(record + b.codes_at, quad, row, book));
  }
}

}  // namespace ingot::cpu::INGOT_ISA
