// Products of rows of activations with the matrices of their experts, if experts have few rows each (ExpertOrder with
// tiles of kStreamRows rows). Blocks stay until the end, and share the weights of the chosen experts equally. A warp
// computes a unit alone: 16 outputs of a row tile, with a gate 16 of each matrix. It prefetches its weights to a ring
// of its own, across the ends of units, so it waits for no other warp. It multiplies them by up to eight rows at once,
// as integers (code_bytes.cuh). The block's activations are in shared memory as integers.
#include <algorithm>

#include "backend/cuda/experts/tiles.cuh"
#include "backend/cuda/matmul/code_bytes.cuh"
#include "backend/cuda/matmul/launch.cuh"
#include "backend/cuda/matmul/wgmma.cuh"

namespace ingot::cuda {

using namespace code_bytes;
using namespace matvec_step;
using expert_tiles_kernel::matrix_of;
using expert_tiles_kernel::TileParams;

namespace {

constexpr int kWarps = 16, kThreads = 32 * kWarps;
constexpr int kSetRows = 4, kSets = kStreamRows / kSetRows;  // a set: the rows of one product of the tensor core
constexpr int kTilesAtOnce = 2;                              // row tiles whose activations are in shared memory
constexpr int kSlotChoices[] = {8, 6, 4};                    // of a ring; a slot has a step of a matrix
constexpr size_t kStaticShared = 2048 + 1024;                // more than the kernel declares, and the system's

struct Params : TileParams {
  int n_slots;
  bool knows_order;  // before the previous kernel has ended
};

// The activations of a step of 128 columns and a set of rows.
template <class K>
struct alignas(16) SetInput {
  static constexpr int kGroups = K::kGroup16 ? 2 : 1;  // of columns with their own scale, in a unit of 32 columns
  uint4 bytes[2][32];                                  // of each lane: 8 high or low bytes of two units of 32 columns
  int totals[kSetRows][4 * kGroups];                   // sums of a row's integers; without minima, times -zero
  float scale[kSetRows];
};

template <class K>
__host__ __device__ constexpr int input_bytes(int n_steps) {
  return kTilesAtOnce * n_steps * kSets * static_cast<int>(sizeof(SetInput<K>));
}

#if INGOT_WGMMA

// Turns a step of the rows of a set into integers. Lanes 8i to 8i + 7 have row i of the set, from `row` on: four lanes
// have the high bytes and four the low bytes of the same columns. With `has_row` false, the row is zero.
template <class K>
__device__ __forceinline__ void stage(const Params& p, SetInput<K>& to, const half* row, bool has_row, int step,
                                      int lane) {
  float4 v[4][2];
  float amax = 0;
#pragma unroll
  for (int u = 0; u < 4; ++u)
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      const int column = step * kTileCols + u * 32 + lane % 4 * 4 + 16 * piece;
      const uint2 raw = has_row && column < p.n_in ? __ldcg(reinterpret_cast<const uint2*>(row + column)) : uint2{};
      const float2 low = __half22float2(half2_of(raw.x)), high = __half22float2(half2_of(raw.y));
      v[u][piece] = {low.x, low.y, high.x, high.y};
    }
#pragma unroll
  for (int u = 0; u < 4; ++u)
#pragma unroll
    for (const float4& piece : v[u])
      amax = max_or_nan(
          amax, max_or_nan(max_or_nan(fabsf(piece.x), fabsf(piece.y)), max_or_nan(fabsf(piece.z), fabsf(piece.w))));
#pragma unroll
  for (int i = 1; i <= 2; i *= 2) amax = max_or_nan(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, i));
  const float inverse = inverse_of(amax);
  uint2 words[4];
#pragma unroll
  for (int u = 0; u < 4; ++u) {
    const LaneBytes bytes = bytes_of_columns<K::kLayout>(v[u], inverse, lane);
    words[u] = bytes.ordered;
    if constexpr (K::kMin || K::kZero) {
      const int2 totals = totals_of<K::kGroup16>(bytes.first, bytes.second);
      const int factor = K::kMin ? 1 : -p.w[0].zero;
      if (lane % 8 == 0) {
        int* const of_unit = &to.totals[lane / 8][u * SetInput<K>::kGroups];
        of_unit[0] = factor * totals.x;
        if constexpr (K::kGroup16) of_unit[1] = factor * totals.y;
      }
    }
  }
  to.bytes[0][lane] = make_uint4(words[0].x, words[0].y, words[1].x, words[1].y);
  to.bytes[1][lane] = make_uint4(words[2].x, words[2].y, words[3].x, words[3].y);
  if (lane % 8 == 0) to.scale[lane / 8] = amax * (1.0f / kLargest);
}

// The codes and scales of a step, in a lane's registers: outputs g and g + 8 for lane 4g + t.
template <class K>
struct Step {
  static constexpr int kRowPieces = K::kPieces / 2;
  uint4 upper[kRowPieces], lower[kRowPieces];
  Scales<K> rows[2];

  __device__ __forceinline__ Step(const char* codes, const char* scales, int lane)
      : rows{Scales<K>(scales + lane / 4 * (4 * Scales<K>::kWords)),
             Scales<K>(scales + (lane / 4 + 8) * (4 * Scales<K>::kWords))} {
    const uint4* from = reinterpret_cast<const uint4*>(codes) + lane;
#pragma unroll
    for (int i = 0; i < kRowPieces; ++i) upper[i] = from[64 * i], lower[i] = from[64 * i + 32];
  }
  // Adds the products with the rows of a set to the lane's sums: those of row t.
  __device__ __forceinline__ void multiply(float (&acc)[2], const SetInput<K>& input, int lane,
                                           const uint32_t* table) const {
    constexpr int kGroups = SetInput<K>::kGroups;
    constexpr ByteOrder kOrder = byte_order(K::kLayout);
    float sums[2] = {};
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      const uint4 x = input.bytes[pair][lane];
      int totals[2 * kGroups] = {};
      if constexpr (K::kMin || K::kZero) {
#pragma unroll
        for (int i = 0; i < 2 * kGroups; ++i) totals[i] = input.totals[lane % 4][pair * 2 * kGroups + i];
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int u = 2 * pair + j;
        const uint2 a = bytes_of<K>(upper, u, table), b = bytes_of<K>(lower, u, table);
        const uint2 own = j == 0 ? make_uint2(x.x, x.y) : make_uint2(x.z, x.w);
#pragma unroll
        for (int h = 0; h < kGroups; ++h) {
          const int total = totals[j * kGroups + h], start = K::kMin ? 0 : total;
          int c[4] = {0, start, 0, start};
          const uint32_t first_mask = h == 0 ? kOrder.first_mask : ~kOrder.first_mask,
                         second_mask = h == 0 ? kOrder.second_mask : ~kOrder.second_mask;
          mma_bytes<!K::kZero>(c, a.x, b.x, a.y, b.y, K::kGroup16 ? own.x & first_mask : own.x,
                               K::kGroup16 ? own.y & second_mask : own.y);
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            sums[r] += rows[r].get(u, h, false) * static_cast<float>(256 * c[2 * r] + c[2 * r + 1]);
            if constexpr (K::kMin) sums[r] += rows[r].get(u, h, true) * static_cast<float>(total);
          }
        }
      }
    }
    const float scale = input.scale[lane % 4];
#pragma unroll
    for (int r = 0; r < 2; ++r) acc[r] += scale * sums[r];
  }
};

// A unit of a warp: 16 outputs of a row tile. The next one is kWarps units ahead.
struct Unit {
  int index, row_tile, of_tile;  // of_tile: its number in the row tile

  __device__ __forceinline__ Unit(int of, int n_tiles)
      : index(of), row_tile(of / n_tiles), of_tile(of - row_tile * n_tiles) {}
  __device__ __forceinline__ void advance(int n_tiles) {
    index += kWarps;
    for (of_tile += kWarps; of_tile >= n_tiles; of_tile -= n_tiles) ++row_tile;
  }
};

// A warp's ring, and the place in the weights from which it copies next. The steps of the two gate matrices alternate.
template <class K, int kGates>
struct Ring {
  const Params& p;
  const uint32_t base;  // a shared address
  const int end, lane;  // end: of the block's units
  Unit ahead;           // the unit after the one that is copied
  int expert = 0;       // of `ahead`, read before it is needed
  int left = 0;         // steps to be copied of the unit
  int slot = 0;         // to be filled next
  From from[kGates] = {};

  __device__ __forceinline__ Ring(const Params& of, uint32_t base_of, int first_unit, int end_of, int lane_of)
      : p(of), base(base_of), end(end_of), lane(lane_of), ahead(first_unit, of.n_tiles) {
    read_expert();
    aim();
#pragma unroll 1
    for (int i = 0; i < p.n_slots / 2 - 1; ++i) copy_next<0>(), copy_next<1 % kGates>();
    copy_next<0>();
  }
  __device__ __forceinline__ void read_expert() {
    if (ahead.index < end) expert = __ldcg(&p.order.tiles[ahead.row_tile].expert);
  }
  __device__ __forceinline__ void aim() {
    left = 0;
    if (ahead.index >= end) return;
    left = p.n_steps;
#pragma unroll
    for (int j = 0; j < kGates; ++j) from[j] = from_of<K>(matrix_of(p.w[j], expert), ahead.of_tile, lane, p.n_steps);
    ahead.advance(p.n_tiles);
    read_expert();
  }
  template <int kGate>
  __device__ __forceinline__ void copy_next() {
    if (left > 0) {
      copy_step<K>(base + slot * K::kSlotBytes, from[kGate], lane);
      from[kGate].codes += 512 * K::kPieces, from[kGate].scales += 32 * K::kScaleBytes;
      if (kGate == kGates - 1 && --left == 0) aim();
    }
    end_copies();
    slot = slot + 1 == p.n_slots ? 0 : slot + 1;
  }
  // Waits for the oldest copy.
  __device__ __forceinline__ void await_copy() const {
    p.n_slots == 4 ? await_copies<2>() : p.n_slots == 6 ? await_copies<4>() : await_copies<6>();
    __syncwarp();  // lanes use what other lanes have copied
  }
};

// One thread's view of its block.
template <class K, int kGates>
struct Block {
  const Params& p;
  char* const shared;    // activations [kTilesAtOnce, n_steps, kSets], then rings
  RowTile* const tiles;  // [kTilesAtOnce]
  int* const rows;       // [kTilesAtOnce, kStreamRows]
  const uint32_t* const table;
  const int warp, lane;

  __device__ __forceinline__ SetInput<K>& input(int tile, int step, int set) const {
    return reinterpret_cast<SetInput<K>*>(shared)[(tile * p.n_steps + step) * kSets + set];
  }

  // Puts the activations of n row tiles from `first` on into shared memory.
  __device__ __forceinline__ void stage_tiles(int first, int n) const {
    const int own = min(static_cast<int>(threadIdx.x) / 32 % kTilesAtOnce, n - 1);
    static_assert(kTilesAtOnce == 2 && kWarps % 2 == 0);  // half of the warps have a tile each
    const int32_t* of = &p.order.tiles[first + own].expert;
    const RowTile tile{__ldcg(of), __ldcg(of + 1), __ldcg(of + 2)};
    const int row = lane < tile.n ? __ldcg(p.order.order + tile.first + lane) : 0;
    if (warp < n) {
      if (lane == 0) tiles[own] = tile;
      if (lane < kStreamRows) rows[own * kStreamRows + lane] = row;
    }
    if (warp % kTilesAtOnce >= n) return;
    const int n_sets = tile.n > kSetRows ? 2 : 1;
#pragma unroll 1
    for (int i = warp / kTilesAtOnce; i < p.n_steps * n_sets; i += kWarps / kTilesAtOnce) {
      const int step = i / n_sets, set = i - step * n_sets, token = set * kSetRows + lane / 8;
      const int64_t from = p.row_of_x(__shfl_sync(0xFFFFFFFFu, row, token)) * p.x_stride;
      stage<K>(p, input(own, step, set), p.x + from, token < tile.n, step, lane);
    }
  }

  template <int n_sets>
  __device__ __forceinline__ void use_unit(Ring<K, kGates>& ring, int of_tile, int own) const {
    float acc[kGates][n_sets][2] = {};
#pragma unroll 1
    for (int step = 0; step < p.n_steps; ++step) {
      use_step<n_sets, 1 % kGates>(ring, acc[0], own, step);
      if constexpr (kGates == 2) use_step<n_sets, 0>(ring, acc[1], own, step);
    }
#pragma unroll
    for (int set = 0; set < n_sets; ++set) {
      const int token = set * kSetRows + lane % 4;
      if (token >= tiles[own].n) break;
      float total[2][2] = {};
#pragma unroll
      for (int j = 0; j < kGates; ++j)
#pragma unroll
        for (int r = 0; r < 2; ++r) total[j][r] = acc[j][set][r];
      write(total, tiles[own].expert, rows[own * kStreamRows + token], int64_t{of_tile} * kTileRows + lane / 4);
    }
  }
  // The slot that was used before is filled again.
  template <int n_sets, int kGateAhead>
  __device__ __forceinline__ void use_step(Ring<K, kGates>& ring, float (&acc)[n_sets][2], int own, int step) const {
    ring.await_copy();
    const int slot = ring.slot + 1 == p.n_slots ? 0 : ring.slot + 1;
    ring.template copy_next<kGateAhead>();
    const char* const codes = shared + input_bytes<K>(p.n_steps) + (warp * p.n_slots + slot) * K::kSlotBytes;
    const Step<K> of(codes, codes + 512 * K::kPieces, lane);
#pragma unroll
    for (int set = 0; set < n_sets; ++set) of.multiply(acc[set], input(own, step, set), lane, table);
  }
  // Writes outputs `out` and out + 8 of a row. total: of each matrix.
  __device__ __forceinline__ void write(const float (&total)[2][2], int64_t expert, int64_t row, int64_t out) const {
#pragma unroll
    for (int r = 0; r < 2; ++r, out += 8) {
      if (out >= p.w[0].n_out) return;
      float v[2] = {};
#pragma unroll
      for (int j = 0; j < kGates; ++j)
        v[j] = total[j][r] * p.w[j].factor +
               (p.bias[j] != nullptr ? __ldg(p.bias[j] + expert * p.w[0].n_out + out) : 0.0f);
      const float value = kGates == 2 ? act_mul(v[0], v[1], p.act) : v[0];
      if (p.y_f32) {
        static_cast<float*>(p.y)[row * p.y_stride + out] = value;
      } else {
        static_cast<half*>(p.y)[row * p.y_stride + out] = from_float<half>(value);
      }
    }
  }

  // The units from `first` on, some row tiles at a time.
  __device__ __forceinline__ void run(Ring<K, kGates>& ring, int first, int end) const {
    Unit unit(first + warp, p.n_tiles);
#pragma unroll 1
    for (int tile = first / p.n_tiles; tile * p.n_tiles < end; tile += kTilesAtOnce) {
      stage_tiles(tile, min(kTilesAtOnce, (end - 1) / p.n_tiles - tile + 1));
      __syncthreads();
#pragma unroll 1
      for (; tile + kTilesAtOnce > unit.row_tile && end > unit.index; unit.advance(p.n_tiles)) {
        const int own = unit.row_tile - tile;
        tiles[own].n > kSetRows ? use_unit<2>(ring, unit.of_tile, own) : use_unit<1>(ring, unit.of_tile, own);
      }
      __syncthreads();
    }
  }
};
#endif

template <class K, int kGates>
__global__ void __launch_bounds__(kThreads, 1) stream_kernel(const __grid_constant__ Params p) {
#if INGOT_WGMMA
  extern __shared__ __align__(128) char shared[];
  __shared__ RowTile tiles[kTilesAtOnce];
  __shared__ int rows[kTilesAtOnce * kStreamRows];
  __shared__ uint32_t table[K::kLayout == Layout::kCodebook4 ? 256 : 1];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  if (K::kLayout == Layout::kCodebook4 && thread < 256) {
    const auto level = [&](int code) {
      return quant::codebook_entry(p.w[0].codebook_low, p.w[0].codebook_high, code) & 255;
    };
    table[thread] = static_cast<uint32_t>(level(thread & 15) | level(thread >> 4) << 8);
  }
  if (!p.knows_order) wait_for_previous();
  let_next_start();  // not earlier, because the next kernel may read the order before this kernel has ended
  const int64_t n_units = int64_t{__ldcg(p.order.n_tiles)} * p.n_tiles;
  const int first = static_cast<int>(n_units * blockIdx.x / gridDim.x),
            end = static_cast<int>(n_units * (blockIdx.x + 1) / gridDim.x);
  if (first == end) return;
  const uint32_t ring_at = shared_address(shared) + input_bytes<K>(p.n_steps) + warp * p.n_slots * K::kSlotBytes;
  Ring<K, kGates> ring(p, ring_at, first + warp, end, lane);
  if (p.knows_order) wait_for_previous();
  Block<K, kGates>{p, shared, tiles, rows, table, warp, lane}.run(ring, first, end);
  await_copies<0>();
#endif
}

// Sets the fields of Params that follow from n_in. Returns whether there is room.
template <class K>
bool divide(Params& p, int64_t n_in, size_t most_shared) {
  p.n_steps = static_cast<int>((n_in + kTileCols - 1) / kTileCols);
  const auto room = static_cast<int64_t>(most_shared - kStaticShared) - input_bytes<K>(p.n_steps);
  for (const int n : kSlotChoices)
    if (room >= int64_t{n} * kWarps * K::kSlotBytes) return p.n_slots = n, true;
  return false;
}

template <class F>
void with_integers(const PackedWeight& w, F&& f) {
  with_codes(w, [&](auto kind) {
    if constexpr (decltype(kind)::kLayout != Layout::kCodesE4M3) f(kind);
  });
}

}  // namespace

bool can_stream_experts(const PackedWeight& w, const DeviceLimits& device) {
  if (!device.has_hopper_code || w.f32 || w.layout == Layout::kDense || w.layout == Layout::kFloat8 || w.n_in % 4 != 0)
    return false;
  bool fits = false;
  with_integers(w, [&](auto kind) {
    using K = decltype(kind);
    Params p{};
    fits = divide<K>(p, w.n_in, device.most_shared);
  });
  return fits;
}

void stream_experts(const TileParams& of, bool knows_order, Device& device) {
  with_integers(of.w[0], [&](auto kind) {
    using K = decltype(kind);
    Params p{of};
    p.knows_order = knows_order;
    for (PackedWeight& w : p.w) w.factor *= level_unit(w.layout);
    const auto start = [&]<int kGates>() {
      CHECK(divide<K>(p, p.n_in, device.most_shared()));
      for (int j = 0; j < kGates; ++j)
        CHECK_EQ(p.w[j].expert_bytes, int64_t{p.n_tiles} * p.n_steps * (512 * K::kPieces));  // no gaps between experts
      launch(device, stream_kernel<K, kGates>, dim3(static_cast<unsigned>(device.n_multiprocessors())), kThreads,
             static_cast<size_t>(input_bytes<K>(p.n_steps) + kWarps * p.n_slots * K::kSlotBytes), p);
    };
    p.act >= 0 ? start.template operator()<2>() : start.template operator()<1>();
  });
}

}  // namespace ingot::cuda
