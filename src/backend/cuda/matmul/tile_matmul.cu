// Products of quantized weights with more rows of activations than the stream kernel suits, for the decode of a batch
// of sequences. The kernel is in tile_matmul.cuh. This file plans its launch.
//
// The number of rows affects the result of a row only through the split of columns among blocks. With
// Matvec::batch_invariant, the split does not depend on the number of rows, so a row's result is the same with one row
// as with a thousand. So with --deterministic this kernel runs all products, also those of dense weights.
#include <algorithm>

#include "backend/cuda/matmul/tile_matmul.cuh"
#include "backend/cuda/memory.h"
#include "backend/cuda/specialised.h"

namespace ingot::cuda {

using namespace tile_kernel;

namespace {

constexpr int kMaxSplit = 8;  // blocks in a cluster; every device with clusters allows 8

// Shared memory for stages: the limit of a block, but not more than an A100's multiprocessor has.
size_t room_of(const DeviceLimits& device) {
  constexpr size_t kTable = 1024, kMaxRoom = size_t{160} << 10;
  return std::min(device.most_shared - kTable, kMaxRoom);
}
template <class S>
int stages_of(const DeviceLimits& device) {
  return stages_that_fit(S::kBytes, S::kMaxStages, room_of(device));
}

template <class K, int kTokenTiles, int kPerWarp>
__global__ void __launch_bounds__(32 * kWarps, blocks_at_once(kPerWarp)) any_kernel(const __grid_constant__ Params p) {
  run<K, kTokenTiles, kPerWarp, Shape{}>(p);
}

// With `batch_invariant`, the split depends only on the weights.
template <class K, int kTokenTiles, int kPerWarp>
void start(Params p, bool batch_invariant, SpecialisedKernels* specialised, Device& device) {
  using S = Stage<K, kTokenTiles, kPerWarp>;
  const auto blocks_of = [&](int per_warp) { return blocks_for(p.n_tiles, kWarps * (p.act >= 0 ? 1 : per_warp)); };
  const auto n_blocks = blocks_of(kPerWarp), n_token_blocks = blocks_for(p.n, S::kTokens);
  const int n_alike = static_cast<int>(batch_invariant ? blocks_of(2) : n_blocks * n_token_blocks);
  const int n_room = device.n_multiprocessors() * (batch_invariant ? 2 : blocks_at_once(kPerWarp));
  p.n_steps = (p.n_in + K::kCols - 1) / K::kCols;
  p.n_stages = stages_of<S>(device.limits());
  CHECK(p.n_stages >= 2);
  p.split = 1;
  while (device.chip().has_clusters && p.split < kMaxSplit && p.n_steps >= 8 * p.split && 2 * n_alike * p.split <= n_room)
    p.split *= 2;
  const auto split = static_cast<unsigned>(p.split);
  auto kernel = any_kernel<K, kTokenTiles, kPerWarp>;
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
    const bool fits_many = stages_of<Stage<K, 8, 2>>(device.limits()) >= 2;  // false for 8-bit codes on a card with 99 KB
    const auto start_with = [&]<int kTokenTiles, int kPerWarp> {
      start<K, kTokenTiles, kPerWarp>(p, m.batch_invariant, m.specialised, device);
    };
    if (p.n > 32 && fits_many) return start_with.template operator()<8, 2>();
    if (p.n > 8) return start_with.template operator()<4, 2>();
    weight_tiles_of(1, m.gate >= 0) == 1 ? start_with.template operator()<1, 1>()
                                         : start_with.template operator()<1, 2>();
  });
}

}  // namespace ingot::cuda
