// The decoder layers of a step on the whole grid (grid/layers.h): the kernel.
#pragma once
#include "backend/cuda/grid/attention.cuh"
#include "backend/cuda/grid/router.cuh"
#include "backend/cuda/grid/rows.cuh"
#include "quant/grouped.h"

namespace ingot::cuda::grid {

// A product of all rows at once, or of a row at a time. ready() waits for its input. sink takes the outputs of kOut.
template <class C, int kPhase, class Ready, class Sink = NoSink>
__device__ __forceinline__ void product_of(const Block<C>& b, Ring<C>& ring, const Layer& layer, Ready&& ready,
                                           const Sink& sink = {}) {
  if constexpr (C::kShape.rows_of(kPhase) > 1) {
    RowsProduct<C, kPhase>(b, layer).run(ring, ready, sink);
  } else {
    product<C, kPhase>(b, ring, layer, ready, sink);
  }
}

// The phases of all layers, run by the warps that compute.
template <class C, class K>
__device__ __forceinline__ void compute(const Block<C>& b, Ring<C> ring, const Task<C>& task) {
  WarpTask of_warp{.first_block = task.block_of(task.first + b.warp)};
  task.copy_angles(b);
  const auto ready = [&] { b.sync_grid(); };
#pragma unroll 1
  for (int i = 0; i < C::kShape.n_layers; ++i) {
    const Layer& layer = b.layer(i);
    product_of<C, kQkv>(b, ring, layer, [&] {
      if (i > 0) b.sync_grid();
    });
    if constexpr (C::kShape.n_experts > 0) {
      RouterShare<C>::clear(b.p);
      task.runs ? Attention<C, K>(b, layer, task, of_warp).run() : ready();
      RouterShare<C> share(b);
      product_of<C, kOut>(
          b, ring, layer, [&] { b.sync_grid([&] { share.load(layer.router); }); }, share);
      share.add();
      product_of<C, kGateUp>(b, ring, layer, [&] { ready(), Router<C>{b, layer}.choose(ring); });
    } else {
      task.runs ? Attention<C, K>(b, layer, task, of_warp).run() : ready();
      product_of<C, kOut>(b, ring, layer, ready);
      product_of<C, kGateUp>(b, ring, layer, ready);
    }
    if (i + 1 < C::kShape.n_layers) b.copy_layer(i + 1);
    product_of<C, kDown>(b, ring, layer, ready);
  }
}

template <class C, class K>
__device__ __forceinline__ void run(const Params& p) {
  extern __shared__ __align__(kSwizzleBytes) char shared[];
  __shared__ __align__(8) uint64_t barriers[2 * kMaxSlots + 1], kv_barriers[2 * kWarps];
  __shared__ uint32_t table[256];
  __shared__ float squares[kWarps * C::kShape.max_rows];
  __shared__ float angles[C::kShape.rot_dim > 0 ? C::kShape.rot_dim : 1];
  __shared__ __align__(16) float fresh[fresh_values(C::kShape)];
  __shared__ Choice choice[C::kShape.n_experts > 0 ? C::kShape.max_rows : 1];
  __shared__ Task<C> task;
  constexpr Places kAt = places_of(C::kShape);
  const int thread = static_cast<int>(threadIdx.x);
  const uint32_t barriers_at = shared_address(barriers);
  if (thread < kAt.n_slots) {
    init_barrier(barriers_at + 8 * thread, Ring<C>::kArrivals);
    init_barrier(barriers_at + 8 * (kMaxSlots + thread), kWarps);
  }
  if (thread == 0) {
    init_barrier(barriers_at + 8 * (2 * kMaxSlots), C::kShape.has_rows() ? p.n_rows : 1);
    task.set(p);
  }
  if (thread < 2 * kWarps) init_barrier(shared_address(kv_barriers + thread), 1);
  if (thread < 256) {
    const auto entry = [&](int code) { return quant::codebook_entry(p.codebook_low, p.codebook_high, code); };
    if constexpr (C::kShape.has_rows()) {
      table[thread] = matvec_step::pair_of_levels(entry(thread & 15), entry(thread >> 4));
    } else {
      table[thread] = static_cast<uint32_t>((entry(thread & 15) & 255) | (entry(thread >> 4) & 255) << 8);
    }
  }
  const Block<C> b{p,           shared,     table, squares, angles, choice, fresh, shared_address(kv_barriers),
                   thread / 32, thread % 32};
  b.copy_layer(0);
  fence_barriers();
  __syncthreads();
  const Ring<C> ring(p, shared_address(shared), barriers_at, choice);
  if (b.warp >= kWarps) {
    shrink_registers<32>();
    if (b.warp == kWarps) copy_weights<C>(p, ring, b.lane);
    return;
  }
  grow_registers<112>();
  compute<C, K>(b, ring, task);
}

}  // namespace ingot::cuda::grid
