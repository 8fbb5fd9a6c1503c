// Shared by the attention kernels: packed rows, a warp's tile of 16 rows with its running softmax (FlashAttention-2,
// arXiv:2307.08691), rows of the cache, and the splits of a sequence's keys.
//
// The query heads that share a KV head are packed: row r of a sequence is head r % group of its token r / group. A sum
// over columns may add them in any order. So lane t of four owns columns 8t to 8t + 7 of each 32 in both q and k, and
// reads 16 bytes at once.
#pragma once
#include "backend/cuda/attention/cache.cuh"

namespace ingot::cuda {

namespace attention {

inline constexpr int kWarps = 4;
inline constexpr int kRows = 16;  // of a warp
inline constexpr int kKeys = 32;  // of a step
inline constexpr float kNone = -INFINITY;

struct Params {
  const half* q;
  int64_t q_stride;
  void* y;
  int64_t y_stride;
  bool y_f32, rounds;  // rounds: halves have 8 bits of precision
  DeviceKv kv;
  DeviceBatch batch;
  int layer, group, window;
  bool causal;
  float scale, softcap;  // without a cap, scale includes the factor log2(e)
  const float* sinks;    // [n heads] or null
  uint32_t block_factor;  // 2^32 / block size of the cache, rounded up: divides numbers of tokens
  int fewest_rows, most_rows;  // of the sequences that the kernel computes
  AttentionBlocks blocks;
  // With blocks.n_splits > 1: the parts of the splits. n_row_blocks and rows are those of `blocks`.
  float* part_sums;    // [n_seqs, n_kv_heads, n_row_blocks, rows, n_splits, head_dim]
  float2* part_stats;  // [n_seqs, n_kv_heads, n_row_blocks, rows, n_splits]: maximum, total
};

__device__ __forceinline__ bool takes(const Params& p, int n_rows) {
  return n_rows >= p.fewest_rows && n_rows <= p.most_rows;
}

// Index of a row's first split in part_stats. In part_sums, the offset is this index times head_dim.
__device__ __forceinline__ int64_t first_part(const Params& p, int seq, int head, int row_block, int row) {
  const AttentionBlocks& b = p.blocks;
  return (((int64_t{seq} * p.kv.n_kv_heads + head) * b.n_row_blocks + row_block) * b.rows + row) * b.n_splits;
}

// Adds the weight of a head's sink to the total of its other weights, all relative to 2^most. If the sink's weight
// overflows to infinity, the result of the row is 0, as it should be.
__device__ __forceinline__ float with_sink(const Params& p, float total, float row_max, int head) {
  return p.sinks == nullptr ? total : total + exp2f(p.sinks[head] * 1.44269504f - row_max);
}

struct Span {
  int begin, end;  // keys that a row sees
};

__device__ __forceinline__ Span span_of(const Params& p, int kv_len, int q_len, int row) {
  const int position = kv_len - q_len + row / p.group;
  return {p.window > 0 ? max(0, position + 1 - p.window) : 0, p.causal       ? position + 1
                                                              : p.window > 0 ? min(kv_len, position + p.window)
                                                                             : kv_len};
}

// The keys that rows [row, last_row] of a sequence see.
__device__ __forceinline__ Span span_of(const Params& p, int kv_len, int q_len, int row, int last_row) {
  return {span_of(p, kv_len, q_len, row).begin, span_of(p, kv_len, q_len, last_row).end};
}

// The number of splits that have keys. A launch has n_splits splits, whatever the lengths of its sequences are.
__device__ __forceinline__ int active_splits(const Params& p, const Span& keys) {
  const int bits = p.blocks.split_bits;
  return max(1, min(p.blocks.n_splits, (keys.end - keys.begin + (1 << bits) - 1) >> bits));
}

// Divides keys among the active splits, in whole steps of kStep keys. A step is at most 2^split_bits keys, so each
// active split has a step.
template <int kStep>
struct Split {
  int n_active, first, n_steps;  // first, n_steps: of the keys, in steps

  __device__ Split(const Params& p, const Span& keys)
      : n_active(active_splits(p, keys)), first(keys.begin / kStep), n_steps((keys.end + kStep - 1) / kStep - first) {}
  // The steps of a split.
  __device__ Span steps(int split) const {
    const int each = n_steps / n_active, longer = n_steps % n_active, begin = first + split * each + min(split, longer);
    return {begin, begin + each + (split < longer)};
  }
};

// Whether earlier steps have written all keys before step `end` of kKeys keys. No kernel changes such keys until the
// next upload of a batch, so a kernel may read them before the previous kernel ends.
__device__ __forceinline__ bool are_old(int end, int kv_len, int q_len) { return end * kKeys <= kv_len - q_len; }

// The state of a warp's 16 rows: queries, the running softmax, and the sums so far. A lane holds rows g and g + 8.
template <int kDim>
struct Tile {
  static constexpr int kPerLane = kDim % 64 == 0 ? 8 : 4;  // columns of v that a lane reads at once
  static constexpr int kChunk = 8 * kPerLane, kChunks = kDim / kChunk;
  uint32_t q[kDim / 32][2][4];  // fragments of 16 columns
  float out[kChunks][kPerLane][4];
  float row_max[2] = {kNone, kNone}, total[2] = {0, 0};

  // Lane t owns columns 8t to 8t + 7 of each 32.
  __device__ void load_q(const Params& p, int token0, int head0, int row0, int n_rows, int g, int t) {
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = row0 + g + 8 * h;
        const half* from =
            p.q + (token0 + row / p.group) * p.q_stride + (head0 + row % p.group) * kDim + 32 * i + 8 * t;
        const uint4 v = row < n_rows ? *reinterpret_cast<const uint4*>(from) : uint4{};
        q[i][0][h] = v.x, q[i][0][2 + h] = v.y, q[i][1][h] = v.z, q[i][1][2 + h] = v.w;
      }
    }
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) out[c][j][0] = out[c][j][1] = out[c][j][2] = out[c][j][3] = 0;
  }

  // Turns scores into weights, in place, and rescales the sums to the new maximum.
  __device__ void softmax_update(float (&scores)[4][4]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = row_max[h];
#pragma unroll
      for (int u = 0; u < 4; ++u) largest = fmaxf(largest, fmaxf(scores[u][2 * h], scores[u][2 * h + 1]));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 2));
      const float base = largest == kNone ? 0.0f : largest, shrink = fast_exp2(row_max[h] - base);
      row_max[h] = largest;
      total[h] *= shrink;
#pragma unroll
      for (int u = 0; u < 4; ++u) {
#pragma unroll
        for (int j = 2 * h; j < 2 * h + 2; ++j) {
          scores[u][j] = fast_exp2(scores[u][j] - base);
          total[h] += scores[u][j];
        }
      }
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
#pragma unroll
        for (int j = 0; j < kPerLane; ++j) out[c][j][2 * h] *= shrink, out[c][j][2 * h + 1] *= shrink;
    }
  }

  // Values of 16 keys. From n_valid on they are set to zero, because they may be NaN, and 0 * NaN is NaN.
  struct Values {
    uint32_t v[kChunks][4][kPerLane / 2];
  };
  template <class K>
  __device__ void load_values(Values& values, const K* page, int n_valid, int g, int t) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = 2 * t + (i & 1) + (i & 2) * 4;
        const K* from = page + key * kDim + c * kChunk + g * kPerLane;
        uint32_t(&v)[kPerLane / 2] = values.v[c][i];
        if constexpr (kPerLane == 8) {
          const uint4 x = key < n_valid ? load8(from) : uint4{};
          v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w;
        } else {
          const uint2 x = key < n_valid ? load4(from) : uint2{};
          v[0] = x.x, v[1] = x.y;
        }
      }
    }
  }
  __device__ void finish_totals() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      total[h] += __shfl_xor_sync(0xFFFFFFFFu, total[h], 1);
      total[h] += __shfl_xor_sync(0xFFFFFFFFu, total[h], 2);
    }
  }
};

// The row of a key (which = 0) or value (1) in the cache.
__device__ __forceinline__ int64_t row_of(const Params& p, const int32_t* table, int key, int which, int head) {
  return cached_row(p.kv, p.layer, table[key / p.kv.block_size], key, which, head);
}

__device__ __forceinline__ void store(const Params& p, int64_t at, float v) {
  if (p.y_f32) {
    static_cast<float*>(p.y)[at] = v;
  } else {
    static_cast<half*>(p.y)[at] = from_float<half>(p.rounds ? eight_bits(make_float2(v, v)).x : v);
  }
}

// The rows, and the part of their keys, that a block of a kernel for many rows computes.
struct Part {
  int seq, head, row_block, split, n_active, token0;
};

// Where the sums of a row go: to y, or to the part of a split.
struct RowEnd {
  bool is_whole;
  float factor;
  int64_t at;  // in y, or in part_sums

  // row: of the sequence. most, total: of its keys here. Lane t = 0 of the row's four lanes stores these for a split.
  __device__ RowEnd(const Params& p, const Part& part, int row, float row_max, float total, int t)
      : is_whole(part.n_active == 1) {
    const int head = part.head * p.group + row % p.group;
    if (is_whole) {
      factor = 1.0f / with_sink(p, total, row_max, head);
      at = (part.token0 + row / p.group) * p.y_stride + head * p.kv.head_dim;
      return;
    }
    const int64_t i =
        first_part(p, part.seq, part.head, part.row_block, row - part.row_block * p.blocks.rows) + part.split;
    if (t == 0) p.part_stats[i] = make_float2(row_max, total);
    factor = 1.0f, at = i * p.kv.head_dim;
  }
  // Stores two neighbouring columns.
  __device__ __forceinline__ void store(const Params& p, int column, float first, float second) const {
    first *= factor, second *= factor;
    if (!is_whole || p.y_f32) {
      float* to = is_whole ? static_cast<float*>(p.y) : p.part_sums;
      *reinterpret_cast<float2*>(to + at + column) = make_float2(first, second);
    } else {
      const float2 v = p.rounds ? eight_bits(make_float2(first, second)) : make_float2(first, second);
      *reinterpret_cast<half2*>(static_cast<half*>(p.y) + at + column) =
          __halves2half2(from_float<half>(v.x), from_float<half>(v.y));
    }
  }
};

// Applies scale, cap and mask to the scores of 8 n keys from key0. Every row sees the keys of `all`.
template <int n>
__device__ __forceinline__ void mask(float (&scores)[n][4], const Params& p, int key0, const Span (&spans)[2],
                                     const Span& all, int t) {
  const float log2e = 1.44269504f;
#pragma unroll
  for (int u = 0; u < n; ++u)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      scores[u][j] *= p.scale;
      if (p.softcap > 0) scores[u][j] = p.softcap * log2e * tanhf(scores[u][j] / p.softcap);
    }
  if (key0 >= all.begin && key0 + 8 * n <= all.end) return;
#pragma unroll
  for (int u = 0; u < n; ++u)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int key = key0 + 8 * u + 2 * t + j % 2;
      if (key < spans[j / 2].begin || key >= spans[j / 2].end) scores[u][j] = kNone;
    }
}

__device__ __forceinline__ void store8(uint32_t to, const uint4& v) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
// Copies 16 bytes to shared memory asynchronously; zeros unless `in`.
__device__ __forceinline__ void copy8(uint32_t to, const half* from, bool in) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(in ? 16 : 0) : "memory");
}
// Copies 8 elements of a key (which = 0) or value (1), a row of `dim` elements, to shared memory as halves; zeros
// unless `in`. Only copies of f16 are asynchronous.
template <class K, class V, int which>
__device__ __forceinline__ void copy_cached(uint32_t to, const Params& p, int64_t row, int dim, int column, bool in) {
  using E = std::conditional_t<which == 0, K, V>;
  const auto rows = [&] { return rows_of<K, V>(p.kv, which); };
  const E* from = in ? cached_at<E>(rows(), row, dim, column) : static_cast<const E*>(rows().data);
  if constexpr (std::is_same_v<E, half>) {
    copy8(to, from, in);
  } else if constexpr (kIsScaled<E>) {
    store8(to, in ? times(load8(from), cached_scales(rows(), row, dim)[column / kScaleGroup]) : uint4{});
  } else {
    store8(to, in ? load8(from) : uint4{});
  }
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

}  // namespace attention

// The kernels from which attention/attend.cu chooses. attention/decode.cu: sequences with few rows, heads of 32, 64, 96
// and 128.
void attend_short(const attention::Params& p, const AttentionPlan& plan, Device& device);
// attention/wide.cu: any number of rows, with heads of any multiple of 8.
WideShape wide_shape(int head_dim, bool latent, int64_t n_rows, const DeviceLimits& device);
void attend_wide(const attention::Params& p, const AttentionPlan& plan, Device& device);
// attention/merge.cu: merges the splits that a kernel computed.
void merge_splits(const attention::Params& p, const AttentionPlan& plan, Device& device);
// attention/prefill.cu: many rows. Returns the rows of a block; 0 if the kernel does not support these heads.
int long_block_rows(int head_dim, const DeviceLimits& device);
void attend_long(const attention::Params& p, const AttentionPlan& plan, Device& device);
// attention/hopper.cu: the same on Hopper.
int hopper_block_rows(const DeviceKv& kv, const AttentionArgs& a, const DeviceLimits& device);
void attend_hopper(const attention::Params& p, const AttentionPlan& plan, Device& device);

}  // namespace ingot::cuda
