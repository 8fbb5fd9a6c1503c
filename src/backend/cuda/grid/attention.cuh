// Attention of a layer. A task is a KV head and a part (split) of the earlier keys. The warps of a block process 16
// keys at a time. The last split also handles the token's own key and value, and writes them to the cache. When all
// splits of a head are complete, each of their blocks merges a share of the columns.
#pragma once
#include "backend/cuda/grid/products.cuh"

namespace ingot::cuda::grid {

// Elements of the KV cache. Eight: a type that holds 8 of them.
struct CacheHalf {
  using Eight = uint4;
  uint16_t bits;
};
struct CacheBfloat {
  using Eight = uint4;
  uint16_t bits;
};
struct CacheFloat8 {  // E4M3
  using Eight = uint2;
  uint8_t bits;
};

// Converts 8 elements to halves.
__device__ __forceinline__ uint4 halves_of(const CacheHalf*, const uint4& v) { return v; }
__device__ __forceinline__ uint4 halves_of(const CacheBfloat*, const uint4& v) {
  const auto two = [](uint32_t w) { return pair_of(__uint_as_float(w << 16), __uint_as_float(w & 0xFFFF0000u)); };
  return {two(v.x), two(v.y), two(v.z), two(v.w)};
}
__device__ __forceinline__ uint4 halves_of(const CacheFloat8*, const uint2& v) {
  const uint2 first = halves_of_float8(v.x), second = halves_of_float8(v.y);
  return {first.x, first.y, second.x, second.y};
}
// Writes an element. Returns the written value.
__device__ __forceinline__ half store(CacheHalf* to, float v) {
  const half h = from_float<half>(v);
  *reinterpret_cast<half*>(to) = h;
  return h;
}
__device__ __forceinline__ half store(CacheBfloat* to, float v) {
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to->bits) : "f"(v));
  return from_float<half>(__uint_as_float(uint32_t{to->bits} << 16));
}
__device__ __forceinline__ half store(CacheFloat8* to, float v) {
  uint16_t two;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %1;" : "=h"(two) : "f"(v));
  to->bits = static_cast<uint8_t>(two);
  return half2_of(halves_of_float8(two).x).x;
}

__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// The place of a column of a query or of the own key. In each 8 columns, pairs 1 and 2 are swapped.
__device__ __forceinline__ int query_place(int column) {
  const int pair = column / 2 % 4;
  return pair == 1 ? column + 2 : pair == 2 ? column - 2 : column;
}
// Copies 8 elements to shared memory, as matvec_step.cuh does; zeros unless `in`.
__device__ __forceinline__ void copy8(uint32_t to, const uint4* from, bool in) { matvec_step::copy16(to, from, in); }
__device__ __forceinline__ void copy8(uint32_t to, const uint2* from, bool in) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(in ? 8 : 0) : "memory");
}
// Loads from shared memory at each call, so that no registers keep the values.
__device__ __forceinline__ uint4 load_again(uint32_t address) {
  uint4 v;
  asm volatile("ld.volatile.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address));
  return v;
}
__device__ __forceinline__ void load_again(uint4& v, uint32_t address) { v = load_again(address); }
__device__ __forceinline__ void load_again(uint2& v, uint32_t address) {
  asm volatile("ld.volatile.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address));
}

// Shared memory of a task, in place of the activations.
struct TaskMemory {
  half* rows;     // [kMaxGroup + 2, dim]: queries, the own key, the own value
  float* sums;    // [kWarps + 1, entry_floats]: of each warp, then of the own key: [group, dim]
  float2* stats;  // [kWarps + 1, group]: maximum, total

  __device__ TaskMemory(char* at, int dim, int entry)
      : rows(reinterpret_cast<half*>(at)),
        sums(reinterpret_cast<float*>(rows + (kMaxGroup + 2) * dim)),
        stats(reinterpret_cast<float2*>(sums + (kWarps + 1) * entry)) {}
};

// A block's task, as seen by a warp; the same in all layers.
template <class C>
struct Task {
  int row, kv_head, split, n_splits, position;
  int first_key, n_active, n_steps;   // steps of this task
  int first, first_block, own_block;  // the warp's first step, and its block of the KV cache; steps count from key 0
  int end;
  const int32_t* table;
  bool runs;

  __device__ Task(const Params& p, int warp) {
    constexpr Shape s = C::kShape;
    const int window = s.window, n_rows = s.has_rows() ? p.n_rows : 1, block = static_cast<int>(blockIdx.x);
    n_splits = s.n_splits(n_rows), split = block % n_splits;
    const int pair = block / n_splits;  // of a row and a KV head
    runs = pair < n_rows * s.n_kv_heads;
    row = runs && s.has_rows() ? pair / s.n_kv_heads : 0, kv_head = pair % s.n_kv_heads;
    position = p.positions[row];
    table = p.block_table + row * (s.has_rows() ? int64_t{*p.max_blocks} : 0);
    first_key = window > 0 ? max(0, position + 1 - window) : 0;
    const int first_step = first_key / kStepKeys, all = (position + kStepKeys - 1) / kStepKeys - first_step;
    n_active = max(1, min(n_splits, (all + kWarps - 1) / kWarps));
    const int each = (all + n_active - 1) / n_active, begin = min(split * each, all);
    n_steps = min(each, all - begin);
    first = first_step + begin + warp, end = first_step + begin + n_steps;
    runs = runs && split < n_active;
    first_block = runs && first < end ? table[first * kStepKeys / s.kv_block] : 0;
    own_block = table[position / s.kv_block];
  }
  // Copies the angles of the row to shared memory.
  __device__ __forceinline__ void copy_angles(const Block<C>& b) const {
    for (int i = static_cast<int>(threadIdx.x); i < C::kShape.rot_dim; i += kThreads)
      b.angles[i] = b.p.angles[row * b.p.angle_stride + i];
  }
  __device__ __forceinline__ bool has_own() const { return split == n_active - 1; }
  // Entries of the block's warps, without the own key.
  __device__ __forceinline__ int n_entries() const { return min(n_steps, kWarps); }
};

template <class C, class K>
struct Attention {
  static constexpr Shape kShape = C::kShape;
  static constexpr int kDim = kShape.head_dim, kGroup = kShape.group(), kSplits = kShape.n_splits();
  static constexpr int kPairs = kDim / 64, kChunks = kDim / 64;  // chunks of 64 columns
  static constexpr int64_t kToValues = int64_t{kShape.n_kv_heads} * kShape.kv_block * kDim;  // from a key to its value
  static constexpr int kEntry = entry_floats(kShape);
  static_assert(kChunks <= 2);

  const Block<C>& b;
  const Layer& layer;
  const Task<C>& t;
  const TaskMemory memory;

  __device__ Attention(const Block<C>& block, const Layer& layer_of, const Task<C>& task)
      : b(block), layer(layer_of), t(task), memory(block.shared + Block<C>::kAt.input, kDim, kEntry) {}

  // The address of a token's key (which = 0) or value.
  __device__ __forceinline__ K* row(int64_t block, int key, int which) const {
    const int64_t page = ((layer.kv_layer * b.p.kv_blocks + block) * 2 + which) * kShape.n_kv_heads + t.kv_head;
    return static_cast<K*>(b.p.kv) + (page * kShape.kv_block + key % kShape.kv_block) * kDim;
  }

  // Norm and rope of one head by a warp: query head `which` of the group, or the key, or the value.
  __device__ __forceinline__ void finish_head(int which) const {
    const Params& p = b.p;
    constexpr Shape s = kShape;
    const int n_cols = (s.n_heads + 2 * s.n_kv_heads) * kDim;
    const bool is_key = which == kGroup, is_value = which > kGroup;
    const int head = is_value ? s.n_heads + s.n_kv_heads + t.kv_head
                     : is_key ? s.n_heads + t.kv_head
                              : t.kv_head * kGroup + which;
    const float* from = p.heads + t.row * plan_of(kShape, kQkv).n_planes * n_cols + head * kDim;
    const float* norm = is_value   ? nullptr
                        : is_key   ? (s.k_norm ? layer.k_norm : nullptr)
                        : s.q_norm ? layer.q_norm
                                   : nullptr;
    const int half_rot = s.rot_dim / 2;
    float v[kPairs][2], squares = 0;
    int at[kPairs][2];
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = b.lane + 32 * j;
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
    half* to = memory.rows + (is_value ? kMaxGroup + 1 : is_key ? kMaxGroup : which) * kDim;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int i = b.lane + 32 * j;
      float first = v[j][0], second = v[j][1];
      if (norm != nullptr) first *= inverse * norm[at[j][0]], second *= inverse * norm[at[j][1]];
      if (!is_value && i < half_rot) {
        const float cosine = b.angles[i], sine = b.angles[half_rot + i], u = first;
        first = u * cosine - second * sine;
        second = second * cosine + u * sine;
      }
      half low = from_float<half>(first), high = from_float<half>(second);
      if ((is_key || is_value) && t.has_own()) {
        K* cache = row(t.own_block, t.position, is_value);
        low = store(cache + at[j][0], first), high = store(cache + at[j][1], second);
      }
      to[is_value ? at[j][0] : query_place(at[j][0])] = low, to[is_value ? at[j][1] : query_place(at[j][1])] = high;
    }
  }

  // The running sums of the queries of a group, up to 8. Lane g, t (lane 4g + t) has the weights of query g for keys 2t
  // and 2t + 1 of 8, and sums of queries 2t and 2t + 1.
  struct Running {
    float out[kChunks][4][4];  // [chunk][j]: of both queries, columns 8g + j and 8g + j + 4 of the chunk
    float most, total;         // of query g; total: of the lane's keys
  };

  // A warp copies and uses one piece at a time. Each lane copies only what it uses itself. A step has kChunks pieces of
  // keys and then kChunks pieces of values. Of a piece of keys, the lane has columns 8t to 8t + 7 of each 32, of key g
  // of 8 keys, or with heads of 64 of keys g and g + 8. Of a piece of values, the lane has columns 8g to 8g + 7 of a
  // chunk of 64, of values 2t, 2t + 1, 2t + 8 and 2t + 9.
  struct Piece {
    uint4 v[4];
  };
  static constexpr int kPieces = pieces_of_step(kDim), kHeld = kShape.held_pieces;
  static_assert(kPieces == 2 * kChunks && kPieces % kHeld == 0);
  using Eight = typename K::Eight;

  __device__ __forceinline__ uint32_t place_of(int piece) const {
    return shared_address(memory.sums + b.warp * kEntry) + piece % kHeld * kPieceBytes + b.lane * sizeof(Eight);
  }
  // Values from n_valid on are set to zero, because they may be NaN, and 0 * NaN is NaN.
  __device__ __forceinline__ void copy_piece(int piece, const K* page, int n_valid) const {
    const uint32_t to = place_of(piece);
    const int g = b.lane / 4, t4 = b.lane % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool is_key = piece < kChunks;
      const int key = !is_key ? 2 * t4 + (i & 1) + (i & 2) * 4 : kChunks == 2 ? 8 * piece + g : i / 2 * 8 + g;
      const int column = !is_key ? (piece - kChunks) * 64 + 8 * g : 8 * t4 + 32 * (kChunks == 2 ? i : i % 2);
      const K* from = page + (is_key ? 0 : kToValues) + key * kDim + column;
      copy8(to + i * 32 * sizeof(Eight), reinterpret_cast<const Eight*>(from), is_key || key < n_valid);
    }
    matvec_step::end_copies();
  }
  __device__ __forceinline__ Piece await(int piece) const {
    matvec_step::await_copies<kHeld - 1>();
    Piece p;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      Eight raw;
      load_again(raw, place_of(piece) + i * 32 * sizeof(Eight));
      p.v[i] = halves_of(static_cast<const K*>(nullptr), raw);
    }
    return p;
  }

  // The scores of keys 8 * part + 2t and 8 * part + 2t + 1. The queries are in shared memory in the order of the tensor
  // core's registers (query_place()), so one load yields the queries of two products, in the upper and in the lower
  // rows.
  __device__ __forceinline__ float2 score(const uint4* keys, int step, int part) const {
    const uint32_t queries = shared_address(memory.rows + min(b.lane / 4, kGroup - 1) * kDim + b.lane % 4 * 8);
    float upper[4] = {}, lower[4] = {};
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) {
      const uint4 q = load_again(queries + 64 * i), &k = keys[i];
      mma(upper, q.x, q.y, q.z, q.w, k.x, k.y);
      mma(lower, q.x, q.y, q.z, q.w, k.z, k.w);
    }
    const auto counted = [&](int j) {
      const int key = step * kStepKeys + 8 * part + b.lane % 4 * 2 + j;
      return key >= t.first_key && key < t.position ? (upper[j] + lower[2 + j]) * b.p.score_scale
                                                    : minus_infinity();  // masked
    };
    return {counted(0), counted(1)};
  }

  // Turns scores into weights, for keys 0 to 7 and 8 to 15, and rescales the sums to the new maximum.
  __device__ __forceinline__ uint2 softmax_update(Running& rows, const float2 (&scores)[2]) const {
    float largest = fmaxf(fmaxf(rows.most, fmaxf(scores[0].x, scores[0].y)), fmaxf(scores[1].x, scores[1].y));
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 2));
    const float base = largest == minus_infinity() ? 0.0f : largest, shrink = fast_exp2(rows.most - base);
    rows.most = largest, rows.total *= shrink;
    uint32_t weights[2];
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      const float first = fast_exp2(scores[u].x - base), second = fast_exp2(scores[u].y - base);
      rows.total += first + second;
      weights[u] = pair_of(first, second);
    }
    const float of_query[2] = {__shfl_sync(0xFFFFFFFFu, shrink, b.lane % 4 * 8),
                               __shfl_sync(0xFFFFFFFFu, shrink, b.lane % 4 * 8 + 4)};
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int j = 0; j < 4; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) rows.out[c][j][e] *= of_query[e % 2];
    return {weights[0], weights[1]};
  }

  __device__ __forceinline__ void add_values(float (&out)[4][4], const uint2& weights, const Piece& values) const {
    const uint4(&v)[4] = values.v;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t pick = j % 2 ? 0x7632 : 0x5410;
      const auto pair = [&](int key, int word) {
        return __byte_perm(word_of(v[key], word), word_of(v[key + 1], word), pick);
      };
      mma(out[j], pair(0, j / 2), pair(0, 2 + j / 2), pair(2, j / 2), pair(2, 2 + j / 2), weights.x, weights.y);
    }
  }

  // Processes the steps of the warp, from `first` to `end`, with kHeld pieces in flight at any time. ready() calls its
  // argument when the block's activations are no longer used, because the pieces overwrite them.
  template <class Ready>
  __device__ __forceinline__ void walk(Ready&& ready) const {
    const auto page_of = [&](int step, int block) { return row(block, step * kStepKeys, 0); };
    const auto n_valid = [&](int step) { return t.position - step * kStepKeys; };
    const auto block_of = [&](int step) { return step < t.end ? t.table[step * kStepKeys / kShape.kv_block] : 0; };
    const bool any = t.first < t.end;
    const K* page = page_of(t.first, t.first_block);
    int next_block = block_of(t.first + kWarps);
    ready([&] {
      if (!any) return;
#pragma unroll
      for (int i = 0; i < kHeld; ++i) copy_piece(i, page, n_valid(t.first));
    });
    if (!any) return;
    Running rows{.out = {}, .most = minus_infinity(), .total = 0};
#pragma unroll 1
    for (int step = t.first;;) {
      const int next = step + kWarps;
      const bool more = next < t.end;
      const K* const next_page = page_of(next, next_block);
      next_block = block_of(next + kWarps);  // a step ahead, because the load takes as long as a step
      const auto copy_after = [&](int piece) {  // to the place of this piece, which has been used
        const int other = piece + kHeld;
        if (other < kPieces) {
          copy_piece(other, page, n_valid(step));
        } else if (more) {
          copy_piece(other - kPieces, next_page, n_valid(next));
        } else {
          matvec_step::end_copies();
        }
      };
      float2 scores[2];
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        const Piece keys = await(i);
        if constexpr (kChunks == 2) {
          scores[i] = score(keys.v, step, i);
        } else {
          scores[0] = score(keys.v, step, 0), scores[1] = score(keys.v + 2, step, 1);
        }
        __syncwarp();
        copy_after(i);
      }
      const uint2 weights = softmax_update(rows, scores);
#pragma unroll
      for (int i = 0; i < kChunks; ++i) {
        add_values(rows.out[i], weights, await(kChunks + i));
        __syncwarp();
        copy_after(kChunks + i);
      }
      if (!more) break;
      step = next, page = next_page;
    }
    put(rows);
  }

  __device__ __forceinline__ void put(Running& rows) const {
    const int g = b.lane / 4;
    rows.total += __shfl_xor_sync(0xFFFFFFFFu, rows.total, 1);
    rows.total += __shfl_xor_sync(0xFFFFFFFFu, rows.total, 2);
    if (b.lane % 4 == 0 && g < kGroup) memory.stats[b.warp * kGroup + g] = {rows.most, rows.total};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int query = b.lane % 4 * 2 + r;
      if (query >= kGroup) continue;
      float* to = memory.sums + b.warp * kEntry + query * kDim + 8 * g;
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float(&out)[4][4] = rows.out[c];
          *reinterpret_cast<float4*>(to + 64 * c + 4 * h) =
              make_float4(out[0][2 * h + r], out[1][2 * h + r], out[2][2 * h + r], out[3][2 * h + r]);
        }
    }
  }

  // Adds the token's own key as an entry with the single weight 1.
  __device__ __forceinline__ void add_own(int r) const {
    const auto pair = [&](int row, int j) {
      return __half22float2(reinterpret_cast<const half2*>(memory.rows + row * kDim)[b.lane + 32 * j]);
    };
    float score = 0;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const float2 q = pair(r, j), k = pair(kMaxGroup, j);
      score += q.x * k.x + q.y * k.y;
      reinterpret_cast<float2*>(memory.sums + t.n_entries() * kEntry + r * kDim)[b.lane + 32 * j] =
          pair(kMaxGroup + 1, j);
    }
    score = warp_sum(score) * b.p.score_scale;
    if (b.lane == 0) memory.stats[t.n_entries() * kGroup + r] = {score, 1.0f};
  }

  __device__ __forceinline__ int pair() const { return t.row * kShape.n_kv_heads + t.kv_head; }
  __device__ __forceinline__ half* output(int r) const { return b.p.attended + (pair() * kGroup + r) * kDim; }

  // The first pieces are in flight while the block waits for the queries, keys and values of the other blocks.
  __device__ __forceinline__ void run() const {
    const Params& p = b.p;
    walk([&](auto&& begin) {
      b.sync_grid(begin);
      for (int which = b.warp; which < kGroup + 2; which += kWarps) finish_head(which);
      sync_block();
      if (t.has_own())
        for (int r = kWarps - 1 - b.warp; r < kGroup; r += kWarps) add_own(r);
    });
    sync_block();
    const int n_entries = t.n_entries() + t.has_own(), first_part = pair() * t.n_splits * kGroup;
    for (int i = static_cast<int>(threadIdx.x); i < kGroup * kDim; i += kThreads) {
      const int r = i / kDim;
      float most = minus_infinity(), total = 0, sum = 0;
#pragma unroll 4
      for (int e = 0; e < n_entries; ++e) most = max_or_nan(most, memory.stats[e * kGroup + r].x);
      const float base = most == minus_infinity() ? 0.0f : most;
#pragma unroll 4
      for (int e = 0; e < n_entries; ++e) {
        const float2 stat = memory.stats[e * kGroup + r];
        const float weight = fast_exp2(stat.x - base);
        total += weight * stat.y, sum += weight * memory.sums[e * kEntry + i];
      }
      if (t.n_active == 1) {
        output(r)[place_in_row<C, kWeightOut>(i % kDim)] = from_float<half>(__fdividef(sum, total));
      } else {
        p.parts[(first_part + t.split * kGroup) * kDim + i] = sum;
        if (i % kDim == 0) p.stats[first_part + t.split * kGroup + r] = {most, total};
      }
    }
    if (t.n_active > 1)
      merge_splits(p.parts + first_part * kDim, p.stats + first_part, p.ended + pair(), output(0), t.split, t.n_active);
  }

  // Waits for the other splits of the head, and merges the columns of this block. A warp merges four columns at a time;
  // lane i has splits i and i + 32. The function is not inlined, because its registers would make the rest of the
  // kernel spill.
  static __device__ __noinline__ void merge_splits(const float* parts_of_head, const float2* stats, unsigned* ended,
                                                   half* output, int split, int n_active) {
    constexpr int kVectors = kGroup * kDim / 4, kEach = divide_up(kSplits, 32);
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    sync_block();
    if (threadIdx.x == 0) await_grid(ended, arrive_grid(ended, n_active, split == 0));
    sync_block();
    const int end = kVectors * (split + 1) / n_active;
    for (int vector = kVectors * split / n_active + warp; vector < end; vector += kWarps) {
      float4 parts[kEach];
      float2 of_split[kEach];
      float most = minus_infinity(), total = 0, sums[4] = {};
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int from = lane + 32 * i;
        const bool counts = from < n_active;
        parts[i] = counts ? load4(parts_of_head + from * kGroup * kDim, 4 * vector) : float4{};
        of_split[i] = counts ? __ldcg(stats + from * kGroup + 4 * vector / kDim) : make_float2(minus_infinity(), 0.0f);
        most = max_or_nan(most, of_split[i].x);
      }
      most = warp_max(most);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const float weight = fast_exp2(of_split[i].x - most);
        total += weight * of_split[i].y;
        sums[0] += weight * parts[i].x, sums[1] += weight * parts[i].y;
        sums[2] += weight * parts[i].z, sums[3] += weight * parts[i].w;
      }
      const float inverse = __fdividef(1.0f, warp_sum(total));
      for (float& sum : sums) sum = warp_sum(sum) * inverse;
      if (lane == 0)
        *reinterpret_cast<uint2*>(output + place_in_row<C, kWeightOut>(4 * vector)) = {pair_of(sums[0], sums[1]),
                                                                                       pair_of(sums[2], sums[3])};
    }
  }
};

}  // namespace ingot::cuda::grid
