// Host code to launch the kernels of products: the kinds of weights, stages in shared memory, and parameters.
#pragma once
#include <algorithm>

#include "backend/cuda/launch.cuh"
#include "backend/cuda/matmul/matvec_tiles.cuh"
#include "backend/cuda/matmul/tile_step.cuh"

namespace ingot::cuda::matvec_step {

// Calls f with the kind of a weight's steps. Only integers have minima, and no 8-bit format has both minima and two
// scales for 32 elements.
template <class F>
void with_codes(const PackedWeight& w, F&& f) {
  CHECK(!w.has_min || (has_zero(w.layout) && !(w.layout == Layout::kCodes8 && w.group16)));
  switch (w.layout) {
    case Layout::kDense:
    case Layout::kFloat8: CHECK(false && "these weights have no codes");
    case Layout::kCodebook4:
      if (w.group16) return f(Kind<Layout::kCodebook4, false, true>());
      return f(Kind<Layout::kCodebook4, false, false>());
    case Layout::kCodesE2M1:
      if (w.group16) return f(Kind<Layout::kCodesE2M1, false, true>());
      return f(Kind<Layout::kCodesE2M1, false, false>());
    case Layout::kCodesE4M3: return f(Kind<Layout::kCodesE4M3, false, false>());
    case Layout::kCodes4:
      if (w.has_min && w.group16) return f(Kind<Layout::kCodes4, true, true>());
      if (w.has_min) return f(Kind<Layout::kCodes4, true, false>());
      if (w.group16) return f(Kind<Layout::kCodes4, false, true>());
      return f(Kind<Layout::kCodes4, false, false>());
    case Layout::kCodes8:
      if (w.has_min) return f(Kind<Layout::kCodes8, true, false>());
      if (w.group16) return f(Kind<Layout::kCodes8, false, true>());
      return f(Kind<Layout::kCodes8, false, false>());
  }
}

}  // namespace ingot::cuda::matvec_step

namespace ingot::cuda::tile_step {

// Returns how many stages fit, up to `max_stages`. With less than 2, the kernel cannot run on this device.
inline int stages_that_fit(size_t stage_bytes, int max_stages, size_t room) {
  return std::min(max_stages, static_cast<int>(room / stage_bytes));
}

template <class F>
void with_kind(const PackedWeight& w, F&& f) {
  w.layout == Layout::kDense ? f(Dense()) : matvec_step::with_codes(w, f);
}

}  // namespace ingot::cuda::tile_step

namespace ingot::cuda::matvec_tiles {

// Sets all fields except n_steps, split, n_warps, n_tokens, warms_instruction_cache and staged.
inline Params params_of(const Matvec& m) {
  CHECK(m.x.dtype == DType::kF16);
  CHECK(m.x.stride % 8 == 0 && reinterpret_cast<uintptr_t>(m.x.data) % 16 == 0);
  const bool gated = m.gate >= 0;
  Params p{};
  int n_tiles = 0;
  for (int i = 0; i < m.n_jobs; ++i) {
    const Tensor& y = m.y[gated ? 0 : i];
    const PackedWeight& w = *m.jobs[i].w;
    CHECK(share_matvec(w, *m.jobs[0].w) && y.dtype == m.y[0].dtype);
    p.jobs[i] = {w, m.jobs[i].bias, y.data, y.stride};
    p.first_tile[i] = gated ? 0 : n_tiles;
    p.n_out[i] = static_cast<int>(w.n_out);
    p.has_bias |= m.jobs[i].bias != nullptr;
    n_tiles += static_cast<int>((w.n_out + kTileRows - 1) / kTileRows);
  }
  p.n_jobs = m.n_jobs;
  p.n_tiles = gated ? n_tiles / 2 : n_tiles;
  p.zero = m.jobs[0].w->zero;
  p.x = static_cast<const half*>(m.x.data);
  p.x_stride = m.x.stride;
  p.norm = row_norm_of(m.norm);
  p.has_norm = m.norm != nullptr;
  p.n = static_cast<int>(m.x.rows);
  p.decoded = m.decoded;
  p.n_in = static_cast<int>(m.x.cols);
  p.y_f32 = m.y[0].dtype == DType::kF32;
  p.accumulate = m.accumulate;
  p.act = m.gate;
  return p;
}

// Sets p.split for blocks of n_warps warps, and returns the number of blocks.
inline int divide(const Device& device, Params& p, int n_warps) {
  p.n_warps = n_warps;
  const int most_blocks = (n_warps == kMaxWarps ? 1 : 2) * device.n_multiprocessors();
  p.split = n_warps;
  while (p.split > p.n_steps) p.split /= 2;
  // If there are enough tiles for all warps, fewer warps share a tile, and wait less for each other.
  while (p.split > 1 && p.n_steps < 4 * p.split &&
         int64_t{p.n_tiles} * p.split >= int64_t{2} * 4 * n_warps * most_blocks)
    p.split /= 2;
  return static_cast<int>(min(int64_t{blocks_for(p.n_tiles, n_warps / p.split)}, int64_t{most_blocks}));
}

}  // namespace ingot::cuda::matvec_tiles

namespace ingot::cuda {

// dot_codes.cu
inline constexpr int kMaxCodeColumns = 16 << 10;
void dot_codes(const matvec_tiles::Params& p, bool gated, SpecialisedKernels* specialised, Device& device);

}  // namespace ingot::cuda
