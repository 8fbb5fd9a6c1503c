// Attention of prompts on Hopper. A block stays on its multiprocessor and processes several tasks: 64 packed rows for
// each of its two or three warpgroups, and all keys that these rows see, tile by tile from the last to the first. If
// there are fewer tasks than multiprocessors, several tasks share the keys of the same rows (Split).
//
// One warp fetches tiles of keys and values by TMA, 16 tokens of a page at a time. Three or seven warps load the next
// task's queries, and convert keys and values of other types to f16 in place. These warps do not wait for a task's end.
//
// The products are wgmma: scores from shared memory, then weights in registers times values in shared memory. A
// warpgroup starts the scores of a tile together with the output of the previous tile, and computes the softmax while
// the output is in flight. The warpgroups start their products in turns, so that one's softmax overlaps with the
// other's products (FlashAttention-3, arXiv:2407.08608). For heads of 64, 96, 128, 192 and 256 columns, without a cap.
#include <cuda.h>

#include <algorithm>
#include <type_traits>

#include "backend/cuda/attention/attention.cuh"
#include "backend/cuda/attention/cache_map.h"
#include "backend/cuda/cluster/cluster.cuh"
#include "backend/cuda/matmul/wgmma.cuh"
#include "backend/cuda/memory.h"

namespace ingot::cuda {

using namespace attention;

namespace {

constexpr int kGroupRows = 64, kPageRows = 16;  // of a warpgroup; of a copy

// Queries, keys and values have the same layout in shared memory: groups of 8 rows, divided into panels of kColumns
// columns. The 16-byte pieces of a row of a panel are swizzled.
template <int kHeadDim, class K, class V>
struct Shape {
  static constexpr int kDim = kHeadDim;
  using Key = K;
  using Value = V;
  static constexpr int kArrays = std::is_same_v<K, V> ? 1 : 2;  // of the cache
  static constexpr bool kConverts = !std::is_same_v<K, half>, kScaled = kIsScaled<K>;
  static_assert(kArrays == 1 || (kScaled && kIsScaled<V>));
  static constexpr int kGroups = kDim == 64 ? 3 : 2, kRows = kGroups * kGroupRows;
  // Helper warpgroups: one warp fetches, and kHelpers threads load queries and convert.
  static constexpr int kHelpGroups = kConverts && kGroups == 2 ? 2 : 1, kHelpers = 128 * kHelpGroups - 32;
  static constexpr int kThreads = 128 * (kGroups + kHelpGroups);
  // Columns of a product's output. 512 threads start with 128 registers each, too few for a product of 256 columns.
  static constexpr int kAtOnce = kThreads > 384 && kDim > 192 ? 128 : kDim;
  static constexpr int kHelpRegisters = kGroups == 3 ? 32 : kHelpGroups == 1 ? 56 : kDim == 256 ? 40 : 48;
  static constexpr int kRegisters = (65536 / 128 - kHelpGroups * kHelpRegisters) / kGroups / 8 * 8;
  static constexpr int kKeys =  // of a tile
      kDim == 128 && kScaled ? 112 : kDim <= 128 ? 128 : kDim == 192 ? 96 : kConverts ? 64 : 80;
  static constexpr int kStages = kDim == 64 ? 4 : kDim <= 128 ? 3 : 2;
  static constexpr int kColumns = kDim % 64 == 0 ? 64 : 32, kPanels = kDim / kColumns;
  static constexpr int kPanelBytes = 8 * kColumns * 2, kRowGroup = kPanels * kPanelBytes;
  static constexpr int kPieces = kColumns / 8;  // of a row of a panel
  static constexpr int kTileBytes = kKeys * kDim * 2;
  static constexpr int kScaleBytes = kScaled ? scale_groups(kDim) * 2 : 0;  // of a row
  static constexpr int kKeysAt = kRows * kDim * 2, kValuesAt = kKeysAt + kStages * kTileBytes,
                       kScalesAt = kValuesAt + kStages * kTileBytes,  // scales of keys, then of values
                       kBarriers = kScalesAt + 2 * kStages * kKeys * kScaleBytes;
  // Barriers: fetched, ready and free of the stages of keys, then of values; then ready and free of the queries.
  static constexpr int kFetched = 0, kReady = kConverts ? 2 * kStages : 0, kFree = kReady + 2 * kStages,
                       kQueriesReady = kFree + 2 * kStages, kQueriesFree = kQueriesReady + 1,
                       kTaskAt = kBarriers + (kQueriesFree + 2) / 2 * 16;
  static constexpr int kBytes = kTaskAt + 48 + 1024;  // 48 bytes of the task, 1024 for the alignment

  // Bytes of a tile of keys (part = 0) or values (1) in the cache.
  __device__ static constexpr int fetched_bytes(int part) {
    return kKeys * kDim * (part == 0 ? kBits<K> : kBits<V>) / 8;
  }
  // The place of a row's piece, counted in pieces, before the swizzle.
  static __device__ __forceinline__ int place_of(int row, int piece) {
    return ((row / 8 * kPanels + piece / kPieces) * 8 + row % 8) * kPieces + piece % kPieces;
  }
  // The row and the piece at a place.
  static __device__ __forceinline__ int2 row_of(int place) {
    const int of_panel = place / kPieces / 8;
    return {of_panel / kPanels * 8 + place / kPieces % 8, of_panel % kPanels * kPieces + place % kPieces};
  }
  static __device__ __forceinline__ int swizzled(int piece) { return piece ^ (piece >> 3 & (kPieces - 1)); }
};

struct alignas(16) Task {
  int token0, q_len, kv_len;
  int seq, head, row0;
  int first, last;  // tiles; last < first: no more tasks
  int split, n_active, unused[2];

  __device__ int n_rows(const Params& p) const { return q_len * p.group; }
};

// The tasks of this block. The tasks of a sequence are numbered from the longest to the shortest. A round has one task
// for each block, and every second round is assigned in reverse. So all blocks have about the same amount of work.
// Whole warps call next().
template <class S>
class Tasks {
 public:
  __device__ Tasks(const Params& p, int n_seqs) : p_(p), n_seqs_(n_seqs) { count(); }

  // Returns false, and leaves `task` as it is, after the last task.
  __device__ bool next(Task& task) {
    for (Task one; next_of_all(one);) {
      if (one.split >= one.n_active) continue;  // a split without keys
      task = one;
      return true;
    }
    return false;
  }

 private:
  static constexpr unsigned kAll = 0xFFFFFFFFu;

  __device__ bool next_of_all(Task& task) {
    const int in_round = static_cast<int>(round_ % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
    const int number = static_cast<int>(gridDim.x) * round_++ + in_round;
    while (number >= before_ + __shfl_sync(kAll, up_to_, 31)) {
      before_ += __shfl_sync(kAll, up_to_, 31);
      seq0_ += 32;
      if (seq0_ >= n_seqs_) return false;
      count();
    }
    const int lane = __ffs(static_cast<int>(__ballot_sync(kAll, before_ + up_to_ > number))) - 1;
    const int in_seq = number - before_ - __shfl_sync(kAll, up_to_ - n_, lane), heads = p_.kv.n_kv_heads;
    const int seq = seq0_ + lane, token0 = p_.batch.q_start[seq], q_len = p_.batch.q_start[seq + 1] - token0;
    const int kv_len = p_.batch.kv_len[seq], n_rows = q_len * p_.group;
    const int row0 = ((n_rows + S::kRows - 1) / S::kRows - 1 - in_seq / (heads * p_.blocks.n_splits)) * S::kRows;
    const Split<S::kKeys> splits(p_, span_of(p_, kv_len, q_len, row0, min(row0 + S::kRows, n_rows) - 1));
    const int split = in_seq % p_.blocks.n_splits;
    const Span tiles = splits.steps(split);
    task = {token0, q_len,       kv_len,        seq,   in_seq / p_.blocks.n_splits % heads,
            row0,   tiles.begin, tiles.end - 1, split, splits.n_active};
    return true;
  }

  // Counts the tasks of 32 sequences from seq0_ on, one per lane.
  __device__ void count() {
    const int lane = static_cast<int>(threadIdx.x) % 32, seq = seq0_ + lane;
    const int n_rows = seq < n_seqs_ ? (p_.batch.q_start[seq + 1] - p_.batch.q_start[seq]) * p_.group : 0;
    n_ = takes(p_, n_rows) ? (n_rows + S::kRows - 1) / S::kRows * p_.kv.n_kv_heads * p_.blocks.n_splits : 0;
    up_to_ = n_;
#pragma unroll
    for (int i = 1; i < 32; i *= 2) {
      const int other = __shfl_up_sync(kAll, up_to_, i);
      if (lane >= i) up_to_ += other;
    }
  }

  const Params& p_;
  int n_seqs_, round_ = 0, seq0_ = 0, before_ = 0;  // tasks of sequences before seq0_
  int n_, up_to_;                                   // tasks of this lane's sequence; of the sequences from seq0_ to it
};

// A place in the ring of stages.
template <class S>
struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == S::kStages) stage = 0, phase ^= 1;
  }
};

template <class S>
__device__ __forceinline__ uint32_t barrier_of(uint32_t base, int kind, int part = 0, int stage = 0) {
  return base + S::kBarriers + 8 * (kind + part * S::kStages + stage);
}
template <class S>
__device__ __forceinline__ uint32_t tile_at(uint32_t base, int part, int stage) {
  return base + (part == 0 ? S::kKeysAt : S::kValuesAt) + stage * S::kTileBytes;
}
template <class S>
__device__ __forceinline__ uint32_t scales_at(uint32_t base, int part, int stage) {
  return base + S::kScalesAt + (part * S::kStages + stage) * (S::kKeys * S::kScaleBytes);
}

// The cache's arrays for TMA.
template <class S>
struct Maps {
  CUtensorMap of[S::kArrays];
};

// For the warp that fetches.
template <class S>
__device__ void fetch(const Maps<S>& maps, const Params& p, Tasks<S> tasks, uint32_t base) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Ring<S> ring;
  for (Task task; tasks.next(task);) {
    const int32_t* table = p.batch.block_table + int64_t{task.seq} * *p.batch.max_blocks;
    const auto first_key = [&](int tile) {
      const int key = tile * S::kKeys + kPageRows * min(lane, S::kKeys / kPageRows - 1);
      return key < task.kv_len ? key : 0;
    };
    int next_block = table[first_key(task.last) / p.kv.block_size];
    for (int tile = task.last; tile >= task.first; --tile, ring.advance()) {
      constexpr int kParts = 2 / S::kArrays;  // of an array
      const int64_t page = (int64_t{p.layer} * p.kv.n_blocks + next_block) * kParts;
      const int in_page = first_key(tile) % p.kv.block_size;
      if (tile > task.first) next_block = table[first_key(tile - 1) / p.kv.block_size];
      for (int part = 0; part < 2; ++part) {  // keys, values
        const int array = part / kParts, bytes = S::fetched_bytes(part);
        const uint32_t fetched = barrier_of<S>(base, S::kFetched, part, ring.stage);
        await(barrier_of<S>(base, S::kFree, part, ring.stage), ring.phase ^ 1);
        if (lane == 0) expect_bytes(fetched, bytes + S::kKeys * S::kScaleBytes);
        __syncwarp();
        const int64_t row = ((page + part % kParts) * p.kv.n_kv_heads + task.head) * p.kv.block_size + in_page;
        const uint32_t to = tile_at<S>(base, part, ring.stage) + S::kTileBytes - bytes;
        if (lane < S::kKeys / kPageRows) {
          fetch_box(to + lane * (bytes / S::kKeys * kPageRows), maps.of[array], 0, static_cast<int>(row / 8), fetched);
          if constexpr (S::kScaled)
            cluster::fetch(scales_at<S>(base, part, ring.stage) + lane * (kPageRows * S::kScaleBytes),
                           cached_scales(rows_of<typename S::Key, typename S::Value>(p.kv, part), row, S::kDim),
                           kPageRows * S::kScaleBytes, fetched);
        }
      }
    }
  }
}

// Loads a task's queries to shared memory; zeros past the last row.
template <class S>
__device__ void load_queries(const Params& p, const Task& task, uint32_t base, int thread) {
  constexpr int kRowPieces = S::kDim / 8;
  for (int i = thread; i < S::kRows * kRowPieces; i += S::kHelpers) {
    const int in_task = i / kRowPieces, piece = i % kRowPieces, row = task.row0 + in_task;
    const bool in = row < task.n_rows(p);
    const int head = task.head * p.group + row % p.group;
    const half* from = p.q + (task.token0 + row / p.group) * p.q_stride + head * S::kDim;
    copy8(base + 16 * S::swizzled(S::place_of(in_task, piece)), in ? from + 8 * piece : p.q, in);
  }
  commit_copies();
  asm volatile("cp.async.wait_group 0;" ::: "memory");
}

// Clears the values past the last key, because they may be NaN, and 0 * NaN is NaN. All n_threads call this together.
template <class S>
__device__ void clear_rows(char* values, int first_row, int thread, int n_threads) {
  constexpr int kRowPieces = S::kDim / 8;
  for (int i = thread; i < (S::kKeys - first_row) * kRowPieces; i += n_threads) {
    const int row = first_row + i / kRowPieces, piece = i % kRowPieces;
    reinterpret_cast<uint4*>(values)[S::place_of(row, piece)] = uint4{};  // the whole row, so no swizzle
  }
}

template <class S>
__device__ __forceinline__ void helpers_barrier() {
  asm volatile("bar.sync 7, %0;" ::"n"(S::kHelpers) : "memory");
}

// Converts a tile of elements E to f16 in place. Elements of two bytes keep their place. Smaller elements start at the
// end of the tile, in the order of the conversion. So a write overwrites only pieces that all threads have read.
template <class S, class E>
__device__ void convert_tile(char* tile, const half* scales /* [keys, scale_groups] */, int thread) {
  using Raw = std::conditional_t<kBits<E> == 16, uint4, std::conditional_t<kBits<E> == 8, uint2, uint32_t>>;
  constexpr int kPieces = S::kTileBytes / 16, kMost = S::kHelpRegisters < 48 ? 4 : 8,
                kAtOnce = kBits<E> == 16 ? kMost / 2 : kMost;
  const Raw* from = reinterpret_cast<const Raw*>(tile + S::kTileBytes - S::kTileBytes * kBits<E> / 16);
  uint4* to = reinterpret_cast<uint4*>(tile);
  for (int first = thread; first < kPieces + thread; first += kAtOnce * S::kHelpers) {
    Raw raw[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (first + j * S::kHelpers < kPieces) raw[j] = from[first + j * S::kHelpers];
    if constexpr (kBits<E> < 16) helpers_barrier<S>();
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = first + j * S::kHelpers;
      if (i >= kPieces) break;
      uint4 v = load8(reinterpret_cast<const E*>(&raw[j]));
      if constexpr (S::kScaled) {
        const auto [row, piece] = S::row_of(i);
        v = times(v, scales[row * scale_groups(S::kDim) + piece * 8 / kScaleGroup]);
      }
      to[kBits<E> == 16 ? i : S::swizzled(i)] = v;
    }
  }
}

// For the warps that load queries and convert.
template <class S>
__device__ void help(const Params& p, Tasks<S> tasks, char* shared) {
  const uint32_t base = shared_address(shared);
  const int thread = static_cast<int>(threadIdx.x) - 32;
  const auto done = [&](uint32_t barrier) {
    fence_shared();
    __syncwarp();
    if (thread % 32 == 0) arrive(barrier);
  };
  uint32_t queries_phase = 1;
  Ring<S> ring;
  for (bool more = true; more; queries_phase ^= 1) {
    Task task{.first = 0, .last = -1};
    more = tasks.next(task);
    await(barrier_of<S>(base, S::kQueriesFree), queries_phase);
    if (thread == 0) *reinterpret_cast<Task*>(shared + S::kTaskAt) = task;
    if (more) load_queries<S>(p, task, base, thread);
    done(barrier_of<S>(base, S::kQueriesReady));
    if constexpr (S::kConverts) {
      for (int tile = task.last; tile >= task.first; --tile, ring.advance()) {
        for (int part = 0; part < 2; ++part) {
          await(barrier_of<S>(base, S::kFetched, part, ring.stage), ring.phase);
          char* to = shared + tile_at<S>(0, part, ring.stage);
          const auto* scales = reinterpret_cast<const half*>(shared + scales_at<S>(0, part, ring.stage));
          if (S::kArrays == 1 || part == 0)
            convert_tile<S, typename S::Key>(to, scales, thread);
          else
            convert_tile<S, typename S::Value>(to, scales, thread);
          if (part == 1 && (tile + 1) * S::kKeys > task.kv_len) {
            helpers_barrier<S>();
            clear_rows<S>(to, task.kv_len - tile * S::kKeys, thread, S::kHelpers);
          }
          done(barrier_of<S>(base, S::kReady, part, ring.stage));
        }
      }
    }
  }
}

template <class S>
struct Rows {
  Span span[2];
  Span common;  // keys that all rows of the warpgroup see
  float row_max[2] = {kNone, kNone}, sum[2] = {0, 0};
  float rescale[2];               // factor for sums from before the last softmax_update()
  float out[S::kDim / 2];         // for each 8 columns: row g, columns 2t and 2t + 1, then row g + 8
  float scores[S::kKeys / 2];     // the same for each 8 keys
  uint32_t weights[S::kKeys / 4];  // of the last tile, as halves: fragments of 16 keys

  __device__ __forceinline__ void start_scores(uint64_t queries, uint64_t keys) {
    fence_products(scores);
#pragma unroll
    for (int i = 0; i < S::kDim / 16; ++i) {
      constexpr int kSteps = S::kColumns / 16;  // of a panel
      const int at = i / kSteps * S::kPanelBytes + i % kSteps * 32;
      wgmma_scores<S::kKeys>(scores, queries + (at >> 4), keys + (at >> 4), i > 0);
    }
    commit_products();
  }
  __device__ __forceinline__ void start_output(uint64_t values) {
    fence_products(out);
#pragma unroll
    for (int i = 0; i < S::kKeys / 16; ++i)
#pragma unroll
      for (int column = 0; column < S::kDim; column += S::kAtOnce)
        wgmma_weights<S::kAtOnce>(reinterpret_cast<float(&)[S::kAtOnce / 2]>(out[column / 2]), &weights[4 * i],
                                  values + (i * 2 * S::kRowGroup + column / S::kColumns * S::kPanelBytes >> 4));
    commit_products();
  }

  // Turns scores into weights, as floats. Updates most, sum and rescale.
  __device__ __forceinline__ void softmax_update(const Params& p, int key0, int t) {
    if (key0 < common.begin || key0 + S::kKeys > common.end) {
#pragma unroll
      for (int i = 0; i < S::kKeys / 2; ++i) {
        const int key = key0 + i / 4 * 8 + 2 * t + i % 2;
        const Span& seen = span[i / 2 % 2];
        if (key < seen.begin || key >= seen.end) scores[i] = kNone;
      }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = row_max[h];
#pragma unroll
      for (int i = 0; i < S::kKeys / 4; ++i) top = fmaxf(top, scores[i / 2 * 4 + 2 * h + i % 2]);
      top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, 2));
      // Rescales only if the maximum grew by a factor above 2^8, because weights up to 2^8 do no harm.
      const float before = row_max[h];
      if ((top - before) * p.scale > 8.0f) row_max[h] = top;
      const float base = row_max[h] == kNone ? 0.0f : row_max[h] * p.scale;
      rescale[h] = fast_exp2(before * p.scale - base);
      float total = 0;
#pragma unroll
      for (int i = 0; i < S::kKeys / 4; ++i) {
        float& v = scores[i / 2 * 4 + 2 * h + i % 2];
        v = fast_exp2(fmaf(v, p.scale, -base));
        total += v;
      }
      sum[h] = sum[h] * rescale[h] + total;
    }
#pragma unroll
    for (float& v : scores) asm volatile("" : "+f"(v)::"memory");  // keeps the softmax before the next wait
  }
  __device__ __forceinline__ void take_weights() {
#pragma unroll
    for (int i = 0; i < S::kKeys / 4; ++i) weights[i] = bits_of(__floats2half2_rn(scores[2 * i], scores[2 * i + 1]));
  }
  __device__ __forceinline__ void rescale_out() {
    if (!__any_sync(0xFFFFFFFFu, rescale[0] != 1.0f || rescale[1] != 1.0f)) return;
#pragma unroll
    for (int i = 0; i < S::kDim / 2; ++i) out[i] *= rescale[i / 2 % 2];
  }
};

template <class S>
__device__ __forceinline__ void write_rows(const Rows<S>& rows, const Params& p, const Task& task, int row0, int t) {
  const Part part{task.seq, task.head, task.row0 / S::kRows, task.split, task.n_active, task.token0};
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float total = rows.sum[h];
    total += __shfl_xor_sync(0xFFFFFFFFu, total, 1);
    total += __shfl_xor_sync(0xFFFFFFFFu, total, 2);
    const int row = row0 + 8 * h;
    if (row >= task.n_rows(p)) continue;
    const RowEnd to(p, part, row, rows.row_max[h] * p.scale, total, t);
#pragma unroll
    for (int i = 0; i < S::kDim / 8; ++i)
      to.store(p, 8 * i + 2 * t, rows.out[4 * i + 2 * h], rows.out[4 * i + 2 * h + 1]);
  }
}

// The warpgroups start their products in turns. give_turn() starts the turn of the next warpgroup.
template <class S>
__device__ __forceinline__ void take_turn(int warpgroup) {
  asm volatile("bar.sync %0, 256;" ::"r"(4 + warpgroup) : "memory");
}
template <class S>
__device__ __forceinline__ void give_turn(int warpgroup) {
  asm volatile("bar.arrive %0, 256;" ::"r"(4 + (warpgroup + 1) % S::kGroups) : "memory");
}

// Computes a warpgroup's rows of a task, over all tiles.
template <class S>
__device__ __forceinline__ void attend_rows(const Params& p, const Task& task, char* shared, Ring<S>& ring,
                                            int warpgroup) {
  const uint32_t base = shared_address(shared);
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32 % 4, t = lane % 4;
  const int group_row = task.row0 + kGroupRows * warpgroup, row0 = group_row + 16 * warp + lane / 4;
  const auto span_at = [&](int row) { return span_of(p, task.kv_len, task.q_len, min(row, task.n_rows(p) - 1)); };
  Rows<S> rows;
  rows.span[0] = span_at(row0), rows.span[1] = span_at(row0 + 8);
  rows.common = {span_at(group_row + kGroupRows - 1).begin, span_at(group_row).end};
#pragma unroll
  for (float& v : rows.out) v = 0;
  const uint64_t queries = matrix<S::kColumns>(base + warpgroup * (kGroupRows / 8 * S::kRowGroup), 16, S::kRowGroup);
  const auto matrix_of = [&](int part, int stage) {
    return matrix<S::kColumns>(tile_at<S>(base, part, stage), S::kPanelBytes, S::kRowGroup);
  };
  const bool signals = threadIdx.x % 128 == 0;
  const auto release_keys = [&](int stage, int tile) {
    if (signals) arrive(barrier_of<S>(base, S::kFree, 0, stage));
    if (lane == 0 && tile == task.first) arrive(barrier_of<S>(base, S::kQueriesFree));
  };

  await(barrier_of<S>(base, S::kReady, 0, ring.stage), ring.phase);
  take_turn<S>(warpgroup);
  rows.start_scores(queries, matrix_of(0, ring.stage));
  give_turn<S>(warpgroup);
  await_products<0>(rows.scores);
  release_keys(ring.stage, task.last);
  rows.softmax_update(p, task.last * S::kKeys, t);
  rows.take_weights();
  await(barrier_of<S>(base, S::kReady, 1, ring.stage), ring.phase);
  if (!S::kConverts && (task.last + 1) * S::kKeys > task.kv_len) {
    clear_rows<S>(shared + tile_at<S>(0, 1, ring.stage), task.kv_len - task.last * S::kKeys,
                  static_cast<int>(threadIdx.x) % 128, 128);
    fence_shared();
    warpgroup_barrier(warpgroup);
  }
  for (int tile = task.last - 1; tile >= task.first; --tile) {
    const Ring<S> before = ring;
    ring.advance();
    await(barrier_of<S>(base, S::kReady, 0, ring.stage), ring.phase);
    take_turn<S>(warpgroup);
    rows.start_scores(queries, matrix_of(0, ring.stage));
    rows.start_output(matrix_of(1, before.stage));
    give_turn<S>(warpgroup);
    await_products<1>(rows.scores);
    release_keys(ring.stage, tile);
    rows.softmax_update(p, tile * S::kKeys, t);
    // The loop of this await keeps the compiler from moving the softmax behind the end of the products.
    await(barrier_of<S>(base, S::kReady, 1, ring.stage), ring.phase);
    await_products<0>(rows.out);
    if (signals) arrive(barrier_of<S>(base, S::kFree, 1, before.stage));
    rows.rescale_out();
    rows.take_weights();
  }
  rows.start_output(matrix_of(1, ring.stage));
  await_products<0>(rows.out);
  if (signals) arrive(barrier_of<S>(base, S::kFree, 1, ring.stage));
  ring.advance();
  write_rows(rows, p, task, row0, t);
}

// Lane 0 of each warp reads the task, because lane 0 later frees its place.
__device__ __forceinline__ Task read_task(const char* at) {
  int4 parts[3]{};
  if (threadIdx.x % 32 == 0)
    for (int i = 0; i < 3; ++i) parts[i] = reinterpret_cast<const int4*>(at)[i];
  const auto all = [](int v) { return __shfl_sync(0xFFFFFFFFu, v, 0); };
  return {all(parts[0].x), all(parts[0].y), all(parts[0].z), all(parts[0].w), all(parts[1].x),
          all(parts[1].y), all(parts[1].z), all(parts[1].w), all(parts[2].x), all(parts[2].y)};
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    hopper_kernel(const __grid_constant__ Maps<S> maps, const __grid_constant__ Params p, int n_seqs) {
#if INGOT_WGMMA
  extern __shared__ char unaligned[];
  char* shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const uint32_t base = shared_address(shared);
  const int warpgroup = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 128, 0) - S::kHelpGroups;
  if (threadIdx.x == 0) {
    for (int i = 0; i <= S::kQueriesFree; ++i) {
      const bool freed = i >= S::kFree && i < S::kQueriesReady;
      const bool helped = i == S::kQueriesReady || (i >= S::kReady && i < S::kFree && S::kConverts);
      init_barrier(barrier_of<S>(base, i), i == S::kQueriesFree ? 4 * S::kGroups
                                           : freed              ? S::kGroups
                                           : helped             ? S::kHelpers / 32
                                                                : 1);
    }
    fence_barriers();
  }
  start_dependent();
  __syncthreads();
  if (warpgroup < 0) {
    shrink_registers<S::kHelpRegisters>();
    const Tasks<S> tasks(p, n_seqs);
    threadIdx.x < 32 ? fetch<S>(maps, p, tasks, base) : help<S>(p, tasks, shared);
  } else {
    grow_registers<S::kRegisters>();
    if (warpgroup == S::kGroups - 1) give_turn<S>(warpgroup);
    Ring<S> ring;
    for (uint32_t phase = 0;; phase ^= 1) {
      await(barrier_of<S>(base, S::kQueriesReady), phase);
      const Task task = read_task(shared + S::kTaskAt);
      if (task.last < task.first) break;
      attend_rows<S>(p, task, shared, ring, warpgroup);
    }
  }
#endif
}

// An array of the cache. A copy fetches kPageRows rows of one KV head, in panels as in Shape.
template <class S, class E>
CUtensorMap map_of(const DeviceKv& kv, void* data) {
  constexpr int kRowBytes = S::kDim * kBits<E> / 8;
  static_assert(kPageRows == kMapRows);
  return cache_map(data, kv.n_rows(), kRowBytes, kRowBytes / S::kPanels, S::kPanels, kBits<E> > 8);
}

template <class S>
Maps<S> maps_of(const DeviceKv& kv) {
  Maps<S> maps{map_of<S, typename S::Key>(kv, kv.data)};
  if constexpr (S::kArrays == 2) maps.of[1] = map_of<S, typename S::Value>(kv, kv.values.data);
  return maps;
}

template <int kDim>
void run(const Params& p, const AttentionPlan& plan, Device& device) {
  with_cached_half(p.kv, [&](auto* k, auto* v) {
    using S = Shape<kDim, std::remove_pointer_t<decltype(k)>, std::remove_pointer_t<decltype(v)>>;
    const int64_t n_tasks =
        int64_t{plan.n_seqs} * p.kv.n_kv_heads * p.blocks.n_row_blocks * p.blocks.n_splits;  // at most
    const int n_at_once = plan.n_prompt_blocks > 0 ? plan.n_prompt_blocks : device.n_multiprocessors();
    const dim3 grid(static_cast<unsigned>(std::min<int64_t>(n_tasks, n_at_once)));
    launch(device, hopper_kernel<S>, grid, S::kThreads, S::kBytes, maps_of<S>(p.kv), p, plan.n_seqs);
  });
}

}  // namespace

int hopper_block_rows(const DeviceKv& kv, const AttentionArgs& a, const DeviceLimits& device) {
  const int dim = a.head_dim;
  const bool known = !kv.values_are_keys && (dim == 64 || dim == 96 || dim == 128 || dim == 192 || dim == 256);
  const bool fits =
      device.has_hopper_code && known && a.softcap == 0 && dtype_bytes(kv.dtype) <= 2 && kv.n_rows() / 8 <= INT32_MAX;
  return !fits ? 0 : dim == 64 ? Shape<64, half, half>::kRows : Shape<128, half, half>::kRows;
}

void attend_hopper(const Params& p, const AttentionPlan& plan, Device& device) {
  switch (p.kv.head_dim) {
    case 64: return run<64>(p, plan, device);
    case 96: return run<96>(p, plan, device);
    case 128: return run<128>(p, plan, device);
    case 192: return run<192>(p, plan, device);
    case 256: return run<256>(p, plan, device);
  }
}

}  // namespace ingot::cuda
