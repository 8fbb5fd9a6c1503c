// Products of quantized weights with a hundred or more rows of activations, on Hopper, for server steps that mix
// prompts and decodes. Codes become halves in the registers that the tensor cores read (wgmma), so weights are read as
// codes and never written as halves. The kernel is in warpgroup_matmul.cuh. This file plans its launch.
#include <algorithm>
#include <cmath>

#include "backend/cuda/matmul/warpgroup_matmul.cuh"
#include "backend/cuda/memory.h"
#include "backend/cuda/specialised.h"

namespace ingot::cuda {

using namespace warpgroup_kernel;

namespace {

constexpr int kMaxSplit = 8;  // blocks in a cluster

// How a product is divided: rows of activations for each block, and the number of blocks that share the columns. The
// division with the least estimated time is used. The constants are microseconds on an H200: for a step of a block, for
// its beginning and end, and for adding up.
struct Cut {
  int n_tokens, split;
  double us;
};
Cut cut_for(int n_tokens, int n_rows, int n_blocks, int n_steps, const ClustersAtOnce& at_once) {
  constexpr double kAddUp[] = {0, 0, 1, 1.5, 1.5, 2, 2, 2, 2};  // by split
  const double step = 0.62 + 0.0065 * n_tokens, ends = 3.5 + 0.058 * n_tokens;
  Cut best{n_tokens, 1, INFINITY};
  const int n_all = (n_rows + n_tokens - 1) / n_tokens * n_blocks;
  for (int split = 1; split <= std::min(kMaxSplit, n_steps) && at_once[split] > 0; ++split) {
    const int n_waves = (n_all + at_once[split] - 1) / at_once[split], n_own = (n_steps + split - 1) / split;
    const double us = n_waves * (step * n_own + ends + kAddUp[split]);
    if (us < best.us) best = {n_tokens, split, us};
  }
  return best;
}

template <class K, int kTokens>
__global__ void __launch_bounds__(kThreads, 1) any_kernel(const __grid_constant__ Params p) {
  run<K, kTokens, Shape{}>(p);
}

template <class K, int kTokens>
Cut best_cut(Device& device, const Params& p, int n_blocks) {
  constexpr int kBytes = Shared<K, kTokens>::kBytes;
  const auto* kernel = reinterpret_cast<const void*>(any_kernel<K, kTokens>);
  return cut_for(kTokens, p.n, n_blocks, p.n_steps, device.clusters_at_once(kernel, kThreads, kBytes, kMaxSplit));
}

template <class K, int kTokens>
void start(const Params& p, int split, unsigned n_blocks, SpecialisedKernels* specialised, Device& device) {
  const SpecialisedKernel kind{SpecialisedKernel::kWarpgroups, K::kLayout, K::kMin, K::kGroup16, kTokens, p};
  const auto kernel = kernel_or(any_kernel<K, kTokens>, specialised, kind);
  Params own = p;
  own.split = split;
  // Blocks with the same weights start together, so that the weights are read once.
  launch_clusters(device, kernel, dim3(blocks_for(p.n, kTokens), static_cast<unsigned>(split), n_blocks),
                  dim3(1, static_cast<unsigned>(split), 1), kThreads, Shared<K, kTokens>::kBytes, own);
}

template <class K>
void start(Params p, SpecialisedKernels* specialised, Device& device) {
  const unsigned n_blocks = blocks_for(p.n_tiles, p.act >= 0 ? kTiles / 2 : kTiles);
  p.n_steps = (p.n_in + K::kCols - 1) / K::kCols;
  const auto n = static_cast<int>(n_blocks);
  const Cut cuts[] = {best_cut<K, 128>(device, p, n), best_cut<K, 96>(device, p, n), best_cut<K, 64>(device, p, n)};
  const Cut& cut = *std::ranges::min_element(cuts, {}, &Cut::us);
  switch (cut.n_tokens) {
    case 64: return start<K, 64>(p, cut.split, n_blocks, specialised, device);
    case 96: return start<K, 96>(p, cut.split, n_blocks, specialised, device);
    default: return start<K, 128>(p, cut.split, n_blocks, specialised, device);
  }
}

}  // namespace

bool can_warpgroup_matmul(const DeviceLimits& device, const PackedWeight& w) {
  return device.has_hopper_code && w.layout != Layout::kDense && w.layout != Layout::kFloat8 && !w.f32 &&
         w.n_out <= int64_t{65535} * kTileRows * kTiles / 2;
}

void warpgroup_matmul(const Matvec& m, Device& device) {
  const Params p = matvec_tiles::params_of(m);
  if (p.n == 0) return;
  with_codes(*m.jobs[0].w, [&](auto kind) { start<decltype(kind)>(p, m.specialised, device); });
}

}  // namespace ingot::cuda
