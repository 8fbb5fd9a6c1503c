// Products of quantized weights with more rows of activations than the stream kernel suits, for the decode of a batch
// of sequences. The kernel is in tile_matmul.cuh. This file plans its launch.
//
// The number of rows affects the result of a row only through the split of columns among blocks. With
// Matvec::batch_invariant, the split does not depend on the number of rows, so a row's result is the same with one row
// as with a thousand. So with --deterministic this kernel runs all products, also those of dense weights.
#include <algorithm>

#include "backend/cuda/matmul/launch.cuh"
#include "backend/cuda/matmul/tile_matmul.cuh"
#include "backend/cuda/memory.h"
#include "backend/cuda/specialised.h"

namespace ingot::cuda {

using namespace tile_kernel;

namespace {

// Shared memory for stages: the limit of a block, but not more than an A100's multiprocessor has.
size_t room_of(const DeviceLimits& device) {
  constexpr size_t kTable = 1024, kMaxRoom = size_t{160} << 10;
  return std::min(device.most_shared - kTable, kMaxRoom);
}

// A fourth stage makes products of few rows a tenth faster, if blocks_at_once() of them still fit on a multiprocessor
// of Hopper. Warps with one tile of weights have a fourth stage, too.
template <class K, int kTokenTiles, int kPerWarp>
int stages_of(const DeviceLimits& device) {
  constexpr int kBytes = Stage<K, kTokenTiles, kPerWarp>::kBytes, kAtOnce = blocks_at_once(kTokenTiles, kPerWarp);
  constexpr bool kGains = kTokenTiles <= 2 || kPerWarp == 1;
  constexpr int kMost = kGains && 4 * kAtOnce * kBytes <= (224 << 10) ? 4 : 3;
  return stages_that_fit(kBytes, kMost, room_of(device));
}

template <class K, int kTokenTiles, int kPerWarp, bool kCodes>
__global__ void __launch_bounds__(32 * kWarps, blocks_at_once(kTokenTiles, kPerWarp))
    any_kernel(const __grid_constant__ Params p) {
  run<K, kTokenTiles, kPerWarp, kCodes, Shape{}>(p);
}

// Blocks for the weights, if a warp has per_warp tiles of them; with a gate, one of each weight.
unsigned blocks_of(const Params& p, int per_warp) {
  return blocks_for(p.n_tiles, kWarps * (p.act >= 0 ? 1 : per_warp));
}

// With `batch_invariant`, the split depends only on the weights, and the arithmetic is that of many rows.
template <class K, int kTokenTiles, int kPerWarp, bool kCodes>
void start(Params p, bool batch_invariant, SpecialisedKernels* specialised, Device& device) {
  using S = Stage<K, kTokenTiles, kPerWarp>;
  const auto n_token_blocks = blocks_for(p.n, S::kTokens);
  p.n_steps = (p.n_in + K::kCols - 1) / K::kCols;
  p.n_stages = stages_of<K, kTokenTiles, kPerWarp>(device.limits());
  CHECK(p.n_stages >= 2);
  p.weight_tiles = kPerWarp;
  const auto n_blocks = blocks_of(p, kPerWarp);
  const int n_alike = static_cast<int>(batch_invariant ? blocks_of(p, 2) : n_blocks * n_token_blocks),
            n_at_once = device.n_multiprocessors() * (batch_invariant ? 2 : blocks_at_once(kTokenTiles, kPerWarp));
  // A block has at least this many steps, because adding up takes time, too. With more rows, a step takes longer.
  const int fewest_steps = batch_invariant || kTokenTiles <= 2 ? 4 : 2;
  p.split = 1;
  if (device.chip().has_clusters)
    p.split = std::clamp(std::min(n_at_once / n_alike, p.n_steps / fewest_steps), 1, kMaxSplit);
  const auto split = static_cast<unsigned>(p.split);
  auto kernel = any_kernel<K, kTokenTiles, kPerWarp, kCodes>;
  if constexpr (K::kLayout != Layout::kDense)  // dense weights come here only with --deterministic
    kernel =
        kernel_or(kernel, specialised, {SpecialisedKernel::kTiles, K::kLayout, K::kMin, K::kGroup16, kTokenTiles, p});
  launch_clusters(device, kernel, dim3(n_blocks, split, n_token_blocks), dim3(1, split, 1), 32 * kWarps,
                  static_cast<size_t>(p.n_stages) * S::kBytes, p);
}

}  // namespace

bool can_tile_matmul(const PackedWeight& w) {
  return !w.f32 && w.layout != Layout::kFloat8 && (w.layout != Layout::kDense || w.n_in % 8 == 0);
}

void tile_matmul(const Matvec& m, Device& device) {
  const Params p = matvec_tiles::params_of(m);
  if (p.n == 0) return;
  with_kind(*m.jobs[0].w, [&](auto kind) {
    using K = decltype(kind);
    const bool fits_many = stages_of<K, 8, 2>(device.limits()) >= 2;  // false for 8-bit codes on a card with 99 KB
    const auto with = [&]<int kTokenTiles, int kPerWarp, bool kCodes = false> {
      start<K, kTokenTiles, kPerWarp, kCodes>(p, m.batch_invariant, m.specialised, device);
    };
    const auto with_few = [&]<int kTokenTiles, bool kCodes> {
      m.gate >= 0 ? with.template operator()<kTokenTiles, 2, kCodes>()
                  : with.template operator()<kTokenTiles, 1, kCodes>();
    };
    // Warps with two tiles of weights would be too few for the device, even if clusters shared all columns.
    const bool is_narrow = m.gate < 0 && !m.batch_invariant && device.chip().has_clusters &&
                           static_cast<int>(blocks_of(p, 2)) * kMaxSplit <= 2 * device.n_multiprocessors();
    if (is_narrow && p.n > 16) return p.n > 32 ? with.template operator()<8, 1>() : with.template operator()<4, 1>();
    if (p.n > 32 && fits_many) return with.template operator()<8, 2>();
    if (p.n > 16 || (p.n > 8 && m.batch_invariant)) return with.template operator()<4, 2>();
    if (m.batch_invariant) return with.template operator()<1, 2>();
    p.n > 8 ? with_few.template operator()<2, false>() : with_few.template operator()<1, kScalesSums<K>>();
  });
}

}  // namespace ingot::cuda
