// Attention of a layer: a task is a KV head and a part (split) of the earlier keys. The warps of a block take 16 keys at
// a time. The last split also takes the token's own key and value, and writes them to the cache. The block
// that ends a head's last split merges the splits.
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

// 8 elements as halves.
__device__ __forceinline__ uint4 load8(const CacheHalf* p) { return *reinterpret_cast<const uint4*>(p); }
__device__ __forceinline__ uint4 load8(const CacheBfloat* p) {
  const uint4 v = *reinterpret_cast<const uint4*>(p);
  const auto two = [](uint32_t w) { return pair_of(__uint_as_float(w << 16), __uint_as_float(w & 0xFFFF0000u)); };
  return {two(v.x), two(v.y), two(v.z), two(v.w)};
}
__device__ __forceinline__ uint4 load8(const CacheFloat8* p) {
  const uint2 v = *reinterpret_cast<const uint2*>(p);
  return {halves_of_float8(v.x), halves_of_float8(v.x >> 16), halves_of_float8(v.y), halves_of_float8(v.y >> 16)};
}
// Writes an element; returns what was written.
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
  const uint32_t halves = halves_of_float8(two);
  return half2_of(halves).x;
}

__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// The score of a key that does not count: minus infinity.
__device__ __forceinline__ float no_score() { return __int_as_float(0xFF800000); }

// Shared memory of a task, in place of the activations.
struct TaskMemory {
  half* rows;     // [kMaxGroup + 2, dim]: queries, the own key, the own value
  float* sums;    // [kWarps + 1, group, dim]: of each warp, then of the own key
  float2* stats;  // [kWarps + 1, group]: maximum, total

  __device__ TaskMemory(char* at, int group, int dim)
      : rows(reinterpret_cast<half*>(at)),
        sums(reinterpret_cast<float*>(rows + (kMaxGroup + 2) * dim)),
        stats(reinterpret_cast<float2*>(sums + (kWarps + 1) * group * dim)) {}
};

// What a warp knows of its block's task. It is the same in all layers.
template <class C>
struct Task {
  int kv_head, split, position;
  int first_key, n_active, n_steps;   // steps of this task
  int first, first_block, own_block;  // the warp's first step, and its block of the KV cache; steps count from key 0
  int end;
  const int32_t* table;
  bool runs;

  __device__ Task(const Params& p, int warp) {
    constexpr Shape s = C::kShape;
    const int window = s.window, n_splits = s.n_splits();
    split = static_cast<int>(blockIdx.x) % n_splits, kv_head = static_cast<int>(blockIdx.x) / n_splits;
    position = p.positions[0];
    table = p.block_table;
    first_key = window > 0 ? max(0, position + 1 - window) : 0;
    const int first_step = first_key / kStepKeys, all = (position + kStepKeys - 1) / kStepKeys - first_step;
    n_active = max(1, min(n_splits, (all + kWarps - 1) / kWarps));
    const int each = (all + n_active - 1) / n_active, begin = min(split * each, all);
    n_steps = min(each, all - begin);
    first = first_step + begin + warp, end = first_step + begin + n_steps;
    runs = kv_head < s.n_kv_heads && split < n_active;
    first_block = runs && first < end ? table[first * kStepKeys / s.kv_block] : 0;
    own_block = table[position / s.kv_block];
  }
  __device__ __forceinline__ bool has_own() const { return split == n_active - 1; }
  // Entries of the block's warps, without the own key.
  __device__ __forceinline__ int n_entries() const { return min(n_steps, kWarps); }
};

template <class C, class K>
struct Attention {
  static constexpr Shape kShape = C::kShape;
  static constexpr int kDim = kShape.head_dim, kGroup = kShape.group(), kSplits = kShape.n_splits();
  static constexpr int kPairs = kDim / 64, kChunks = kDim / 64;  // chunks of 64 columns of values

  const Block<C>& b;
  const Layer& layer;
  const Task<C>& t;
  const TaskMemory memory;

  __device__ Attention(const Block<C>& block, const Layer& layer_of, const Task<C>& task)
      : b(block), layer(layer_of), t(task), memory(block.shared + Block<C>::kAt.input, kGroup, kDim) {}

  // The address of a t.token's key (which = 0) or value.
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
    const float* from = p.heads + head * kDim;
    const float* norm = is_value   ? nullptr
                        : is_key   ? (s.k_norm ? layer.k_norm : nullptr)
                        : s.q_norm ? layer.q_norm
                                   : nullptr;
    const float* angles = p.angles;
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
        const float cosine = __ldcg(angles + i), sine = __ldcg(angles + half_rot + i), u = first;
        first = u * cosine - second * sine;
        second = second * cosine + u * sine;
      }
      half low = from_float<half>(first), high = from_float<half>(second);
      if ((is_key || is_value) && t.has_own()) {
        K* cache = row(t.own_block, t.position, is_value);
        low = store(cache + at[j][0], first), high = store(cache + at[j][1], second);
      }
      to[at[j][0]] = low, to[at[j][1]] = high;
    }
  }

  // Rows of queries, with their running softmax: lane g, t has row g.
  struct Rows {
    float out[kChunks][8][2], most, total;
  };

  struct Keys {
    uint4 k[2][kDim / 32];
  };
  struct Values {
    uint4 v[kChunks][4];
  };
  __device__ __forceinline__ void load_keys(Keys& keys, const K* page) const {
    const int g = b.lane / 4, column = b.lane % 4;
#pragma unroll
    for (int u = 0; u < 2; ++u)
#pragma unroll
      for (int i = 0; i < kDim / 32; ++i) keys.k[u][i] = load8(page + (8 * u + g) * kDim + 8 * column + 32 * i);
  }

  // Values of 16 keys; those past n_valid are zeros, because their weight is 0 and they may be NaN.
  __device__ __forceinline__ void load_values(Values& values, const K* page, int n_valid) const {
    const int g = b.lane / 4;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = b.lane % 4 * 2 + (i & 1) + (i & 2) * 4;
        values.v[c][i] = key < n_valid ? load8(page + key * kDim + c * 64 + g * 8) : uint4{};
      }
  }

  __device__ __forceinline__ void use(Rows& rows, const Keys& keys, const Values& values, int step) const {
    float scores[2][2] = {}, largest = rows.most;
    const half* queries = memory.rows + b.lane / 4 * kDim + b.lane % 4 * 8;
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) {
      const uint4 q = b.lane / 4 < kGroup ? *reinterpret_cast<const uint4*>(queries + 32 * i) : uint4{};
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        mma_upper(scores[u], q.x, q.y, keys.k[u][i].x, keys.k[u][i].y);
        mma_upper(scores[u], q.z, q.w, keys.k[u][i].z, keys.k[u][i].w);
      }
    }
#pragma unroll
    for (int u = 0; u < 2; ++u) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int key = step * kStepKeys + 8 * u + b.lane % 4 * 2 + j;
        scores[u][j] = key >= t.first_key && key < t.position ? scores[u][j] * b.p.score_scale : no_score();
        largest = fmaxf(largest, scores[u][j]);
      }
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 2));
    const float base = largest == no_score() ? 0.0f : largest, shrink = fast_exp2(rows.most - base);
    rows.most = largest;
    rows.total *= shrink;
    uint32_t weights[2];
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      const float first = fast_exp2(scores[u][0] - base), second = fast_exp2(scores[u][1] - base);
      rows.total += first + second;
      weights[u] = pair_of(first, second);
    }
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const uint4(&v)[4] = values.v[c];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const uint32_t pick = j % 2 ? 0x7632 : 0x5410;
        rows.out[c][j][0] *= shrink, rows.out[c][j][1] *= shrink;
        mma_upper(rows.out[c][j], weights[0], weights[1], __byte_perm(word_of(v[0], j / 2), word_of(v[1], j / 2), pick),
                  __byte_perm(word_of(v[2], j / 2), word_of(v[3], j / 2), pick));
      }
    }
  }

  __device__ __forceinline__ void put(Rows& rows) const {
    const int g = b.lane / 4, column = b.lane % 4;
    rows.total += __shfl_xor_sync(0xFFFFFFFFu, rows.total, 1);
    rows.total += __shfl_xor_sync(0xFFFFFFFFu, rows.total, 2);
    if (g >= kGroup) return;
    float* to = memory.sums + (b.warp * kGroup + g) * kDim + 2 * column * 8;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int j = 0; j < 8; ++j) to[c * 64 + h * 8 + j] = rows.out[c][j][h];
    if (column == 0) memory.stats[b.warp * kGroup + g] = {rows.most, rows.total};
  }

  // The t.token's own key as an entry with the single weight 1.
  __device__ __forceinline__ void add_own(int r) const {
    const auto pair = [&](int row, int j) {
      return __half22float2(reinterpret_cast<const half2*>(memory.rows + row * kDim)[b.lane + 32 * j]);
    };
    float score = 0;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const float2 q = pair(r, j), k = pair(kMaxGroup, j);
      score += q.x * k.x + q.y * k.y;
      reinterpret_cast<float2*>(memory.sums + (t.n_entries() * kGroup + r) * kDim)[b.lane + 32 * j] =
          pair(kMaxGroup + 1, j);
    }
    score = warp_sum(score) * b.p.score_scale;
    if (b.lane == 0) memory.stats[t.n_entries() * kGroup + r] = {score, 1.0f};
  }

  // Merges n entries that are `step` entries apart, with stats(i) and sum(i). Returns the sum before its division.
  struct Merged {
    float sum, most, total;
  };
  template <class Stats, class Sum>
  static __device__ __forceinline__ Merged merge(int n, Stats&& stats, Sum&& sum) {
    float most = no_score();
    for (int i = 0; i < n; ++i) most = fmaxf(most, stats(i).x);
    const float base = most == no_score() ? 0.0f : most;
    Merged m{0, most, 0};
#pragma unroll 4
    for (int i = 0; i < n; ++i) {
      const float2 stat = stats(i);
      const float weight = fast_exp2(stat.x - base);
      m.total += weight * stat.y, m.sum += weight * sum(i);
    }
    return m;
  }

  __device__ __forceinline__ half* output(int r) const { return b.p.attended + (t.kv_head * kGroup + r) * kDim; }

  // ready() waits for the queries, keys and values. The first step is loaded before that.
  template <class Ready>
  __device__ __forceinline__ void run(Ready&& ready) const {
    const Params& p = b.p;
    Keys keys;
    Values values;
    const auto load = [&](int step, int block) {
      const K* page = row(block, step * kStepKeys, 0);
      load_keys(keys, page);
      load_values(values, page + int64_t{kShape.n_kv_heads} * kDim * kShape.kv_block, t.position - step * kStepKeys);
    };
    if (t.first < t.end) load(t.first, t.first_block);
    ready();
    for (int which = b.warp; which < kGroup + 2; which += kWarps) finish_head(which);
    sync_block();
    if (t.has_own())
      for (int r = kWarps - 1 - b.warp; r < kGroup; r += kWarps) add_own(r);
    if (t.first < t.end) {
      Rows rows{.out = {}, .most = no_score(), .total = 0};
#pragma unroll 1
      for (int step = t.first;;) {
        use(rows, keys, values, step);
        step += kWarps;
        if (step >= t.end) break;
        load(step, t.table[step * kStepKeys / kShape.kv_block]);
      }
      put(rows);
    }
    sync_block();
    const int n_entries = t.n_entries() + t.has_own();
    const int first_part = t.kv_head * kSplits * kGroup;
    for (int i = static_cast<int>(threadIdx.x); i < kGroup * kDim; i += kThreads) {
      const int r = i / kDim, column = i % kDim;
      const Merged m = merge(
          n_entries, [&](int e) { return memory.stats[e * kGroup + r]; },
          [&](int e) { return memory.sums[e * kGroup * kDim + i]; });
      if (t.n_active == 1) {
        output(r)[column] = from_float<half>(__fdividef(m.sum, m.total));
        continue;
      }
      const int part = first_part + t.split * kGroup + r;
      p.parts[part * kDim + column] = m.sum;
      if (column == 0) p.stats[part] = {m.most, m.total};
    }
    if (t.n_active > 1) merge_splits(first_part);
  }

  // The block that comes last merges.
  __device__ __forceinline__ void merge_splits(int first_part) const {
    const Params& p = b.p;
    sync_block();
    if (threadIdx.x == 0) {
      unsigned before;
      asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(p.ended + t.kv_head) : "memory");
      const bool is_last = before + 1 == static_cast<unsigned>(t.n_active);
      if (is_last) p.ended[t.kv_head] = 0;
      b.squares[0] = is_last ? 1.0f : 0.0f;
    }
    sync_block();
    if (b.squares[0] == 0) return;
    for (int i = static_cast<int>(threadIdx.x); i < kGroup * kDim; i += kThreads) {
      const int r = i / kDim, column = i % kDim;
      const Merged m = merge(
          t.n_active, [&](int e) { return __ldcg(p.stats + first_part + e * kGroup + r); },
          [&](int e) { return __ldcg(p.parts + (first_part + e * kGroup) * kDim + i); });
      output(r)[column] = from_float<half>(__fdividef(m.sum, m.total));
    }
  }
};

}  // namespace ingot::cuda::grid
