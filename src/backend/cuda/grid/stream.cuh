// Streams the weights of a block through the ring. One warp copies all chunks of all layers in the order in which the
// other warps use them, as far ahead as the ring has room.
#pragma once
#include "backend/cuda/cluster/cluster.cuh"
#include "backend/cuda/grid/plan.cuh"
#include "backend/cuda/matmul/matvec_step.cuh"

namespace ingot::cuda::grid {

// The position of a reader or a writer in the ring: the slot, and the parity of the round.
template <class C>
struct Ring {
  static constexpr Places kAt = places_of(C::kShape);
  // The lanes of the warp that copies also arrive at "full", because they copy the scales of 8-bit floats.
  static constexpr bool kLanesArrive = has_float8(C::kShape);
  static constexpr int kArrivals = kLanesArrive ? 1 + 32 : 1;  // at "full", where the first one expects bulk copies
  uint32_t base, barriers;  // shared addresses; the barriers are "full" of each slot, then "empty" of each slot
  const Choice* choice;     // [max_rows], complete at each phase of the barrier chosen()
  uint32_t zero;            // 0, which the compiler does not know
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ Ring(const Params& p, uint32_t shared, uint32_t barriers_of, const Choice* choice_of)
      : base(shared + kAt.ring),
        barriers(barriers_of),
        choice(choice_of),
        zero(static_cast<uint32_t>(p.n_rows >> 31)) {}
  __device__ __forceinline__ uint32_t place() const { return base + slot * kAt.slot_bytes; }
  __device__ __forceinline__ uint32_t full() const { return barriers + 8 * slot; }
  __device__ __forceinline__ uint32_t empty() const { return barriers + 8 * (kMaxSlots + slot); }
  __device__ __forceinline__ uint32_t chosen() const { return barriers + 8 * (2 * kMaxSlots); }
  __device__ __forceinline__ void advance() {
    if (++slot == kAt.n_slots) slot = 0, parity ^= 1;
  }
  // Waits for the copy to this slot. Afterwards all lanes of the warp load together.
  __device__ __forceinline__ void await_copy() const {
    await(full(), parity);
    __syncwarp();
  }
  // Frees the slot for the next copy. `words` combines a word of each load from the slot. A load from shared memory may
  // wait behind loads from global memory, and an arrival can overtake both, so the next copy could come before the
  // load. Therefore the arrival depends on the loaded words.
  __device__ __forceinline__ void release(uint32_t words, int lane) const {
    if (lane == 0) arrive(empty() | (words & zero));
  }
};

// Steps of a weight that are contiguous in memory, and their place in a chunk.
struct Steps {
  int64_t first;
  int place, n;
};
// Returns run number `run` of the runs that make up n steps of a row's tile from first_step on. There is one run, except in
// the down projection of experts, whose columns are those of one expert after another.
template <class C, int kPhase>
__device__ __forceinline__ Steps steps_of(const Ring<C>& ring, int row, int tile, int first_step, int n, int run) {
  constexpr Shape s = C::kShape;
  constexpr int kSteps = plan_of(s, kPhase).n_steps;
  if constexpr (s.n_experts > 0 && kPhase == kDown) {
    constexpr int kEach = kSteps / s.n_used;
    const int used = first_step / kEach + run, begin = max(first_step, used * kEach),
              end = min(first_step + n, (used + 1) * kEach);
    if (begin >= end) return {0, 0, 0};
    const int64_t of_expert = int64_t{ring.choice[row].experts[used]} * (s.dim / kTileRows) + tile;
    return {of_expert * kEach + begin - used * kEach, begin - first_step, end - begin};
  } else if constexpr (s.n_experts > 0 && kPhase == kGateUp) {
    constexpr int kTiles = s.ffn / kTileRows;
    const int64_t of_expert = int64_t{ring.choice[row].experts[tile / kTiles]} * kTiles + tile % kTiles;
    return {of_expert * kSteps + first_step, 0, run == 0 ? n : 0};
  } else {
    return {int64_t{tile} * kSteps + first_step, 0, run == 0 ? n : 0};
  }
}

// Arrives when the lane's earlier copies are complete.
__device__ __forceinline__ void arrive_after_copies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

// Copies a chunk of up to at_once neighbouring units to a slot. row: with experts, the row that chose them.
template <class C, int kPhase>
__device__ __forceinline__ void copy_chunk(const Ring<C>& ring, const Layer& layer, int gate, int row, int first_unit,
                                           int n_units, int chunk, int lane) {
  constexpr PhasePlan kPlan = plan_of(C::kShape, kPhase);
  constexpr WeightKind kKind = C::kShape.kinds[first_weight(kPhase)];
  const int first_step = chunk * kPlan.parts, n = min(kPlan.parts, kPlan.n_steps - first_step);
  constexpr int kStepBytes = kKind.is_float8() ? kTileRows * kTileCols : kKind.code_bytes() + kKind.scale_bytes();
  if (lane == 0) expect_bytes(ring.full(), static_cast<uint32_t>(n_units * n * kStepBytes));
  __syncwarp();
  for (int i = 0; i < n_units; ++i) {
    const uint32_t to = ring.place() + i * kPlan.unit_bytes;
    const Place at = place_of<C, kPhase>(first_unit + i);
    const LayerProduct& w = layer.products[at.weight + gate];
    if constexpr (kKind.is_float8()) {
      const int64_t first_row = int64_t{at.tile} * kTileRows;
      if (lane < kTileRows)
        cluster::fetch(to + lane * row_bytes(kPlan.parts),
                       w.codes + (first_row + lane) * kPlan.n_in + first_step * kTileCols,
                       static_cast<uint32_t>(n * kTileCols), ring.full());
      constexpr int kHeads = kPhase == kQkv ? C::kShape.head_dim : 0;
      const int n_out = kPhase == kQkv ? (at.weight == kWeightQ ? C::kShape.n_heads : C::kShape.n_kv_heads) * kHeads
                        : kPhase == kGateUp ? C::kShape.ffn
                                            : C::kShape.dim;
      // Four lanes copy the 64 bytes of a step. Bulk copies of so few bytes would be as many as those of the rows.
      const uint32_t scales_at = to + kTileRows * row_bytes(kPlan.parts) + lane % 4 * 16;
      const char* const scales = w.scales + first_row * 4 + lane % 4 * 16;
#pragma unroll 1
      for (int k = lane / 4; k < n; k += 8)
        matvec_step::copy16(scales_at + k * kTileRows * 4, scales + (first_step + k) * column_scales(n_out) * 4, true);
    } else {
      const Steps steps = steps_of<C, kPhase>(ring, row, at.tile, first_step, n, lane / 2);
      constexpr int kCodes = kKind.code_bytes(), kScales = kKind.scale_bytes();
      if (steps.n > 0 && lane % 2 == 0)
        cluster::fetch(to + steps.place * kCodes, w.codes + steps.first * kCodes,
                       static_cast<uint32_t>(steps.n * kCodes), ring.full());
      if (steps.n > 0 && lane % 2 == 1)
        cluster::fetch(to + kPlan.parts * kCodes + steps.place * kScales, w.scales + steps.first * kScales,
                       static_cast<uint32_t>(steps.n * kScales), ring.full());
    }
  }
  if constexpr (Ring<C>::kLanesArrive) {
    if constexpr (kKind.is_float8()) {
      arrive_after_copies(ring.full());
    } else {
      arrive(ring.full());
    }
  }
}

template <class C, int kPhase>
__device__ __forceinline__ void copy_phase(const Layer& layer, Ring<C>& ring, int n_rows, int lane) {
  constexpr PhasePlan kPlan = plan_of(C::kShape, kPhase);
  const auto copy = [&](int row, int unit, int end, int chunk) {
#pragma unroll 1
    for (int gate = 0; gate < (kPhase == kGateUp ? 2 : 1); ++gate) {
      await(ring.empty(), ring.parity ^ 1);
      copy_chunk<C, kPhase>(ring, layer, gate, row, unit, min(kPlan.at_once, end - unit), chunk, lane);
      ring.advance();
    }
  };
  if constexpr (C::kShape.rows_of(kPhase) > 1) {  // of a batch, all units of a chunk
    const Units units(kPlan.n_units, C::kShape.n_blocks);
#pragma unroll 1
    for (int batch = units.first; batch < units.end; batch += kPlan.batch)
#pragma unroll 1
      for (int chunk = 0; chunk < kPlan.n_chunks; ++chunk)
#pragma unroll 1
        for (int unit = batch; unit < min(batch + kPlan.batch, units.end); unit += kPlan.at_once)
          copy(0, unit, units.end, chunk);
  } else {
    const RowUnits<C, kPhase> units(n_rows);
#pragma unroll 1
    for (int at = units.first; at < units.end;) {
      const Run run = units.run(at);
#pragma unroll 1
      for (int unit = run.first; unit < run.end; unit += kPlan.at_once) {
        const int first = first_chunk<C, kPhase>(unit);
#pragma unroll 1
        for (int chunk = first; chunk < first + kPlan.n_chunks / kPlan.n_planes; ++chunk)
          copy(run.row, unit, run.end, chunk);
      }
      at = units.end_of(run);
    }
  }
}

template <class C, int kPhase>
__device__ __forceinline__ bool has_units(int n_rows) {
  const RowUnits<C, kPhase> units(n_rows);
  return units.first < units.end;
}

// For the warp that copies. It waits for the choice of experts only if the other warps then wait for its copies. So it
// never falls a layer behind them, and the barrier's parity is enough.
template <class C>
__device__ __forceinline__ void copy_weights(const Params& p, Ring<C> ring, int lane) {
#pragma unroll 1
  for (int i = 0; i < C::kShape.n_layers; ++i) {
    copy_phase<C, kQkv>(p.layers[i], ring, p.n_rows, lane);
    copy_phase<C, kOut>(p.layers[i], ring, p.n_rows, lane);
    if constexpr (C::kShape.n_experts > 0)
      if (has_units<C, kGateUp>(p.n_rows) || has_units<C, kDown>(p.n_rows)) await(ring.chosen(), i & 1);
    copy_phase<C, kGateUp>(p.layers[i], ring, p.n_rows, lane);
    copy_phase<C, kDown>(p.layers[i], ring, p.n_rows, lane);
  }
}

}  // namespace ingot::cuda::grid
