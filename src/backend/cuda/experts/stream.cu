// Products of rows of activations with the matrices of their experts, if experts have few rows each (ExpertOrder with
// tiles of kStreamRows rows). Each block stays until the end, and has an equal share of the weights of the chosen
// experts. One warp copies the share through a ring in shared memory, as fast as the memory sends it. The other warps
// multiply: each has some of the columns of a tile of 16 outputs, and multiplies them by up to eight rows, as integers
// (code_bytes.cuh). Then the sums of the warps are added up.
#include <algorithm>

#include "backend/cuda/cluster/cluster.cuh"
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

constexpr int kWarps = 16, kThreads = 32 * kWarps;  // that multiply
constexpr int kCopyThreads = 128;                   // only one lane copies, but setmaxnreg is for groups of four warps
constexpr int kSetRows = 4, kSets = kStreamRows / kSetRows;  // a set: the rows of one product of the tensor core
constexpr int kSetOutputs = kTileRows * kSetRows;
constexpr int kMaxSlots = 16, kFewestSlots = 3;
constexpr size_t kSumBytes = 32 << 10;  // at most for the sums of a batch, unless one group needs more
constexpr size_t kStaticShared = 2048;  // more than the kernel declares

// A unit is a tile of 16 outputs of one row tile; with a gate, a tile of each matrix. Its columns are cut into chunks
// of up to 16 steps, one step for each warp. If a row has few steps, units are processed side by side, as a group.
struct Params : TileParams {
  int n_chunks, parts, at_once;  // of a unit; steps of a chunk; units of a group
  int n_slots, batch;            // of the ring; groups whose sums are added up at a time
  bool knows_order;              // before the previous kernel has ended
};

// The activations of a step and a set.
template <class K>
struct alignas(16) SetInput {
  static constexpr int kGroups = K::kGroup16 ? 2 : 1;  // of columns with their own scale, in a unit of 32 columns
  uint4 bytes[2][32];                                  // of each lane: 8 high or low bytes of two units of 32 columns
  int totals[kSetRows][4 * kGroups];                   // sums of a row's integers; without minima, times -zero
  float scale[kSetRows];
};

template <class K>
constexpr int kCodeBytes = 16 * 32 * K::kPieces;
template <class K>
constexpr int kScaleBytes = 32 * K::kScaleBytes;

// Byte offsets in shared memory.
struct Places {
  int sums, ring, slot_bytes, turn_floats;
};
template <class K, int kGates>
__host__ __device__ inline Places places_of(const Params& p) {
  Places at{};
  at.sums = kWarps * p.n_chunks * kSets * static_cast<int>(sizeof(SetInput<K>));
  at.turn_floats = p.batch * kGates * kWarps * kSets * kSetOutputs;
  at.ring = at.sums + 2 * 4 * at.turn_floats;
  at.slot_bytes = p.at_once * p.parts * K::kSlotBytes;
  return at;
}

#if INGOT_WGMMA

// Units of a block's share that belong to one row tile.
struct Run {
  RowTile rows;
  int tile, n;  // the first tile of outputs, and the number of units
  __device__ __forceinline__ Run(const Params& p, int at, int end) {
    const int r = at / p.n_tiles;
    tile = at - r * p.n_tiles, n = min(end - at, p.n_tiles - tile);
    const int32_t* of = &p.order.tiles[r].expert;
    rows = {__ldcg(of), __ldcg(of + 1), __ldcg(of + 2)};
  }
};

// The position of a reader or a writer in the ring. Barriers: "full" of each slot, then "empty" of each slot.
struct Ring {
  uint32_t base, barriers;  // shared addresses
  int n_slots, slot_bytes, slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ uint32_t full() const { return barriers + 8 * slot; }
  __device__ __forceinline__ uint32_t empty() const { return barriers + 8 * (kMaxSlots + slot); }
  __device__ __forceinline__ int place() const { return slot * slot_bytes; }
  __device__ __forceinline__ void advance() {
    if (++slot == n_slots) slot = 0, parity ^= 1;
  }
};

// One lane copies the block's share: codes of the units of a group, then their scales.
template <class K, int kGates>
__device__ __forceinline__ void copy_weights(const Params& p, Ring ring, int first, int end) {
  const int scales_at = p.at_once * p.parts * kCodeBytes<K>;
#pragma unroll 1
  for (int at = first; at < end;) {
    const Run run(p, at, end);
    PackedWeight w[kGates];
#pragma unroll
    for (int j = 0; j < kGates; ++j) w[j] = matrix_of(p.w[j], run.rows.expert);
#pragma unroll 1
    for (int unit = 0; unit < run.n; unit += p.at_once)
#pragma unroll 1
      for (int chunk = 0; chunk < p.n_chunks; ++chunk) {
        const int n = min(p.at_once, run.n - unit) * min(p.parts, p.n_steps - chunk * p.parts);
        const int64_t step = int64_t{run.tile + unit} * p.n_steps + chunk * p.parts;
#pragma unroll
        for (int j = 0; j < kGates; ++j) {
          await(ring.empty(), ring.parity ^ 1);
          const uint32_t to = ring.base + ring.place();
          expect_bytes(ring.full(), n * K::kSlotBytes);
          cluster::fetch(to, static_cast<const char*>(w[j].data) + step * kCodeBytes<K>, n * kCodeBytes<K>,
                         ring.full());
          cluster::fetch(to + scales_at, static_cast<const char*>(w[j].scales) + step * kScaleBytes<K>,
                         n * kScaleBytes<K>, ring.full());
          ring.advance();
        }
      }
    at += run.n;
  }
}

// Turns a warp's columns of a row tile into integers. row: the lane's row of the tile. Lanes 8i to 8i + 7 have row i of
// a set: four lanes have the high bytes and four the low bytes of the same columns.
template <class K>
__device__ __forceinline__ void stage(const Params& p, SetInput<K>* to /* [n_chunks, kSets] */, int part, int row,
                                      int n_rows, int lane) {
  constexpr ByteOrder kOrder = byte_order(K::kLayout);
  const float rounder = lane & 4 ? kRounder : kRounder + 128;
  const uint32_t which = lane & 4 ? 0x0040 : 0x0051;
  const int n_sets = (n_rows + kSetRows - 1) / kSetRows;
#pragma unroll 1
  for (int i = 0; i < p.n_chunks * n_sets; ++i) {
    const int chunk = i / n_sets, set = i - chunk * n_sets, of_set = lane / 8, token = set * kSetRows + of_set;
    const int step = chunk * p.parts + part;
    if (step >= p.n_steps) break;
    const int own_row = __shfl_sync(0xFFFFFFFFu, row, token);
    const half* const from = p.x + p.row_of_x(own_row) * p.x_stride;
    float4 v[4][2];
    float amax = 0;
#pragma unroll
    for (int u = 0; u < 4; ++u)
#pragma unroll
      for (int piece = 0; piece < 2; ++piece) {
        const int column = step * kTileCols + u * 32 + lane % 4 * 4 + 16 * piece;
        const bool in = token < n_rows && column < p.n_in;
        const uint2 raw = in ? __ldcg(reinterpret_cast<const uint2*>(from + column)) : uint2{};
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
    const float inverse = amax > 0 ? __fdividef(kLargest, amax) : 0.0f;
    SetInput<K>& input = to[chunk * kSets + set];
    uint2 words[4];
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      const uint32_t first = rounded_bytes(v[u][0], inverse, rounder, which),
                     second = rounded_bytes(v[u][1], inverse, rounder, which);
      words[u] = make_uint2(__byte_perm(first, second, kOrder.first), __byte_perm(first, second, kOrder.second));
      if constexpr (K::kMin || K::kZero) {
        const int2 totals = totals_of<K::kGroup16>(first, second);
        const int factor = K::kMin ? 1 : -p.w[0].zero;
        if (lane % 8 == 0) {
          int* const of_unit = &input.totals[of_set][u * SetInput<K>::kGroups];
          of_unit[0] = factor * totals.x;
          if constexpr (K::kGroup16) of_unit[1] = factor * totals.y;
        }
      }
    }
    input.bytes[0][lane] = make_uint4(words[0].x, words[0].y, words[1].x, words[1].y);
    input.bytes[1][lane] = make_uint4(words[2].x, words[2].y, words[3].x, words[3].y);
    if (lane % 8 == 0) input.scale[of_set] = amax * (1.0f / kLargest);
  }
  __syncwarp();
}

// Adds a step of 16 outputs to the sums of the lane: outputs g and g + 8 of row t of each set, for lane 4g + t.
// release() is called when the slot has been read, with words of all loads.
template <class K, int n_sets, class Release>
__device__ __forceinline__ void multiply(float (&acc)[n_sets][2], const char* codes, const char* scales,
                                         const SetInput<K>* input /* [n_sets] */, int lane, const uint32_t* table,
                                         Release&& release) {
  constexpr int kRowPieces = K::kPieces / 2, kGroups = SetInput<K>::kGroups, kRowScales = 4 * Scales<K>::kWords;
  const uint4* from = reinterpret_cast<const uint4*>(codes) + lane;
  uint4 upper[kRowPieces], lower[kRowPieces];
#pragma unroll
  for (int i = 0; i < kRowPieces; ++i) upper[i] = from[64 * i], lower[i] = from[64 * i + 32];
  const Scales<K> of_rows[2] = {Scales<K>(scales + lane / 4 * kRowScales),
                                Scales<K>(scales + (lane / 4 + 8) * kRowScales)};
  uint32_t loaded = of_rows[0].words[0] | of_rows[1].words[0] | of_rows[0].words[Scales<K>::kWords - 1] |
                    of_rows[1].words[Scales<K>::kWords - 1];
#pragma unroll
  for (int i = 0; i < kRowPieces; ++i) loaded |= upper[i].x | lower[i].x;
  release(loaded);
  float sums[n_sets][2] = {};
#pragma unroll
  for (int u = 0; u < 4; ++u) {
    const uint2 a = bytes_of<K>(upper, u, table), b = bytes_of<K>(lower, u, table);
#pragma unroll
    for (int set = 0; set < n_sets; ++set) {
      const uint2 x = reinterpret_cast<const uint2*>(&input[set].bytes[u / 2][lane])[u % 2];
      constexpr ByteOrder kOrder = byte_order(K::kLayout);
#pragma unroll
      for (int h = 0; h < kGroups; ++h) {
        const int total = K::kMin || K::kZero ? input[set].totals[lane % 4][u * kGroups + h] : 0;
        int c[4] = {0, K::kMin ? 0 : total, 0, K::kMin ? 0 : total};
        if constexpr (K::kGroup16) {
          mma_bytes<!K::kZero>(c, a.x, b.x, a.y, b.y, x.x & (h == 0 ? kOrder.first_mask : ~kOrder.first_mask),
                               x.y & (h == 0 ? kOrder.second_mask : ~kOrder.second_mask));
        } else {
          mma_bytes<!K::kZero>(c, a.x, b.x, a.y, b.y, x.x, x.y);
        }
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          sums[set][r] += of_rows[r].get(u, h, false) * static_cast<float>(256 * c[2 * r] + c[2 * r + 1]);
          if constexpr (K::kMin) sums[set][r] += of_rows[r].get(u, h, true) * static_cast<float>(total);
        }
      }
    }
  }
#pragma unroll
  for (int set = 0; set < n_sets; ++set)
#pragma unroll
    for (int r = 0; r < 2; ++r) acc[set][r] += input[set].scale[lane % 4] * sums[set][r];
}

// One thread's view of its block.
template <class K, int kGates>
struct Block {
  const Params& p;
  const Places at;
  char* const shared;
  const uint32_t* const table;
  const uint32_t zero;                // 0, which the compiler does not know
  const int warp, lane, local, part;  // local: which of the units side by side

  __device__ __forceinline__ SetInput<K>* input() const {
    return reinterpret_cast<SetInput<K>*>(shared) + warp * p.n_chunks * kSets;
  }
  __device__ __forceinline__ float* sums(int turn) const {  // [groups, kGates, kWarps, n_sets, kSetOutputs]
    return reinterpret_cast<float*>(shared + at.sums) + turn * at.turn_floats;
  }

  // Multiplies a group of units, and writes the warp's sums.
  template <int n_sets>
  __device__ __forceinline__ void use_group(Ring& ring, float* to, bool has_unit) const {
    float acc[kGates][n_sets][2] = {};
#pragma unroll 1
    for (int chunk = 0; chunk < p.n_chunks; ++chunk)
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        await(ring.full(), ring.parity);
        __syncwarp();
        // A load from shared memory may wait behind loads from global memory, and an arrival can overtake both. So the
        // arrival depends on the loaded words.
        const auto release = [&](uint32_t words) {
          if (lane == 0) arrive(ring.empty() | (words & zero));
        };
        if (has_unit && chunk * p.parts + part < p.n_steps) {
          const char* const slot = shared + at.ring + ring.place();
          const int step = local * p.parts + part;
          multiply<K, n_sets>(acc[gate], slot + step * kCodeBytes<K>,
                              slot + p.at_once * p.parts * kCodeBytes<K> + step * kScaleBytes<K>,
                              input() + chunk * kSets, lane, table, release);
        } else {
          release(0);
        }
        ring.advance();
      }
    if (!has_unit) return;
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate)
#pragma unroll
      for (int set = 0; set < n_sets; ++set)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          to[((gate * kWarps + warp) * n_sets + set) * kSetOutputs + 32 * r + lane] = acc[gate][set][r];
  }

  // Adds up the sums of the warps, and writes the outputs of a batch of units. row: the lane's row of the tile.
  __device__ __forceinline__ void finish(const Run& run, int first_unit, int n_units, const float* sums,
                                         int row) const {
    const int n_outputs = (run.rows.n + kSetRows - 1) / kSetRows * kSetOutputs;
#pragma unroll 1
    for (int f = static_cast<int>(threadIdx.x); f < n_units * n_outputs; f += kThreads) {
      const int unit = f / n_outputs, of_unit = f - unit * n_outputs, group = unit / p.at_once;
      const int token = of_unit / kSetOutputs * kSetRows + lane % 4;
      const int64_t out = int64_t{run.tile + first_unit + unit} * kTileRows + of_unit / 32 % 2 * 8 + lane / 4;
      const float* from = sums + (group * kGates * kWarps + (unit - group * p.at_once) * p.parts) * n_outputs + of_unit;
      float total[2] = {0, 0};
#pragma unroll 4
      for (int i = 0; i < p.parts; ++i, from += n_outputs) {
        total[0] += from[0];
        if constexpr (kGates == 2) total[1] += from[kWarps * n_outputs];
      }
      const int own_row = __shfl_sync(0xFFFFFFFFu, row, token);
      if (token >= run.rows.n || out >= p.w[0].n_out) continue;
#pragma unroll
      for (int j = 0; j < kGates; ++j)
        total[j] = total[j] * p.w[j].factor +
                   (p.bias[j] != nullptr ? __ldg(p.bias[j] + run.rows.expert * p.w[0].n_out + out) : 0.0f);
      const float value = kGates == 2 ? act_mul(total[0], total[1], p.act) : total[0];
      const int64_t to = own_row * p.y_stride + out;
      if (p.y_f32) {
        static_cast<float*>(p.y)[to] = value;
      } else {
        static_cast<half*>(p.y)[to] = from_float<half>(value);
      }
    }
  }

  __device__ __forceinline__ void run_all(Ring ring, int first, int end) const {
    int turn = 0;
#pragma unroll 1
    for (int at = first; at < end;) {
      const Run run(p, at, end);
      const int row = lane < run.rows.n ? __ldcg(p.order.order + run.rows.first + lane) : 0;
      stage<K>(p, input(), part, row, run.rows.n, lane);
      const int most_units = p.batch * p.at_once, n_sets = run.rows.n > kSetRows ? 2 : 1;
      const int group_floats = kGates * kWarps * n_sets * kSetOutputs;
#pragma unroll 1
      for (int unit = 0; unit < run.n; unit += most_units, turn ^= 1) {
        const int n_units = min(most_units, run.n - unit);
        float* to = sums(turn);
#pragma unroll 1
        for (int i = 0; i < n_units; i += p.at_once, to += group_floats) {
          const bool has_unit = local < min(p.at_once, n_units - i);
          n_sets == 1 ? use_group<1>(ring, to, has_unit) : use_group<2>(ring, to, has_unit);
        }
        asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
        finish(run, unit, n_units, sums(turn), row);
      }
      at += run.n;
    }
  }
};
#endif

template <class K, int kGates>
__global__ void __launch_bounds__(kThreads + kCopyThreads, 1) stream_kernel(const __grid_constant__ Params p) {
#if INGOT_WGMMA
  extern __shared__ __align__(128) char shared[];
  __shared__ __align__(8) uint64_t barriers[2 * kMaxSlots];
  __shared__ uint32_t table[K::kLayout == Layout::kCodebook4 ? 256 : 1];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const Places at = places_of<K, kGates>(p);
  const Ring ring{shared_address(shared) + at.ring, shared_address(barriers), p.n_slots, at.slot_bytes};
  if (thread < p.n_slots) {
    init_barrier(ring.barriers + 8 * thread, 1);
    init_barrier(ring.barriers + 8 * (kMaxSlots + thread), kWarps);
  }
  if (K::kLayout == Layout::kCodebook4 && thread < 256) {
    const auto level = [&](int code) {
      return quant::codebook_entry(p.w[0].codebook_low, p.w[0].codebook_high, code) & 255;
    };
    table[thread] = static_cast<uint32_t>(level(thread & 15) | level(thread >> 4) << 8);
  }
  fence_barriers();
  __syncthreads();
  if (!p.knows_order) wait_for_previous();
  let_next_start();  // not earlier, because the next kernel may read the order before this kernel has ended
  const int64_t n_units = int64_t{__ldcg(p.order.n_tiles)} * p.n_tiles;
  const int first = static_cast<int>(n_units * blockIdx.x / gridDim.x),
            end = static_cast<int>(n_units * (blockIdx.x + 1) / gridDim.x);
  if (warp >= kWarps) {
    shrink_registers<32>();
    if (thread == kThreads) copy_weights<K, kGates>(p, ring, first, end);
    return;
  }
  grow_registers<112>();
  if (p.knows_order) wait_for_previous();
  Block<K, kGates>{p, at, shared, table, ring.base >> 31, warp, lane, warp / p.parts, warp % p.parts}.run_all(
      ring, first, end);
#endif
}

// Sets the fields of Params that follow from the weight's sizes. Returns whether there is room.
template <class K, int kGates>
bool divide(Params& p, int n_in, size_t most_shared) {
  p.n_steps = (n_in + kTileCols - 1) / kTileCols;
  p.n_chunks = (p.n_steps + kWarps - 1) / kWarps;
  p.parts = (p.n_steps + p.n_chunks - 1) / p.n_chunks;
  p.at_once = p.n_chunks > 1 ? 1 : kWarps / p.parts;
  p.batch = 0;
  const size_t group = size_t{4} * kGates * kWarps * kSets * kSetOutputs;
  p.batch = static_cast<int>(std::max(kSumBytes / group, size_t{1}));
  const Places at = places_of<K, kGates>(p);
  const auto room = static_cast<int64_t>(most_shared - kStaticShared) - at.ring;
  p.n_slots = static_cast<int>(std::clamp<int64_t>(room / at.slot_bytes, 0, kMaxSlots));
  return p.n_slots >= kFewestSlots;
}

template <class F>
void with_integers(const PackedWeight& w, F&& f) {
  with_codes(w, [&](auto kind) {
    if constexpr (decltype(kind)::kLayout != Layout::kCodesE4M3) f(kind);
  });
}

}  // namespace

bool can_stream_experts(const PackedWeight& w, bool gated, const DeviceLimits& device) {
  if (!device.has_hopper_code || w.f32 || w.layout == Layout::kDense || w.layout == Layout::kFloat8 || w.n_in % 4 != 0)
    return false;
  bool fits = false;
  with_integers(w, [&](auto kind) {
    using K = decltype(kind);
    Params p{};
    fits = gated ? divide<K, 2>(p, static_cast<int>(w.n_in), device.most_shared)
                 : divide<K, 1>(p, static_cast<int>(w.n_in), device.most_shared);
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
      CHECK((divide<K, kGates>(p, p.n_in, device.most_shared())));
      for (int j = 0; j < kGates; ++j)
        CHECK_EQ(p.w[j].expert_bytes, int64_t{p.n_tiles} * p.n_steps * kCodeBytes<K>);  // no gaps between experts
      const Places at = places_of<K, kGates>(p);
      launch(device, stream_kernel<K, kGates>, dim3(static_cast<unsigned>(device.n_multiprocessors())),
             kThreads + kCopyThreads, static_cast<size_t>(at.ring + p.n_slots * at.slot_bytes), p);
    };
    p.act >= 0 ? start.template operator()<2>() : start.template operator()<1>();
  });
}

}  // namespace ingot::cuda
