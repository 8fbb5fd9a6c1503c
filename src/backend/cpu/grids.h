// The tables of points of the IQ1, IQ2 and IQ3 formats (quant/iq.h), as kernels read them: the levels of all weights of
// a point, one byte each. IQ2 and IQ3 have magnitudes; the levels of IQ1 are counted from the lowest.
//
// Kernel sources include this header, so it must not define inline symbols with external linkage (see kernels/simd.h).
#pragma once
#include <stdint.h>

namespace ingot::cpu {

constexpr int kTopLevelIQ1 = 9, kTopLevelIQ2 = 43, kTopLevelIQ3XXS = 62, kTopLevelIQ3S = 15;

struct Grids {
  uint64_t iq1[2048];  // the levels moved up by 1/8
  uint64_t iq2_xxs[256], iq2_xs[512], iq2_s[1024];
  uint32_t iq3_xxs[256], iq3_s[512];

  // The same for lookups of bytes: level i of each point in plane i, or byte i of eight times two bits, which stand for
  // the levels of a codebook (repeated, since a lookup of 64 bytes uses six bits).
  uint8_t iq3_xxs_planes[4][256], iq3_s_planes[4][512];
  uint8_t iq2_xxs_planes[2][256], iq2_xs_planes[2][512], iq2_s_planes[2][1024], iq2_levels[64];
};
extern const Grids kGrids;

}  // namespace ingot::cpu
