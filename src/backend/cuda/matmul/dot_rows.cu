// The product of one row of activations with dense weights. The kernel is in dot_rows.cuh.
#include <algorithm>

#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/matmul/dot_rows.cuh"
#include "backend/cuda/memory.h"
#include "backend/cuda/specialised.h"

namespace ingot::cuda {

using namespace dot_rows_kernel;

namespace {

template <int kRows, bool kGated>
__global__ void __launch_bounds__(kWarps * 32, 2) any_kernel(const __grid_constant__ Params p) {
  run<kRows, kGated, Shape{}>(p);
}

template <int kRows, bool kGated>
void start(const Params& p, int n_blocks, SpecialisedKernels* specialised, Device& device) {
  const size_t shared = static_cast<size_t>(p.n_in) * sizeof(half);
  const SpecialisedKernel kind{SpecialisedKernel::kDotRows, Layout::kDense, false, false, kRows, p};
  launch(device, kernel_or(any_kernel<kRows, kGated>, specialised, kind), dim3(static_cast<unsigned>(n_blocks)),
         kWarps * 32, shared, p);
}

}  // namespace

void dot_rows(const Matvec& m, Device& device) {
  CHECK(m.x.rows == 1 && m.x.cols <= kMaxDotColumns);
  const bool gated = m.gate >= 0;
  int64_t n_rows = 0;
  for (int i = 0; i < m.n_jobs; ++i) n_rows += m.jobs[i].w->n_out;
  const int most_blocks = 2 * device.n_multiprocessors();
  const int per_task = m.end != nullptr ? 2 : gated || n_rows <= most_blocks * kWarps ? 1 : 2;
  Params p{};
  for (int i = 0; i < m.n_jobs; ++i) {
    const PackedWeight& w = *m.jobs[i].w;
    p.jobs[i] = {static_cast<const half*>(w.data), m.jobs[i].bias, m.y[gated ? 0 : i].data};
    p.first_tile[i] = p.n_tiles;
    p.n_out[i] = static_cast<int>(w.n_out);
    p.has_bias |= m.jobs[i].bias != nullptr;
    if (!gated || i == 0) p.n_tiles += static_cast<int>((w.n_out + per_task - 1) / per_task);
  }
  p.n_jobs = m.n_jobs;
  p.ends_qkv = m.end != nullptr;
  if (m.end != nullptr) p.end = *m.end;
  p.x = static_cast<const half*>(m.x.data);
  p.norm = row_norm_of(m.norm);
  p.has_norm = m.norm != nullptr;
  p.n_in = static_cast<int>(m.x.cols);
  p.y_f32 = m.y[0].dtype == DType::kF32;
  p.accumulate = m.accumulate;
  p.act = m.gate;
  const int n_blocks = std::min(static_cast<int>(blocks_for(p.n_tiles, kWarps)), most_blocks);
  p.warms_instruction_cache = device.chip().has_dependent_launch && n_blocks <= device.n_multiprocessors();
  if (gated) return start<2, true>(p, n_blocks, m.specialised, device);
  per_task == 1 ? start<1, false>(p, n_blocks, m.specialised, device)
                : start<2, false>(p, n_blocks, m.specialised, device);
}

}  // namespace ingot::cuda
