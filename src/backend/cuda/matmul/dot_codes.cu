// The product of one row of activations with quantized weights of 4- or 8-bit codes. The kernel is in dot_codes.cuh.
#include <algorithm>

#include "backend/cuda/matmul/dot_codes.cuh"
#include "backend/cuda/matmul/launch.cuh"
#include "backend/cuda/memory.h"
#include "backend/cuda/specialised.h"

namespace ingot::cuda {

using namespace dot_codes_kernel;

namespace {

template <class K>
__global__ void __launch_bounds__(32 * kMaxWarps, 1) any_kernel(const __grid_constant__ Params p) {
  run<K, Shape{}>(p);
}

template <class K>
void start(Params p, SpecialisedKernels* specialised, Device& device) {
  // Wide blocks if there are few tiles, or if rows are so long that every extra block's staging of the activations
  // matters.
  const bool wide =
      p.n_steps >= 4 * kMaxWarps || (p.n_tiles <= device.n_multiprocessors() && p.n_steps >= 2 * kMaxWarps);
  const int n_warps = wide ? kMaxWarps : kMaxWarps / 2;
  const int n_blocks = divide(device, p, n_warps);
  p.warms_instruction_cache =
      device.chip().has_dependent_launch && !wide &&
      4 * n_blocks <= 3 * device.n_multiprocessors();  // wide blocks, and more blocks, were slower
  const SpecialisedKernel kind{
      SpecialisedKernel::kDotCodes, K::kEight ? Layout::kCodes8 : Layout::kCodes4, K::kMin, K::kGroup16, K::kGates, p};
  const auto kernel = kernel_or(any_kernel<K>, specialised, kind);
  launch(device, kernel, dim3(static_cast<unsigned>(n_blocks)), n_warps * 32, Input<K>::bytes(p.n_steps), p);
}

template <bool kEight, bool kMin, bool kGroup16>
void start(const Params& p, bool gated, SpecialisedKernels* specialised, Device& device) {
  gated ? start<Kind<kEight, kMin, kGroup16, 2>>(p, specialised, device)
        : start<Kind<kEight, kMin, kGroup16, 1>>(p, specialised, device);
}

}  // namespace

bool can_dot_codes(const PackedWeight& w) {
  if (w.f32 || w.n_in > kMaxCodeColumns) return false;
  return w.layout == Layout::kCodes8 ? !(w.has_min && w.group16) : w.layout == Layout::kCodes4 && !w.group16;
}

void dot_codes(const Params& params, bool gated, SpecialisedKernels* specialised, Device& device) {
  Params p = params;
  p.n_steps = (p.n_in + kTileCols - 1) / kTileCols;
  const PackedWeight& w = p.jobs[0].w;
  if (w.layout == Layout::kCodes4)
    return w.has_min ? start<false, true, false>(p, gated, specialised, device)
                     : start<false, false, false>(p, gated, specialised, device);
  if (w.group16) return start<true, false, true>(p, gated, specialised, device);
  w.has_min ? start<true, true, false>(p, gated, specialised, device)
            : start<true, false, false>(p, gated, specialised, device);
}

}  // namespace ingot::cuda
