// The kernel of experts/rows.cu for quantized weights. A block processes tiles of 16 outputs. A tile belongs to one
// expert; with a gate, it consists of two tiles, one of each matrix. Or a tile belongs to a weighted sum over a token's
// experts. Then the down projection and its addition to the residual stream are one launch. The warps of a block share
// a tile's columns. Each warp prefetches its next steps to its own ring in shared memory, also across the ends of
// tiles.
#pragma once
#include "backend/cuda/experts/rows.cuh"
#include "backend/cuda/matmul/matvec_step.cuh"
#include "backend/cuda/matmul/matvec_tiles.cuh"

namespace ingot::cuda::expert_codes_kernel {

using namespace matvec_step;
using expert_rows_detail::output_of;
using expert_rows_detail::put;
using expert_rows_detail::Term;
using matvec_tiles::Shape;
using matvec_tiles::shape_of;

constexpr int kMaxWarps = 16, kFewestWarps = 8;  // 256 threads fill the table of a codebook

// Blocks are divided into groups. A group has the outputs of rows that share their activations (gate and up of a
// token's experts), or of a sum of rows (their down projections).
struct Params : expert_rows_detail::Params {  // n_sums and n_inputs are per group, n_tiles is per sum
  int64_t input_step;                         // from one group's activations to the next group's
  bool knows_experts;                         // before the previous kernel has ended
};

// The activations, and their sums over a unit or over its halves. A zero point or a minimum is multiplied by these
// sums. Sums are in multiples of 2^-24, as products of integer codes are. For zero points they are already multiplied
// by -zero.
template <class K>
struct Input {
  static constexpr bool kSums = K::kMin || K::kZero;
  static constexpr int kGroups = K::kGroup16 ? 2 : 1, kStepSums = 4 * kGroups;
  half* x;      // [inputs, n_steps * 128]: each lane's 8 of 32 columns together (packed_weight.h); zeros from n_in on
  float* sums;  // [inputs, n_steps, 4 units, kGroups]

  static size_t bytes(int n_inputs, int n_steps) {
    return static_cast<size_t>(n_inputs * n_steps) * (kTileCols * sizeof(half) + kStepSums * sizeof(float));
  }
  __device__ Input(char* shared, int n_inputs, int n_steps)
      : x(reinterpret_cast<half*>(shared)), sums(reinterpret_cast<float*>(x + n_inputs * n_steps * kTileCols)) {}

  // A lane copies 8 columns, so a warp copies two steps; the second may be past the end.
  template <Shape kShape>
  __device__ __forceinline__ void stage(const Params& p, float offset) const {
    const Shape s = shape_of<kShape>(p);
    const int n_steps = s.n_inputs * s.n_steps, n_threads = 32 * s.n_warps, lane = threadIdx.x % 16;
    const half* from = p.x + blockIdx.y * p.input_step + 8 * lane;
#pragma unroll 2
    for (int step = static_cast<int>(threadIdx.x) / 16; step < (n_steps + 1) / 2 * 2; step += n_threads / 16) {
      const int input = s.n_inputs == 1 ? 0 : step / s.n_steps, column = (step - input * s.n_steps) * kTileCols;
      const bool in = step < n_steps && column + 8 * lane < s.n_in;
      const uint4 v = in ? __ldcg(reinterpret_cast<const uint4*>(from + input * p.x_stride + column)) : uint4{};
      float sum = 0;
      if constexpr (kSums) {
        const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 pair = __half22float2(half2_of(words[i]));
          sum += pair.x + pair.y;
        }
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
        if constexpr (!K::kGroup16) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
      }
      if (step >= n_steps) continue;
      uint2* to = reinterpret_cast<uint2*>(x + step * kTileCols + lane / 4 * 32 + lane % 2 * 16 + lane % 4 / 2 * 4);
      to[0] = make_uint2(v.x, v.y), to[2] = make_uint2(v.z, v.w);
      if (kSums && lane % (4 / kGroups) == 0) sums[step * kStepSums + lane / (4 / kGroups)] = offset * sum;
    }
  }
};

// A warp's steps through its block's tiles: every n_parts-th step of a tile. The steps of a tile are those of all its
// terms. Only the n_own rows of the group that have an expert count, as sums or as terms of the one sum.
template <Shape kShape>
struct Cursor {
  const Params& p;
  const int part, n_parts;
  int sum = 0, tile, term, step, n_own = 0;  // n_own: set before the first test of done() or in_tile()

  __device__ __forceinline__ Cursor(const Params& params, int part_of, int n_parts_of)
      : p(params), part(part_of), n_parts(n_parts_of), tile(static_cast<int>(blockIdx.x)) {
    start_tile();
  }
  __device__ __forceinline__ void start_tile() {
#pragma unroll 1
    while (tile >= shape().n_tiles) tile -= shape().n_tiles, ++sum;
    term = 0, step = part;
    carry();
  }
  __device__ __forceinline__ void carry() {
#pragma unroll 1
    while (step >= shape().n_steps) step -= shape().n_steps, ++term;
  }
  __device__ __forceinline__ bool done() const { return sum >= shape().n_sums; }
  __device__ __forceinline__ bool in_tile() const { return term < shape().n_terms; }
  __device__ __forceinline__ void advance() { step += n_parts, carry(); }
  __device__ __forceinline__ void next_tile() { tile += static_cast<int>(gridDim.x), start_tile(); }
  __device__ __forceinline__ int row() const { return sum * shape().n_terms + term; }  // of the group
  __device__ __forceinline__ Shape shape() const {
    Shape s = shape_of<kShape>(p);
    if (!s.partial) return s;
    const bool is_summed = s.n_terms > 1;
    s.n_sums = is_summed ? min(n_own, 1) : n_own;
    if (is_summed) s.n_terms = n_own;
    return s;
  }
  // The sum's number among all groups' sums.
  __device__ __forceinline__ int output(const Term& own) const {
    const Shape s = shape_of<kShape>(p);
    const int place = s.partial && s.n_terms == 1 ? own.place_of(sum) : sum;
    return static_cast<int>(blockIdx.y) * s.n_sums + place;
  }
};

// Copies the next step of one warp to a slot of its ring. A warp that has no step in a tile has no step in the later
// tiles either, so its steps end there.
template <class K, Shape kShape>
__device__ __forceinline__ void copy_next(Cursor<kShape>& at, const From& from, uint32_t slot, int lane,
                                          const Term& term) {
  if (!at.done() && at.in_tile()) {
    const Shape s = at.shape();
    const int64_t place = (term.expert_of(at.row()) * s.n_tiles + at.tile) * s.n_steps + at.step;
    copy_step<K>(slot, {from.codes + place * (512 * K::kPieces), from.scales + place * (32 * K::kScaleBytes)}, lane);
    at.advance();
    if (!at.in_tile()) at.next_tile();
  }
  end_copies();
}

// acc += rows g and g + 8 of a slot times the activations of its columns, divided by kPerLevel. All columns of the
// tensor core's product are the same single row of activations.
template <class K>
__device__ __forceinline__ void multiply_row(float (&acc)[2], const char* slot, const half* x, const float* sums,
                                             float weight, int lane, const uint32_t* table) {
  constexpr int kGroups = Input<K>::kGroups;
  const uint4* pieces = reinterpret_cast<const uint4*>(slot) + lane;
  const Scales<K> low_scales(slot, lane / 4), high_scales(slot, lane / 4 + 8);
  uint4 low = pieces[0], high = pieces[32];
  float total[2] = {};
#pragma unroll
  for (int u = 0; u < 4; ++u) {
    const uint4 in = *reinterpret_cast<const uint4*>(x + 32 * u);
    uint32_t a[4], b[4];
    if constexpr (K::kPieces == 4) {
      if (u == 2) low = pieces[64], high = pieces[96];
      pairs_of<K>(a, u % 2 ? low.z : low.x, u % 2 ? low.w : low.y, table);
      pairs_of<K>(b, u % 2 ? high.z : high.x, u % 2 ? high.w : high.y, table);
    } else {
      pairs_of<K>(a, u == 0 ? low.x : u == 1 ? low.y : u == 2 ? low.z : low.w, 0, table);
      pairs_of<K>(b, u == 0 ? high.x : u == 1 ? high.y : u == 2 ? high.z : high.w, 0, table);
    }
    float products[kGroups][4];
    mma_new(products[0], a[0], b[0], a[1], b[1], in.x, in.y);
    if constexpr (K::kGroup16) {
      mma_new(products[1], a[2], b[2], a[3], b[3], in.z, in.w);
    } else {
      mma(products[0], a[2], b[2], a[3], b[3], in.z, in.w);
    }
#pragma unroll
    for (int h = 0; h < kGroups; ++h) {
      const float moved = Input<K>::kSums ? sums[u * kGroups + h] : 0.0f, zero = K::kMin ? 0.0f : moved;
      total[0] += low_scales.get(u, h, false) * (products[h][0] + zero);
      total[1] += high_scales.get(u, h, false) * (products[h][2] + zero);
      if constexpr (K::kMin) {
        total[0] += low_scales.get(u, h, true) * moved;
        total[1] += high_scales.get(u, h, true) * moved;
      }
    }
  }
  acc[0] += weight * total[0];
  acc[1] += weight * total[1];
}

// The end of a tile: one warp adds up the sums of all warps. Lanes 0 to 15 and lanes 16 to 31 each add every other
// warp; with a gate, these are the warps of one matrix.
template <class K, int kGates, Shape kShape>
__device__ __forceinline__ void finish(const Params& p, const float (*sums)[kTileRows], const Cursor<kShape>& at,
                                       float before, int lane, const Term& term) {
  const Shape s = at.shape();
  float own = 0;
#pragma unroll 4
  for (int w = lane / 16; w < s.n_warps; w += 2) own += sums[w][lane % 16];
  if (kGates == 2) own *= p.w[lane / 16].factor * K::kPerLevel;
  const float other = __shfl_xor_sync(0xFFFFFFFFu, own, 16);
  const int64_t out = int64_t{at.tile} * kTileRows + lane % 16;
  float total[kGates] = {kGates == 2 ? own : (own + other) * (p.w[0].factor * K::kPerLevel)};
  if constexpr (kGates == 2) total[1] = other;
  put<kGates>(p, s, at.output(term), out, total, before, lane < 16 && out < s.n_out[0], term, at.sum * s.n_terms);
}

// The body of the kernel. The code is short, because fetching instructions takes longer than running them. Two blocks
// fit on a multiprocessor, so that a block of the next kernel can copy its weights next to a block of this kernel.
template <class K, int kGates, Shape kShape>
__device__ __forceinline__ void run(const Params& p) {
  extern __shared__ __align__(128) char shared[];  // a ring for each warp, then the activations
  __shared__ uint32_t table[K::kLayout == Layout::kCodebook4 ? 256 : 1];
  __shared__ float sums[2][kMaxWarps][kTileRows];  // one half is written while the other is read
  const Shape s = shape_of<kShape>(p);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = s.n_warps;
  constexpr int kRing = K::kSlots * K::kSlotBytes;
  const char* ring = shared + warp * kRing;
  const Input<K> input(shared + n_warps * kRing, s.n_inputs, s.n_steps);
  const PackedWeight& w = p.w[warp % kGates];
  const From from{static_cast<const char*>(w.data) + 16 * lane,
                  static_cast<const char*>(w.scales) + K::kScaleBytes * lane};
  Cursor<kShape> at(p, warp / kGates, n_warps / kGates), ahead = at;
  if constexpr (K::kLayout == Layout::kCodebook4) fill_table(table, p.w[0]);
  if (!p.knows_experts) wait_for_previous();
  let_next_start();  // not earlier: the next kernel may read the experts before the wait, too
  const int n_rows = s.n_sums * s.n_terms;
  Term term(p, static_cast<int>(blockIdx.y) * n_rows + lane, lane < n_rows, s.accumulate);
  if (s.partial) at.n_own = ahead.n_own = term.keep_own(n_rows, lane);
#pragma unroll 1
  for (int i = 0; i < K::kSlots; ++i) copy_next<K>(ahead, from, shared_address(ring + i * K::kSlotBytes), lane, term);
  if (p.knows_experts) wait_for_previous();
  if (s.partial && at.done()) return;
  input.template stage<kShape>(p, (K::kMin ? 1.0f : -static_cast<float>(s.zero)) * 0x1p-24f);
  __syncthreads();

  int slot = 0, n_done = 0;
#pragma unroll 1
  for (; !at.done(); at.next_tile(), ++n_done) {
    const bool finishes = warp == n_done % n_warps;
    float acc[2] = {}, before = 0;
    if (const int64_t out = int64_t{at.tile} * kTileRows + lane;
        finishes && s.accumulate && lane < 16 && out < s.n_out[0])  // with accumulate, a group has one sum
      before = __ldcg(output_of(p, static_cast<int>(blockIdx.y) * s.n_sums + at.sum, out));
#pragma unroll 1
    for (; at.in_tile(); at.advance()) {
      await_copies<K::kSlots - 1>();
      __syncwarp();  // lanes use scales that other lanes have copied
      const int input_row = s.n_inputs == 1 ? 0
                            : s.partial     ? term.place_of(at.term)
                                            : at.term,
                step = input_row * s.n_steps + at.step;
      multiply_row<K>(acc, ring + slot, input.x + step * kTileCols + 8 * (lane % 4),
                      input.sums + step * Input<K>::kStepSums, term.weight_of(at.row()), lane, table);
      __syncwarp();
      copy_next<K>(ahead, from, shared_address(ring + slot), lane, term);
      slot = slot + K::kSlotBytes == kRing ? 0 : slot + K::kSlotBytes;
    }
    float(*const own)[kTileRows] = sums[n_done % 2];
    if (lane % 4 == 0) own[warp][lane / 4] = acc[0], own[warp][lane / 4 + 8] = acc[1];
    __syncthreads();
    if (finishes) finish<K, kGates>(p, own, at, before, lane, term);
  }
}

}  // namespace ingot::cuda::expert_codes_kernel
