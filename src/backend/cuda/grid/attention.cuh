// Attention of a layer. A task is a row, a KV head and a part (split) of the keys from earlier steps. The warps of a
// block process 16 keys at a time. The last split also handles the keys and values of this step: those of the row,
// which it writes to the cache, and those of the sequence's rows before. When all splits of a head are complete, each
// of their blocks merges a share of the columns.
//
// Keys and values come by TMA, because other copies would delay the loads of the queries behind them.
#pragma once
#include "backend/cuda/grid/products.cuh"

namespace ingot::cuda::grid {

// Elements of the KV cache.
struct CacheHalf {
  uint16_t bits;
};
struct CacheBfloat {
  uint16_t bits;
};
struct CacheFloat8 {  // E4M3
  uint8_t bits;
};

// Converts a word with two elements to halves.
__device__ __forceinline__ uint32_t halves_of(const CacheHalf*, uint32_t v) { return v; }
__device__ __forceinline__ uint32_t halves_of(const CacheBfloat*, uint32_t v) {
  return pair_of(__uint_as_float(v << 16), __uint_as_float(v & 0xFFFF0000u));
}
// Rounds v to an element. value: out, the value of the element.
__device__ __forceinline__ CacheHalf rounded(const CacheHalf*, half& value, float v) {
  value = from_float<half>(v);
  return {__half_as_ushort(value)};
}
__device__ __forceinline__ CacheBfloat rounded(const CacheBfloat*, half& value, float v) {
  CacheBfloat to;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(v));
  value = from_float<half>(__uint_as_float(uint32_t{to.bits} << 16));
  return to;
}
__device__ __forceinline__ CacheFloat8 rounded(const CacheFloat8*, half& value, float v) {
  uint16_t two;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %1;" : "=h"(two) : "f"(v));
  value = half2_of(halves_of_float8(two).x).x;
  return {static_cast<uint8_t>(two)};
}

__device__ __forceinline__ void store_zeros(uint32_t address /* of 16 bytes of shared memory */) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(address), "r"(0) : "memory");
}

// Shared memory of a task, in place of the activations.
struct TaskMemory {
  float* sums;    // [kWarps, entry_floats], then of the step's keys: [group, dim], in the order of column_of()
  half* rows;     // [group + 2 max_rows, dim]: queries, then a key and a value of each row of the step
  float2* stats;  // [kWarps + 1, group]: maximum, total

  __device__ TaskMemory(char* at, int dim, int group, int max_rows, int entry)
      : sums(reinterpret_cast<float*>(at)),
        rows(reinterpret_cast<half*>(sums + kWarps * entry + group * dim)),
        stats(reinterpret_cast<float2*>(rows + (group + 2 * max_rows) * dim)) {}
};

// A block's task, the same in all layers. The task is in shared memory, because all warps would have to keep it in
// registers.
template <class C>
struct Task {
  int row, kv_head, split, n_splits, position;
  int first_row;                        // of the step's rows that the row attends to: [first_row, row]
  int n_cached;                         // keys of the sequence before this step
  int first_key, n_active, first, end;  // steps [first, end) of this task; steps count from key 0
  int own_block;
  const int32_t* table;
  bool runs;

  __device__ void set(const Params& p) {
    constexpr Shape s = C::kShape;
    const int window = s.window, n_rows = s.has_rows() ? p.n_rows : 1, block = static_cast<int>(blockIdx.x);
    n_splits = s.n_splits(n_rows), split = block % n_splits;
    const int pair = block / n_splits;  // of a row and a KV head
    runs = pair < n_rows * s.n_kv_heads;
    row = runs && s.has_rows() ? pair / s.n_kv_heads : 0, kv_head = pair % s.n_kv_heads;
    position = p.positions[row];
    const int seq = s.has_rows() ? p.token_seq[row] : 0;
    first_row = s.has_rows() ? p.q_start[seq] : 0;
    n_cached = position - (row - first_row);
    if (window > 0) first_row = max(first_row, row + 1 - window);
    table = p.block_table + seq * (s.has_rows() ? int64_t{*p.max_blocks} : 0);
    first_key = window > 0 ? max(0, position + 1 - window) : 0;
    const int first_step = first_key / kStepKeys, all = (n_cached + kStepKeys - 1) / kStepKeys - first_step;
    n_active = max(1, min(n_splits, (all + kWarps - 1) / kWarps));
    const int each = (all + n_active - 1) / n_active, begin = min(split * each, all);
    first = first_step + begin, end = first_step + min(begin + each, all);
    runs = runs && split < n_active;
    own_block = table[position / s.kv_block];
  }
  // Copies the angles of the row to shared memory.
  __device__ __forceinline__ void copy_angles(const Block<C>& b) const {
    for (int i = static_cast<int>(threadIdx.x); i < C::kShape.rot_dim; i += kThreads)
      b.angles[i] = b.p.angles[row * b.p.angle_stride + i];
  }
  __device__ __forceinline__ bool has_own() const { return split == n_active - 1; }
  __device__ __forceinline__ int n_own() const { return C::kShape.has_rows() ? row + 1 - first_row : 1; }
  // Entries of the block's warps, without that of the step's keys.
  __device__ __forceinline__ int n_entries() const { return min(end - first, kWarps); }
  // The block of the KV cache of a step; 0 unless the step is one of this task.
  __device__ __forceinline__ int block_of(int step) const {
    return runs && step < end ? table[step * kStepKeys / C::kShape.kv_block] : 0;
  }
};

// What a warp keeps for all layers.
struct WarpTask {
  int first_block;      // of the KV cache, of the warp's first step
  uint32_t parity = 0;  // of the barriers of the warp's copies
};

template <class C, class K>
struct Attention {
  static constexpr Shape kShape = C::kShape;
  static constexpr int kDim = kShape.head_dim, kGroup = kShape.group(), kSplits = kShape.n_splits(),
                       kMaxOwn = kShape.max_rows;
  static constexpr int kPairs = kDim / 64;
  static constexpr bool kIsByte = sizeof(K) == 1;
  static constexpr int kEntry = entry_floats(kShape);

  const Block<C>& b;
  const Layer& layer;
  const Task<C>& t;
  WarpTask& of_warp;
  const int warp, lane;
  const TaskMemory memory;

  __device__ Attention(const Block<C>& block, const Layer& layer_of, const Task<C>& task, WarpTask& warp_task)
      : b(block),
        layer(layer_of),
        t(task),
        of_warp(warp_task),
        warp(recomputed(block.warp)),
        lane(recomputed(block.lane)),
        memory(block.shared + Block<C>::kAt.input, kDim, kGroup, kMaxOwn, kEntry) {}

  // The number of the first group of 8 rows of a block of the cache, of keys (which = 0) or values.
  __device__ __forceinline__ int rows_of(int block, int which) const {
    const int64_t page = ((layer.kv_layer * b.p.kv_blocks + block) * 2 + which) * kShape.n_kv_heads + t.kv_head;
    return static_cast<int>(page * (kShape.kv_block / 8));
  }

  // The place of a column of a query or of the own key: in each 32 columns, the order in which lanes have them as
  // operands of two products.
  static __device__ __forceinline__ int query_place(int column) {
    const int lane = kIsByte ? column % 16 / 4 : column % 8 / 2;
    const int pair = kIsByte ? column % 4 / 2 * 2 + column % 32 / 16 : column % 16 / 8 * 2 + column % 32 / 16;
    return column / 32 * 32 + lane * 8 + pair * 2 + column % 2;
  }
  // The column of a place in the sums. A lane writes four places at once, and its neighbours write the next ones.
  static __device__ __forceinline__ int column_of(int place) {
    const int g = place / 4 % 8, of_lane = place / 32 * 4 + place % 4, high = of_lane % 2;
    return of_lane / 2 * 16 + (kIsByte ? 2 * g + high : g + 8 * high);
  }

  // Norm and rope of one head by a warp: query head `which` of the group, or behind the queries, the key and the value
  // of each row from first_row on.
  __device__ __forceinline__ void finish_head(int which) const {
    const Params& p = b.p;
    constexpr Shape s = kShape;
    const int n_cols = (s.n_heads + 2 * s.n_kv_heads) * kDim;
    const int own = which - kGroup, row = own < 0 ? t.row : t.row + 1 - t.n_own() + own / 2;
    const bool is_key = own >= 0 && own % 2 == 0, is_value = own >= 0 && own % 2 == 1;
    const int head = is_value ? s.n_heads + s.n_kv_heads + t.kv_head
                     : is_key ? s.n_heads + t.kv_head
                              : t.kv_head * kGroup + which;
    const float* from = p.heads + row * plan_of(kShape, kQkv).n_planes * n_cols + head * kDim;
    const float* norm = is_value   ? nullptr
                        : is_key   ? (s.k_norm ? layer.k_norm : nullptr)
                        : s.q_norm ? layer.q_norm
                                   : nullptr;
    const int half_rot = s.rot_dim / 2;
    float v[kPairs][2], squares = 0;
    int at[kPairs][2];
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = lane + 32 * j;
      const bool split_pair = s.half_split && i < half_rot;
      at[j][0] = split_pair ? i : 2 * i, at[j][1] = split_pair ? i + half_rot : 2 * i + 1;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        v[j][e] = 0;
        for (int plane = 0; plane < plan_of(kShape, kQkv).n_planes; ++plane)
          v[j][e] += __ldcg(from + plane * n_cols + at[j][e]);
        squares += v[j][e] * v[j][e];
      }
    }
    const float inverse = norm == nullptr ? 1.0f : rsqrtf(warp_sum(squares) / kDim + p.head_eps);
    half* to = memory.rows + which * kDim;
    const float* angles = b.angles;
    if (kShape.has_rows() && row != t.row) angles = p.angles + row * p.angle_stride;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = lane + 32 * j;
      float first = v[j][0], second = v[j][1];
      if (norm != nullptr) first *= inverse * norm[at[j][0]], second *= inverse * norm[at[j][1]];
      if (!is_value && i < half_rot) {
        const float cosine = angles[i], sine = angles[half_rot + i], u = first;
        first = u * cosine - second * sine;
        second = second * cosine + u * sine;
      }
      half low = from_float<half>(first), high = from_float<half>(second);
      if (own >= 0 && t.has_own()) {
        const K low_element = rounded(static_cast<const K*>(nullptr), low, first),
                high_element = rounded(static_cast<const K*>(nullptr), high, second);
        if (row == t.row) {
          K* cache = static_cast<K*>(b.p.kv) +
                     (int64_t{8} * rows_of(t.own_block, is_value) + t.position % kShape.kv_block) * kDim;
          cache[at[j][0]] = low_element, cache[at[j][1]] = high_element;
        }
      }
      to[is_value ? at[j][0] : query_place(at[j][0])] = low, to[is_value ? at[j][1] : query_place(at[j][1])] = high;
    }
  }

  // The running sums of the queries of a group, up to 8. Lane g, t (lane 4g + t) has the weights of query g for keys 2t
  // and 2t + 1 of 8, and sums of queries 2t and 2t + 1.
  struct Running {
    float out[kDim / 16][4];  // of two columns of each 16 (column_of()), each of both queries
    float row_max, total;     // of query g; total: of the lane's keys
  };

  // A panel is up to 128 bytes of the rows of 16 keys or values. A step has kPanels panels of keys, then of values. A
  // warp copies kAtOnce panels at a time to one of two slots. TMA swizzles the 16-byte pieces of a row.
  static constexpr int kPanelBytes = panel_bytes(kDim * sizeof(K)), kPanels = kDim * sizeof(K) / kPanelBytes;
  static constexpr int kColumns = kPanelBytes / sizeof(K);                                // of a panel
  static constexpr int kAtOnce = kShape.panels_at_once, kCopies = 2 * kPanels / kAtOnce;  // of a step
  static constexpr int kCopyBytes = kAtOnce * kStepKeys * kPanelBytes;
  static constexpr int kWords = 2 * sizeof(K);  // of a lane, for 32 columns of keys or 16 columns of values
  static_assert(kPanels % kAtOnce == 0 && kPanelRoom >= kStepKeys * kPanelBytes);

  __device__ __forceinline__ uint32_t slot_of(int copy) const {
    return shared_address(memory.sums + warp * kEntry) + copy % 2 * (kAtOnce * kPanelRoom);
  }
  __device__ __forceinline__ uint32_t barrier_of(int copy) const { return b.kv_barriers + 8 * (2 * warp + copy % 2); }
  // Begins a copy of the step whose first group of keys is `keys`, counted as in rows_of().
  __device__ __forceinline__ void begin_copy(int copy, int keys) const {
    if (lane != 0) return;
    constexpr int kToValues = kShape.n_kv_heads * kShape.kv_block / 8;
    expect_bytes(barrier_of(copy), kCopyBytes);
    fetch_box(slot_of(copy), b.p.kv_map, copy % (kCopies / 2) * kAtOnce, copy < kCopies / 2 ? keys : keys + kToValues,
              barrier_of(copy));
  }
  __device__ __forceinline__ void await_copy(int copy) const {
    await(barrier_of(copy), of_warp.parity ^ (copy / 2 & 1));
  }
  // The address of 16 bytes of a row of a copy's first panel. XOR with 16 i gives piece (i ^ piece).
  static constexpr int kNextPanel = 8 * kPanelBytes, kNext8Rows = kAtOnce * kNextPanel;
  __device__ __forceinline__ uint32_t piece_of(int copy, int row, int piece) const {
    const int swizzle = kPanelBytes == 128 ? row % 8 : row / 2 % 4;
    return slot_of(copy) + row / 8 * kNext8Rows + row % 8 * kPanelBytes + (piece ^ swizzle) * 16;
  }

  // Both operands of product i of a lane's words of keys.
  static __device__ __forceinline__ uint2 operands(const uint32_t (&words)[kWords], int i) {
    if constexpr (kIsByte) {
      return halves_of_float8(words[i]);
    } else {
      const auto halves = [](uint32_t word) { return halves_of(static_cast<const K*>(nullptr), word); };
      return {halves(words[2 * i]), halves(words[2 * i + 1])};
    }
  }

  // Adds products of a panel's columns to the scores of keys 2t and 2t + 1 of each 8. The queries are in shared memory
  // in the order of the tensor core's registers (query_place()), so one load yields the queries of two products, in the
  // upper and in the lower rows.
  struct Scores {
    float upper[2][4], lower[2][4];  // of each 8 keys; used are the first two of `upper` and the last two of `lower`
  };
  __device__ __forceinline__ void add_scores(Scores& scores, int copy, int panel) const {
    const int first_column = (copy * kAtOnce + panel) * kColumns;
    const uint32_t queries =
        shared_address(memory.rows + min(lane / 4, kGroup - 1) * kDim + first_column + lane % 4 * 8);
    const uint32_t from = piece_of(copy, lane % 8, lane / 8 % kWords) + panel * kNextPanel;
#pragma unroll
    for (int i = 0; i < kColumns / 32; ++i) {
      const uint4 q = load_again(queries + 64 * i);
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        uint32_t words[kWords];
        load_matrices(words, (from ^ kWords * i * 16) + part * kNext8Rows);
        const uint2 first = operands(words, 0), second = operands(words, 1);
        mma(scores.upper[part], q.x, q.y, q.z, q.w, first.x, first.y);
        mma(scores.lower[part], q.x, q.y, q.z, q.w, second.x, second.y);
      }
    }
  }
  __device__ __forceinline__ float2 score(const Scores& scores, int step, int part) const {
    const auto counted = [&](int j) {
      const int key = step * kStepKeys + 8 * part + lane % 4 * 2 + j;
      return key >= t.first_key && key < t.n_cached
                 ? (scores.upper[part][j] + scores.lower[part][2 + j]) * b.p.score_scale
                 : minus_infinity();  // masked
    };
    return {counted(0), counted(1)};
  }

  // Turns scores into weights, for keys 0 to 7 and 8 to 15, and rescales the sums to the new maximum.
  __device__ __forceinline__ uint2 softmax_update(Running& rows, const float2 (&scores)[2]) const {
    float largest = fmaxf(fmaxf(rows.row_max, fmaxf(scores[0].x, scores[0].y)), fmaxf(scores[1].x, scores[1].y));
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 2));
    const float base = largest == minus_infinity() ? 0.0f : largest, shrink = fast_exp2(rows.row_max - base);
    rows.row_max = largest, rows.total *= shrink;
    uint32_t weights[2];
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      const float first = fast_exp2(scores[u].x - base), second = fast_exp2(scores[u].y - base);
      rows.total += first + second;
      weights[u] = pair_of(first, second);
    }
    const float of_query[2] = {__shfl_sync(0xFFFFFFFFu, shrink, lane % 4 * 8),
                               __shfl_sync(0xFFFFFFFFu, shrink, lane % 4 * 8 + 4)};
#pragma unroll
    for (int j = 0; j < kDim / 16; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) rows.out[j][e] *= of_query[e % 2];
    return {weights[0], weights[1]};
  }

  __device__ __forceinline__ void add_values(Running& rows, const uint2& weights, int copy, int panel) const {
    const int first = ((copy - kCopies / 2) * kAtOnce + panel) * (kColumns / 16);
    const uint32_t from =
        piece_of(copy, lane % 8 + (kIsByte ? lane / 8 % 2 : lane / 16) * 8, kIsByte ? 0 : lane / 8 % 2) +
        panel * kNextPanel;
#pragma unroll
    for (int j = 0; j < kColumns / 16; ++j) {
      uint32_t words[kWords];
      if constexpr (kIsByte) {  // two values of two columns each
        load_transposed(words, from ^ j * 16);
        const uint2 low = halves_of_float8(__byte_perm(words[0], 0, 0x3120)),
                    high = halves_of_float8(__byte_perm(words[1], 0, 0x3120));
        mma(rows.out[first + j], low.x, low.y, high.x, high.y, weights.x, weights.y);
      } else {
        load_transposed(words, from ^ 2 * j * 16);
        const auto halves = [&](int i) { return halves_of(static_cast<const K*>(nullptr), words[i]); };
        mma(rows.out[first + j], halves(0), halves(1), halves(2), halves(3), weights.x, weights.y);
      }
    }
  }
  // Sets values from n_valid on to zero, because they may be NaN, and 0 * NaN is NaN.
  __device__ __forceinline__ void clear_values(int copy, int n_valid) const {
    for (int i = lane; i < (kStepKeys - n_valid) * (kPanelBytes / 16); i += 32)
#pragma unroll
      for (int panel = 0; panel < kAtOnce; ++panel)
        store_zeros(piece_of(copy, n_valid + i / (kPanelBytes / 16), i % (kPanelBytes / 16)) + panel * kNextPanel);
    __syncwarp();
  }

  // Processes the steps of the warp, from `first` to `end`, with two copies in flight. ready() calls its argument when
  // the block's activations are no longer used, because the copies overwrite them.
  template <class Ready>
  __device__ __forceinline__ void walk(Ready&& ready) const {
    const auto keys_of = [&](int step, int block) {
      return rows_of(block, 0) + step * kStepKeys % kShape.kv_block / 8;
    };
    const int first = t.first + warp, end = t.end;
    const bool any = first < end;
    int keys = keys_of(first, of_warp.first_block);
    int next_block = t.block_of(first + kWarps);
    ready([&] {
      if (!any) return;
      fence_shared();  // orders what the block wrote to this place before the copies
      begin_copy(0, keys), begin_copy(1, keys);
    });
    if (!any) return;
    Running rows{.out = {}, .row_max = minus_infinity(), .total = 0};
#pragma unroll 1
    for (int step = first;;) {
      const int next = step + kWarps, n_valid = t.n_cached - step * kStepKeys;
      const bool more = next < end;
      const int next_keys = keys_of(next, next_block);
      next_block = t.block_of(next + kWarps);  // a step ahead, because the load takes as long as a step
      const auto copy_after = [&](int copy) {  // to the slot of this copy, which has been used
        __syncwarp();
        if (copy + 2 < kCopies) {
          begin_copy(copy + 2, keys);
        } else if (more) {
          begin_copy(copy + 2 - kCopies, next_keys);
        }
      };
      Scores scores{};
#pragma unroll
      for (int copy = 0; copy < kCopies / 2; ++copy) {
        await_copy(copy);
#pragma unroll
        for (int panel = 0; panel < kAtOnce; ++panel) add_scores(scores, copy, panel);
        copy_after(copy);
      }
      const uint2 weights = softmax_update(rows, {score(scores, step, 0), score(scores, step, 1)});
#pragma unroll
      for (int copy = kCopies / 2; copy < kCopies; ++copy) {
        await_copy(copy);
        if (n_valid < kStepKeys) clear_values(copy, n_valid);
#pragma unroll
        for (int panel = 0; panel < kAtOnce; ++panel) add_values(rows, weights, copy, panel);
        copy_after(copy);
      }
      of_warp.parity ^= kCopies / 2 & 1;
      if (!more) break;
      step = next, keys = next_keys;
    }
    put(rows);
  }

  __device__ __forceinline__ void put(Running& rows) const {
    const int g = lane / 4;
    rows.total += __shfl_xor_sync(0xFFFFFFFFu, rows.total, 1);
    rows.total += __shfl_xor_sync(0xFFFFFFFFu, rows.total, 2);
    if (lane % 4 == 0 && g < kGroup) memory.stats[warp * kGroup + g] = {rows.row_max, rows.total};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int query = lane % 4 * 2 + r;
      if (query >= kGroup) continue;
      float* to = memory.sums + warp * kEntry + query * kDim + 4 * g;
#pragma unroll
      for (int j = 0; j < kDim / 16; j += 2) {
        const float(&first)[4] = rows.out[j], (&second)[4] = rows.out[j + 1];
        *reinterpret_cast<float4*>(to + 16 * j) = make_float4(first[r], first[2 + r], second[r], second[2 + r]);
      }
    }
  }

  // Adds the keys of the step's rows as one entry.
  __device__ __forceinline__ void add_own(int r) const {
    const auto pair = [&](int row, int j) {
      return __half22float2(reinterpret_cast<const half2*>(memory.rows + row * kDim)[lane + 32 * j]);
    };
    float weights[kMaxOwn], row_max = minus_infinity(), total = 0;
#pragma unroll
    for (int own = 0; own < kMaxOwn; ++own) {
      weights[own] = minus_infinity();
      if (own >= t.n_own()) continue;
      float score = 0;
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const float2 q = pair(r, j), k = pair(kGroup + 2 * own, j);
        score += q.x * k.x + q.y * k.y;
      }
      weights[own] = warp_sum(score) * b.p.score_scale;
      row_max = max_or_nan(row_max, weights[own]);
    }
#pragma unroll
    for (int own = 0; own < kMaxOwn; ++own) {
      weights[own] = kMaxOwn == 1 ? 1.0f : fast_exp2(weights[own] - row_max);
      total += weights[own];
    }
#pragma unroll
    for (int j = 0; j < kDim / 32; ++j) {
      const int place = lane + 32 * j, column = column_of(place);
      float sum = 0;
#pragma unroll
      for (int own = 0; own < kMaxOwn; ++own)
        if (own < t.n_own()) sum += weights[own] * __half2float(memory.rows[(kGroup + 2 * own + 1) * kDim + column]);
      memory.sums[t.n_entries() * kEntry + r * kDim + place] = sum;
    }
    if (lane == 0) memory.stats[t.n_entries() * kGroup + r] = {row_max, total};
  }

  // Turns the maximum of each entry into the weight of its sums. A warp handles a query: lane i has entry i.
  __device__ __forceinline__ void weigh_entries(int n_entries) const {
    static_assert(kWarps < 32);
    for (int r = warp; r < kGroup; r += kWarps) {
      float2 stat = make_float2(minus_infinity(), 0.0f);
      if (lane < n_entries) stat = memory.stats[lane * kGroup + r];
      const float row_max = warp_max(stat.x), base = row_max == minus_infinity() ? 0.0f : row_max;
      const float weight = fast_exp2(stat.x - base), total = warp_sum(weight * stat.y);
      if (lane < n_entries) memory.stats[lane * kGroup + r].x = weight;
      if (lane == 0) of_all(r) = {row_max, total};
    }
  }
  __device__ __forceinline__ float2& of_all(int r) const { return memory.stats[(kWarps + 1) * kGroup + r]; }
  // Writes a column of a query: the result, or with several splits, the split's sum.
  __device__ __forceinline__ void put_sum(int r, int column, float sum, int first_part) const {
    if (t.n_active == 1) {
      output(r)[place_in_row<C, kWeightOut>(column)] = from_float<half>(__fdividef(sum, of_all(r).y));
    } else {
      b.p.parts[(first_part + t.split * kGroup + r) * kDim + column] = sum;
      if (column == 0) b.p.stats[first_part + t.split * kGroup + r] = of_all(r);
    }
  }

  __device__ __forceinline__ int pair() const { return t.row * kShape.n_kv_heads + t.kv_head; }
  __device__ __forceinline__ half* output(int r) const { return b.p.attended + (pair() * kGroup + r) * kDim; }

  // The first copies are in flight while the block waits for the queries, keys and values of the other blocks.
  __device__ __forceinline__ void run() const {
    const Params& p = b.p;
    walk([&](auto&& begin) {
      b.sync_grid(begin);
      for (int which = warp; which < kGroup + 2 * t.n_own(); which += kWarps) finish_head(which);
      sync_block();
      if (t.has_own())
        for (int r = kWarps - 1 - warp; r < kGroup; r += kWarps) add_own(r);
    });
    sync_block();
    const int n_entries = t.n_entries() + t.has_own(), first_part = pair() * t.n_splits * kGroup;
    weigh_entries(n_entries);
    sync_block();
    for (int i = 2 * static_cast<int>(threadIdx.x); i < kGroup * kDim; i += 2 * kThreads) {
      const int r = i / kDim;
      float2 sum{};
#pragma unroll 4
      for (int e = 0; e < n_entries; ++e) {
        const float weight = memory.stats[e * kGroup + r].x;
        const float2 part = *reinterpret_cast<const float2*>(memory.sums + e * kEntry + i);
        sum.x += weight * part.x, sum.y += weight * part.y;
      }
      put_sum(r, column_of(i % kDim), sum.x, first_part);
      put_sum(r, column_of(i % kDim + 1), sum.y, first_part);
    }
    if (t.n_active > 1)
      merge_splits(p.parts + first_part * kDim, p.stats + first_part, p.ended + pair(), output(0), t.split, t.n_active);
  }

  // Waits for the other splits of the head, and merges the columns of this block. A warp merges four columns at a time,
  // or with up to 8 splits, 16 columns. Of `width` lanes, lane i has splits i and i + 32. The function is not inlined,
  // because its registers would make the rest of the kernel spill.
  static __device__ __noinline__ void merge_splits(const float* parts_of_head, const float2* stats, unsigned* ended,
                                                   half* output, int split, int n_active) {
    constexpr int kVectors = kGroup * kDim / 4, kEach = divide_up(kSplits, 32);
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int width = n_active <= 8 ? 8 : 32, n_vectors = 32 / width, end = kVectors * (split + 1) / n_active;
    sync_block();
    if (threadIdx.x == 0) await_grid(ended, arrive_grid(ended, n_active, split == 0));
    sync_block();
    for (int first = kVectors * split / n_active + warp * n_vectors; first < end; first += kWarps * n_vectors) {
      const int vector = first + lane / width;
      float4 parts[kEach];
      float2 of_split[kEach];
      float row_max = minus_infinity(), sums[5] = {};
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int from = lane % width + 32 * i;
        const bool counts = from < n_active && vector < end;
        parts[i] = counts ? load4(parts_of_head + from * kGroup * kDim, 4 * vector) : float4{};
        of_split[i] = counts ? __ldcg(stats + from * kGroup + 4 * vector / kDim) : make_float2(minus_infinity(), 0.0f);
        row_max = max_or_nan(row_max, of_split[i].x);
      }
#pragma unroll 1
      for (int i = 1; i < width; i *= 2) row_max = max_or_nan(row_max, __shfl_xor_sync(0xFFFFFFFFu, row_max, i));
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const float weight = fast_exp2(of_split[i].x - row_max);
        sums[0] += weight * parts[i].x, sums[1] += weight * parts[i].y;
        sums[2] += weight * parts[i].z, sums[3] += weight * parts[i].w;
        sums[4] += weight * of_split[i].y;
      }
#pragma unroll 1
      for (int i = 1; i < width; i *= 2)
#pragma unroll
        for (float& sum : sums) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, i);
      const float inverse = __fdividef(1.0f, sums[4]);
      if (lane % width == 0 && vector < end)
        *reinterpret_cast<uint2*>(output + place_in_row<C, kWeightOut>(4 * vector)) = {
            pair_of(sums[0] * inverse, sums[1] * inverse), pair_of(sums[2] * inverse, sums[3] * inverse)};
    }
  }
};

}  // namespace ingot::cuda::grid
