// Products of quantized weights with more than about 32 rows of activations, on Hopper: decodes of many sequences, and
// prompts. Codes become halves in the registers that the tensor cores read (wgmma), so weights are read as
// codes and never written as halves. The kernel is in warpgroup_matmul.cuh. This file plans its launch.
#include <algorithm>
#include <cmath>

#include "backend/cuda/matmul/launch.cuh"
#include "backend/cuda/matmul/warpgroup_matmul.cuh"
#include "backend/cuda/memory.h"
#include "backend/cuda/specialised.h"

namespace ingot::cuda {

using namespace warpgroup_kernel;

namespace {

constexpr int kMaxSplit = 8;  // blocks that share a tile
// Bytes of a block's part of a tile.
constexpr size_t kPartBytes = size_t{kTiles} * kTileRows * kMaxTokens * sizeof(float);
static_assert(kWarps * sizeof(int) <= kReadyBytes);

// How a product is divided: rows of activations in a tile, and blocks. The division with the least estimated time is
// used.
struct Cut {
  int n_tokens, n_blocks;
  double us;
};

// The constants are microseconds on an H200: for a step of a block, for the beginning of a tile, for writing a tile,
// and for adding up the sums of blocks that share a tile.
Cut cut_for(int n_tokens, int n_rows, int n_tiles, int n_steps, int most_blocks) {
  const double step = 0.62 + 0.0065 * n_tokens, begin = 1.5, write = 0.03 * n_tokens, add = 0.065 * n_tokens;
  const int n_token_tiles = (n_rows + n_tokens - 1) / n_tokens, most_shares = most_blocks / n_token_tiles;
  if (n_tiles > most_shares) {  // a block has several tiles, and shares the first and the last of them
    if (most_shares == 0) return {n_tokens, 0, INFINITY};
    const double own = static_cast<double>(n_tiles) / most_shares;
    const double us = own * n_steps * step + (own + 1) * begin + std::ceil(own) * write + add;
    return {n_tokens, most_shares * n_token_tiles, us};
  }
  Cut best{n_tokens, n_tiles * n_token_tiles, n_steps * step + begin + write};
  for (int split = 2; split <= std::min(kMaxSplit, n_steps) && split * n_tiles <= most_shares; ++split) {
    const int n_own = (n_steps + split - 1) / split;
    const double us = n_own * step + begin + write / split + add + 0.2 * split;
    if (us < best.us) best = {n_tokens, split * n_tiles * n_token_tiles, us};
  }
  return best;
}

template <class K, int kTokens>
__global__ void __launch_bounds__(kThreads, 1) any_kernel(const __grid_constant__ Params p) {
  run<K, kTokens, Shape{}>(p);
}

template <class K, int kTokens>
void start(const Params& p, int n_blocks, SpecialisedKernels* specialised, Device& device) {
  const SpecialisedKernel kind{SpecialisedKernel::kWarpgroups, K::kLayout, K::kMin, K::kGroup16, kTokens, p};
  const auto kernel = kernel_or(any_kernel<K, kTokens>, specialised, kind);
  launch(device, kernel, dim3(static_cast<unsigned>(n_blocks)), kThreads, Shared<K, kTokens>::kBytes, p);
}

template <class K>
void start(Params p, SpecialisedKernels* specialised, Device& device) {
  p.n_steps = (p.n_in + K::kCols - 1) / K::kCols;
  const Workspace& workspace = device.workspace();
  p.parts = static_cast<float4*>(workspace.memory.data());
  p.ready = static_cast<int*>(workspace.ready.data());
  const int n_tiles = static_cast<int>(blocks_for(p.n_tiles, p.act >= 0 ? kTiles / 2 : kTiles)),
            max_parts = std::min(device.n_multiprocessors(), static_cast<int>(workspace.memory.size() / kPartBytes));
  const Cut cuts[] = {cut_for(128, p.n, n_tiles, p.n_steps, max_parts), cut_for(96, p.n, n_tiles, p.n_steps, max_parts),
                      cut_for(64, p.n, n_tiles, p.n_steps, max_parts)};
  const Cut& cut = *std::ranges::min_element(cuts, {}, &Cut::us);
  CHECK_GT(cut.n_blocks, 0);
  switch (cut.n_tokens) {
    case 64: return start<K, 64>(p, cut.n_blocks, specialised, device);
    case 96: return start<K, 96>(p, cut.n_blocks, specialised, device);
    default: return start<K, 128>(p, cut.n_blocks, specialised, device);
  }
}

}  // namespace

bool can_warpgroup_matmul(const DeviceLimits& device, const PackedWeight& w) {
  return device.has_hopper_code && w.layout != Layout::kDense && w.layout != Layout::kFloat8 && !w.f32 &&
         w.n_out <= int64_t{65535} * kTileRows * kTiles / 2;
}

void warpgroup_matmul(const Matvec& m, Device& device) {
  const Params p{matvec_tiles::params_of(m), nullptr, nullptr};
  if (p.n == 0) return;
  with_codes(*m.jobs[0].w, [&](auto kind) { start<decltype(kind)>(p, m.specialised, device); });
}

}  // namespace ingot::cuda
