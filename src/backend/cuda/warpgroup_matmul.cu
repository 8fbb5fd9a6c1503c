// Products of quantized weights with a hundred rows of activations and more, on Hopper: steps of a server, prompts beside decodes. Codes
// become halves in the registers from which the tensor cores take them (wgmma), so weights are read as codes and never written as halves. The
// kernel is in warpgroup_matmul.cuh; here a product is cut for it.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cuda/memory.h"
#include "backend/cuda/specialised.h"
#include "backend/cuda/warpgroup_matmul.cuh"

namespace ingot::cuda {

using namespace warpgroup_kernel;

namespace {

// How many clusters of 2^i blocks the device holds at once; a cluster lies within one of its groups of multiprocessors.
using AtOnce = std::array<int, 4>;
template <class Kernel>
AtOnce clusters_at_once(Kernel kernel, size_t shared) {
  AtOnce at_once{};
  for (unsigned i = 0; i < at_once.size(); ++i) {
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {1, 1u << i, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(1, 1u << i, static_cast<unsigned>(n_multiprocessors()));
    config.blockDim = dim3(kThreads);
    config.dynamicSmemBytes = shared;
    config.attrs = &cluster, config.numAttrs = 1;
    check(cudaOccupancyMaxActiveClusters(&at_once[i], kernel, &config), "cudaOccupancyMaxActiveClusters");
  }
  return at_once;
}

// How a product is cut: rows of activations of a block, and how many blocks share the columns. The least time, by what an H200 takes in
// microseconds for a step of a block, for its beginning and end, and for adding up.
struct Cut {
  int n_tokens, split;
  double us;
};
Cut cut_for(int n_tokens, int n_rows, int n_blocks, int n_steps, const AtOnce& at_once) {
  constexpr double kAddUp[] = {0, 1, 3.5, 9};
  const double step = 0.62 + 0.0065 * n_tokens, ends = 3.5 + 0.058 * n_tokens;
  Cut best{n_tokens, 1, INFINITY};
  const int n_all = (n_rows + n_tokens - 1) / n_tokens * n_blocks;
  for (int i = 0; i < 4 && 1 << i <= n_steps && at_once[i] > 0; ++i) {
    const int n_waves = (n_all + at_once[i] - 1) / at_once[i], n_own = (n_steps + (1 << i) - 1) >> i;
    const double us = n_waves * (step * n_own + ends + kAddUp[i]);
    if (us < best.us) best = {n_tokens, 1 << i, us};
  }
  return best;
}

template <class K, int kTokens>
__global__ void __launch_bounds__(kThreads, 1) any_kernel(const __grid_constant__ Params p) {
  run<K, kTokens, Shape{}>(p);
}

template <class K, int kTokens>
Cut best_cut(const Params& p, int n_blocks) {
  constexpr int kBytes = Shared<K, kTokens>::kBytes;
  static const cudaError_t set = cudaFuncSetAttribute(any_kernel<K, kTokens>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  check(set, "cudaFuncSetAttribute");
  static const AtOnce at_once = clusters_at_once(any_kernel<K, kTokens>, kBytes);
  return cut_for(kTokens, p.n, n_blocks, p.n_steps, at_once);
}

template <class K, int kTokens>
void start(const Params& p, int split, unsigned n_blocks, SpecialisedKernels* specialised, cudaStream_t stream) {
  const SpecialisedKernel kind{SpecialisedKernel::kWarpgroups, K::kLayout, K::kMin, K::kGroup16, kTokens, p};
  const auto kernel = kernel_or(any_kernel<K, kTokens>, specialised, kind);
  Params own = p;
  own.split = split;
  // Blocks of the same weights start together, so that these are read once.
  launch_clusters(kernel, dim3(blocks_for(p.n, kTokens), static_cast<unsigned>(split), n_blocks), dim3(1, static_cast<unsigned>(split), 1), kThreads,
                  Shared<K, kTokens>::kBytes, stream, own);
}

template <class K>
void start(Params p, SpecialisedKernels* specialised, cudaStream_t stream) {
  const unsigned n_blocks = blocks_for(p.n_tiles, p.act >= 0 ? kTiles / 2 : kTiles);
  p.n_steps = (p.n_in + K::kCols - 1) / K::kCols;
  const auto n = static_cast<int>(n_blocks);
  const Cut cuts[] = {best_cut<K, 128>(p, n), best_cut<K, 96>(p, n), best_cut<K, 64>(p, n)};
  const Cut& cut = *std::ranges::min_element(cuts, {}, &Cut::us);
  switch (cut.n_tokens) {
    case 64: return start<K, 64>(p, cut.split, n_blocks, specialised, stream);
    case 96: return start<K, 96>(p, cut.split, n_blocks, specialised, stream);
    default: return start<K, 128>(p, cut.split, n_blocks, specialised, stream);
  }
}

}  // namespace

bool can_warpgroup_matmul(const PackedWeight& w) {
  static const bool hopper = [] {
    int major = 0;
    return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess && major == 9;
  }();
  return hopper && w.layout != Layout::kDense && !w.f32 && w.n_out <= int64_t{65535} * kTileRows * kTiles / 2;
}

void warpgroup_matmul(const Matvec& m, cudaStream_t stream) {
  const Params p = matvec_tiles::params_of(m);
  if (p.n == 0) return;
  with_codes(*m.jobs[0].w, [&](auto kind) {
    start<decltype(kind)>(p, m.specialised, stream);
  });
}

}  // namespace ingot::cuda
