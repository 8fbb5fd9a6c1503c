// The kernel of matvec.cu: products of quantized weights with few rows of activations, up to 16. The weights are the
// 16-row operand of the tensor cores. Every weight is read once, and only the speed of reading matters. So each warp
// prefetches into its own ring in shared memory, across the ends of tiles, and starts before the previous kernel ends.
//
// The warps of a block divide the columns of a tile, and add up their sums in shared memory. matvec_step.cuh has the
// work of a warp on one step.
#pragma once
#include "backend/cuda/matmul/matvec_step.cuh"
#include "backend/cuda/matmul/matvec_tiles.cuh"

namespace ingot::cuda::matvec_kernel {

using namespace matvec_step;
using namespace matvec_tiles;

// Rows of activations: a compile-time constant, or the number of the launch.
template <Shape kShape>
__device__ __forceinline__ int rows_of(const Params& p) {
  if constexpr (kShape.n_tokens > 0) {
    return kShape.n_tokens;
  } else {
    return p.n;
  }
}

// Activations in the order in which the lanes use them: in each 32 columns, the 8 columns of lane t are together. Each
// row is padded with zeros to whole steps. 8 more elements per row avoid bank conflicts between tokens.
INGOT_HD int whole_steps(int n_in) { return (n_in + kTileCols - 1) / kTileCols * kTileCols; }
INGOT_HD int arranged_stride(int n_in) { return whole_steps(n_in) + 8; }

// The place of 4 columns from column k on.
__device__ __forceinline__ int arranged_place(int k) { return k / 32 * 32 + k % 16 * 2 + k % 32 / 16 * 4; }

template <Shape kShape>
__device__ __forceinline__ void arrange(half* to, const Params& p, int first, int step) {
  const Shape s = shape_of<kShape>(p);
  const int n_rows = rows_of<kShape>(p), stride = arranged_stride(s.n_in), per_token = whole_steps(s.n_in) / 4,
            n = n_rows * per_token;
  constexpr int kAtOnce = 8;  // loads in flight
  for (int begin = first; begin < n; begin += kAtOnce * step) {
    uint2 v[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = begin + j * step, token = n_rows == 1 ? 0 : i / per_token, k = 4 * (i - token * per_token);
      v[j] = i < n && k < s.n_in ? *reinterpret_cast<const uint2*>(p.x + token * p.x_stride + k) : uint2{};
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = begin + j * step, token = n_rows == 1 ? 0 : i / per_token, k = 4 * (i - token * per_token);
      if (i < n) *reinterpret_cast<uint2*>(to + token * stride + arranged_place(k)) = v[j];
    }
  }
}

template <Shape kShape>
__device__ __forceinline__ const half* stage_input(const Params& p, half* shared, float* reduce /* [33] */) {
  // If kShape.staged is false, p.staged still decides at run time: the kernel is slower if the compiler knows that x is
  // not in shared memory.
  if (!kShape.staged && !p.staged) return p.x;
  const Shape s = shape_of<kShape>(p);
  const int n_threads = 32 * s.n_warps;
  if (!s.has_norm) {
    arrange<kShape>(shared, p, static_cast<int>(threadIdx.x), n_threads);
  } else {
    norm_row(
        p.norm, s.n_in, s.n_in, reduce, true,
        [&](int i, uint2 v) { *reinterpret_cast<uint2*>(shared + arranged_place(4 * i)) = v; }, n_threads);
    for (int k = s.n_in + 4 * static_cast<int>(threadIdx.x); k < whole_steps(s.n_in); k += 4 * n_threads)
      *reinterpret_cast<uint2*>(shared + arranged_place(k)) = uint2{};
  }
  return shared;
}

// A constant passed as an argument; NVRTC has no std::integral_constant.
template <int kGate>
struct Gate {
  static constexpr int kValue = kGate;
};

// The stream of one warp: copies run ahead of their use by all slots of the ring except one. The steps of the two gate
// matrices alternate.
template <class K, int kGates, Shape kShape>
struct Stream {
  const Params& p;
  const int lane, part, stride, n_mine;  // stride: from one tile of the warp to the next; n_mine: its steps in a tile
  uint32_t slot;
  const uint32_t end;
  int tile, left = 0;
  From from[kGates];

  __device__ Stream(const Params& params, const char* ring, int lane_of, int part_of, int first_tile, int stride_of)
      : p(params),
        lane(lane_of),
        part(part_of),
        stride(stride_of),
        n_mine(steps_of(shape_of<kShape>(params), part_of)),
        slot(shared_address(ring)),
        end(slot + K::kSlots * K::kSlotBytes),
        tile(first_tile) {
    aim();
  }
  __device__ static int steps_of(const Shape& s, int part) {
    if constexpr (kShape.n_in > 0)  // otherwise the split is not known here
      if constexpr (kShape.n_steps % kShape.split == 0) return s.n_steps / s.split;
    return (s.n_steps - part + s.split - 1) / s.split;
  }
  __device__ __forceinline__ void aim() {
    const Shape s = shape_of<kShape>(p);
    left = tile < s.n_tiles ? n_mine : 0;
    if (left == 0) return;
    const int job = kGates == 1 ? job_of(s, tile) : 0;
#pragma unroll
    for (int j = 0; j < kGates; ++j) {
      from[j] = from_of<K>(p.jobs[job + j].w, tile - pick(s.first_tile, job), lane, s.n_steps);
      from[j].codes += int64_t{part} * kStepBytes;
      from[j].scales += int64_t{part} * (32 * K::kScaleBytes);
    }
  }
  template <int kGate>
  __device__ __forceinline__ void copy_next() {
    if (left > 0) {
      const int split = shape_of<kShape>(p).split;
      copy_step<K>(slot, from[kGate], lane);
      from[kGate].codes += split * kStepBytes;
      from[kGate].scales += split * (32 * K::kScaleBytes);
      if (kGate == kGates - 1 && --left == 0) {
        tile += stride;
        aim();
      }
    }
    end_copies();
    slot = slot + K::kSlotBytes == end ? end - K::kSlots * K::kSlotBytes : slot + K::kSlotBytes;
  }

 private:
  static constexpr int kStepBytes = 512 * K::kPieces;  // from one step to the next
};

template <class K, int kTokenTiles, int kGates, Shape kShape>
__device__ __forceinline__ void run(const Params& p) {
  // The rings of the warps; then sums [2, warps, kGates, n, 16], where one half is written while the other is read;
  // then the staged activations.
  extern __shared__ __align__(16) char shared[];
  __shared__ float reduce[33];
  __shared__ uint32_t table[K::kLayout == Layout::kCodebook4 ? 256 : 1];
  const Shape s = shape_of<kShape>(p);
  const int n = rows_of<kShape>(p), warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int at_once = s.n_warps / s.split, local = warp / s.split, part = warp % s.split,
            stride = static_cast<int>(gridDim.x) * at_once;
  const char* ring = shared + warp * (K::kSlots * K::kSlotBytes);
  const int n_sums = kTileRows * n, buffer_size = s.n_warps * kGates * n_sums;
  float* sums = reinterpret_cast<float*>(shared + s.n_warps * K::kSlots * K::kSlotBytes);
  let_next_start();
  Stream<K, kGates, kShape> stream(p, ring, lane, part, static_cast<int>(blockIdx.x) * at_once + local, stride);
  if (part == 0 && lane < kGates && stream.tile < s.n_tiles) {
    const int job = kGates == 1 ? job_of(s, stream.tile) : lane;
    prefetch_tile(p.jobs[job].w, stream.tile - pick(s.first_tile, job));
  }
  stream.template copy_next<0>();
  stream.template copy_next<1 % kGates>();
  if constexpr (K::kSlots == 4) stream.template copy_next<0>();
  if constexpr (K::kLayout == Layout::kCodebook4) fill_table(table, p.jobs[0].w);
  wait_for_previous();
  const half* input = stage_input<kShape>(p, reinterpret_cast<half*>(sums + 2 * buffer_size), reduce);
  __syncthreads();

  const uint32_t constant = moving_pair<K>(s.zero);
  int slot = 0, buffer = 0;
  const auto use_step = [&](auto& sums_of, const auto& x, auto gate_ahead) {
    await_copies<K::kSlots - 2>();
    __syncwarp();  // lanes use scales that other lanes have copied
    stream.template copy_next<decltype(gate_ahead)::kValue>();
    multiply<K, kTokenTiles>(sums_of, ring + slot, x, lane, constant, table);
    slot = slot + K::kSlotBytes == K::kSlots * K::kSlotBytes ? 0 : slot + K::kSlotBytes;
  };
  for (int first = static_cast<int>(blockIdx.x) * at_once; first < s.n_tiles; first += stride) {
    const int tile = first + local;
    float acc[kGates][kTokenTiles][4] = {};
    if (tile < s.n_tiles) {
      const half* x[kTokenTiles];  // tokens past the last repeat the last, and are not written
#pragma unroll
      for (int i = 0; i < kTokenTiles; ++i)
        x[i] = input + min(8 * i + g, n - 1) * arranged_stride(s.n_in) + 8 * t + part * K::kCols;
      for (int left = stream.n_mine; left > 0; --left) {
        use_step(acc[0], x, Gate<(K::kSlots - 1) % kGates>());
        if constexpr (kGates == 2) use_step(acc[1], x, Gate<K::kSlots % kGates>());
#pragma unroll
        for (int i = 0; i < kTokenTiles; ++i) x[i] += s.split * K::kCols;
      }
    }
    float* out = sums + buffer * buffer_size + warp * kGates * n_sums;
#pragma unroll
    for (int j = 0; j < kGates; ++j) {
#pragma unroll
      for (int i = 0; i < kTokenTiles; ++i) {
        const int token = 8 * i + 2 * t;
        float* at = out + j * n_sums + token * kTileRows + g;
        if (token < n) at[0] = acc[j][i][0], at[8] = acc[j][i][2];
        if (token + 1 < n) at[kTileRows] = acc[j][i][1], at[kTileRows + 8] = acc[j][i][3];
      }
    }
    __syncthreads();
    if (tile < s.n_tiles) write_tile<kGates, kShape>(p, n, sums + buffer * buffer_size, local, tile, K::kPerLevel);
    buffer ^= 1;
  }
}

}  // namespace ingot::cuda::matvec_kernel
