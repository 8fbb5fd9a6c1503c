// Attention over the paged cache with the tensor cores, for f16 keys and values in pages of whole 16 tokens.
//
// The query heads that share a KV head are packed: row r of a sequence is head r % group of its token r / group. A warp takes 16
// rows and walks over the keys 32 at a time with a running softmax (FlashAttention-2, arXiv:2307.08691). Fragments come straight
// from 16-byte loads, without shared memory: a sum over columns may take them in any order, so lane t of four owns columns 8t to
// 8t + 7 of each 32 of q and k alike; and of v, lane g of eight owns 8 columns of four tokens, paired by byte permutes.
//
// Sequences with many rows give each warp its own rows. Short ones (decode) give all warps of a block, and several blocks, the same
// rows and different keys; the parts are merged by their maxima and sums.
#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"

namespace ingot::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kRows = 16;   // of a warp
constexpr int kKeys = 32;   // of a step
constexpr float kNone = -INFINITY;

struct Params {
  const half* q;
  int64_t q_stride;
  void* y;
  int64_t y_stride;
  bool y_f32;
  DeviceKv kv;
  DeviceBatch batch;
  int layer, group, n_splits, window;
  bool causal;
  float scale, softcap;  // scale by log2(e) too where there is no cap
  float* partials;       // [n_seqs, n_kv_heads, 16, n_splits, head_dim + 2]: sums, then maximum and total
};

struct Span {
  int begin, end;  // keys that a row sees
};

__device__ __forceinline__ Span span_of(const Params& p, int kv_len, int q_len, int row) {
  const int position = kv_len - q_len + row / p.group;
  return {p.window > 0 ? max(0, position + 1 - p.window) : 0, p.causal ? position + 1 : kv_len};
}

// What a warp knows of its 16 rows: queries, the running softmax, and the sums so far. Rows g and g + 8 are this lane's.
template <int kDim>
struct Tile {
  static constexpr int kPerLane = kDim % 64 == 0 ? 8 : 4;   // columns of v that a lane reads at once
  static constexpr int kChunk = 8 * kPerLane, kChunks = kDim / kChunk;
  uint32_t q[kDim / 32][2][4];        // fragments of 16 columns
  float out[kChunks][kPerLane][4];
  float most[2] = {kNone, kNone}, total[2] = {0, 0};

  __device__ void load_q(const Params& p, int token0, int head0, int row0, int n_rows, int g, int t) {
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = row0 + g + 8 * h;
        const half* from = p.q + (token0 + row / p.group) * p.q_stride + (head0 + row % p.group) * kDim + 32 * i + 8 * t;
        const uint4 v = row < n_rows ? *reinterpret_cast<const uint4*>(from) : uint4{};
        q[i][0][h] = v.x, q[i][0][2 + h] = v.y, q[i][1][h] = v.z, q[i][1][2 + h] = v.w;
      }
    }
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) out[c][j][0] = out[c][j][1] = out[c][j][2] = out[c][j][3] = 0;
  }

  // scores[u] = queries times keys 8u to 8u + 7 of the step; page[s] holds keys 16s to 16s + 15.
  __device__ void score(float (&scores)[4][4], const half* const (&page)[2], int g, int t) const {
#pragma unroll
    for (int u = 0; u < 4; ++u) {
      const half* key = page[u / 2] + (u % 2 * 8 + g) * kDim + 8 * t;
      uint4 k[kDim / 32];
#pragma unroll
      for (int i = 0; i < kDim / 32; ++i) k[i] = *reinterpret_cast<const uint4*>(key + 32 * i);
      scores[u][0] = scores[u][1] = scores[u][2] = scores[u][3] = 0;
#pragma unroll
      for (int i = 0; i < kDim / 32; ++i) {
        mma(scores[u], q[i][0][0], q[i][0][1], q[i][0][2], q[i][0][3], k[i].x, k[i].y);
        mma(scores[u], q[i][1][0], q[i][1][1], q[i][1][2], q[i][1][3], k[i].z, k[i].w);
      }
    }
  }

  // Scores to weights, in place; the sums are brought to the new maximum.
  __device__ void soften(float (&scores)[4][4]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = most[h];
#pragma unroll
      for (int u = 0; u < 4; ++u) largest = fmaxf(largest, fmaxf(scores[u][2 * h], scores[u][2 * h + 1]));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 2));
      const float base = largest == kNone ? 0.0f : largest, shrink = exp2f(most[h] - base);
      most[h] = largest;
      total[h] *= shrink;
#pragma unroll
      for (int u = 0; u < 4; ++u) {
#pragma unroll
        for (int j = 2 * h; j < 2 * h + 2; ++j) {
          scores[u][j] = exp2f(scores[u][j] - base);
          total[h] += scores[u][j];
        }
      }
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
#pragma unroll
        for (int j = 0; j < kPerLane; ++j) out[c][j][2 * h] *= shrink, out[c][j][2 * h + 1] *= shrink;
    }
  }

  // out += weights times values of 16 keys; those past n_valid are not read, for their weight is 0 and they may be NaN.
  __device__ void add_values(const float (&w0)[4], const float (&w1)[4], const half* page, int n_valid, int g, int t) {
    const uint32_t a0 = bits_of(__floats2half2_rn(w0[0], w0[1])), a1 = bits_of(__floats2half2_rn(w0[2], w0[3]));
    const uint32_t a2 = bits_of(__floats2half2_rn(w1[0], w1[1])), a3 = bits_of(__floats2half2_rn(w1[2], w1[3]));
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      uint32_t v[4][kPerLane / 2];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = 2 * t + (i & 1) + (i & 2) * 4;
        const half* from = page + key * kDim + c * kChunk + g * kPerLane;
        if constexpr (kPerLane == 8) {
          const uint4 x = key < n_valid ? *reinterpret_cast<const uint4*>(from) : uint4{};
          v[i][0] = x.x, v[i][1] = x.y, v[i][2] = x.z, v[i][3] = x.w;
        } else {
          const uint2 x = key < n_valid ? *reinterpret_cast<const uint2*>(from) : uint2{};
          v[i][0] = x.x, v[i][1] = x.y;
        }
      }
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) {
        const uint32_t pick = j % 2 ? 0x7632 : 0x5410;
        mma(out[c][j], a0, a1, a2, a3, __byte_perm(v[0][j / 2], v[1][j / 2], pick), __byte_perm(v[2][j / 2], v[3][j / 2], pick));
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

  // f(half of the rows, first column of 2 * kPerLane in a row, chunk) for what this lane holds.
  template <class F>
  __device__ void each_piece(int t, F&& f) const {
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        float piece[2 * kPerLane];
#pragma unroll
        for (int j = 0; j < kPerLane; ++j) piece[j] = out[c][j][2 * h], piece[kPerLane + j] = out[c][j][2 * h + 1];
        f(h, c * kChunk + 2 * t * kPerLane, piece);
      }
  }
};

__device__ __forceinline__ const half* page_of(const Params& p, const int32_t* table, int key, int which, int head) {
  const int64_t page = ((int64_t{p.layer} * p.kv.n_blocks + table[key / p.kv.block_size]) * 2 + which) * p.kv.n_kv_heads + head;
  return static_cast<const half*>(p.kv.data) + (page * p.kv.block_size + key % p.kv.block_size) * p.kv.head_dim;
}

// Walks over the steps first, first + stride ... below last.
template <int kDim>
__device__ void walk(Tile<kDim>& tile, const Params& p, int seq, int head, int kv_len, const Span (&spans)[2], Span all, int first, int last,
                     int stride, int g, int t) {
  const int32_t* table = p.batch.block_table + int64_t{seq} * *p.batch.max_blocks;
  const float log2e = 1.44269504f;
  for (int step = first; step < last; step += stride) {
    const int key0 = step * kKeys;
    const int second = key0 + 16 < kv_len ? key0 + 16 : key0;  // a page that exists
    const half* const keys[2] = {page_of(p, table, key0, 0, head), page_of(p, table, second, 0, head)};
    const half* const values[2] = {page_of(p, table, key0, 1, head), page_of(p, table, second, 1, head)};
    float scores[4][4];
    tile.score(scores, keys, g, t);
#pragma unroll
    for (int u = 0; u < 4; ++u)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        scores[u][j] *= p.scale;
        if (p.softcap > 0) scores[u][j] = p.softcap * log2e * tanhf(scores[u][j] / p.softcap);
      }
    if (key0 < all.begin || key0 + kKeys > all.end) {  // some row does not see some key
#pragma unroll
      for (int u = 0; u < 4; ++u)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int key = key0 + 8 * u + 2 * t + j % 2;
          if (key < spans[j / 2].begin || key >= spans[j / 2].end) scores[u][j] = kNone;
        }
    }
    tile.soften(scores);
    tile.add_values(scores[0], scores[1], values[0], kv_len - key0, g, t);
    tile.add_values(scores[2], scores[3], values[1], kv_len - key0 - 16, g, t);
  }
}

__device__ __forceinline__ void store(const Params& p, int64_t at, float v) {
  if (p.y_f32) {
    static_cast<float*>(p.y)[at] = v;
  } else {
    static_cast<half*>(p.y)[at] = from_float<half>(v);
  }
}

template <int kDim>
__global__ void __launch_bounds__(kWarps * 32) long_kernel(const __grid_constant__ Params p) {
  const int seq = blockIdx.z, head = blockIdx.y, warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int token0 = p.batch.q_start[seq], q_len = p.batch.q_start[seq + 1] - token0, kv_len = p.batch.kv_len[seq];
  const int n_rows = q_len * p.group, row0 = ((gridDim.x - 1 - blockIdx.x) * kWarps + warp) * kRows;  // the longest first
  if (n_rows <= kRows || row0 >= n_rows) return;
  const int last_row = min(row0 + kRows, n_rows) - 1;
  const Span spans[2] = {span_of(p, kv_len, q_len, min(row0 + g, last_row)), span_of(p, kv_len, q_len, min(row0 + g + 8, last_row))};
  const Span lowest = span_of(p, kv_len, q_len, row0), highest = span_of(p, kv_len, q_len, last_row);
  Tile<kDim> tile;
  tile.load_q(p, token0, head * p.group, row0, n_rows, g, t);
  walk(tile, p, seq, head, kv_len, spans, {highest.begin, lowest.end}, lowest.begin / kKeys, (highest.end + kKeys - 1) / kKeys, 1, g, t);
  tile.finish_totals();
  tile.each_piece(t, [&](int h, int column, const float* piece) {
    const int row = row0 + g + 8 * h;
    if (row >= n_rows) return;
    const float inverse = 1.0f / tile.total[h];
    const int64_t at = (token0 + row / p.group) * p.y_stride + (head * p.group + row % p.group) * kDim + column;
#pragma unroll
    for (int j = 0; j < 2 * Tile<kDim>::kPerLane; ++j) store(p, at + j, piece[j] * inverse);
  });
}

template <int kDim>
__global__ void __launch_bounds__(kWarps * 32) short_kernel(const __grid_constant__ Params p) {
  extern __shared__ float shared[];  // [kWarps, 16, kDim] sums, then [kWarps, 16, 2] maxima and totals
  const int split = blockIdx.x, head = blockIdx.y, seq = blockIdx.z;
  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
  const int token0 = p.batch.q_start[seq], q_len = p.batch.q_start[seq + 1] - token0, kv_len = p.batch.kv_len[seq];
  const int n_rows = q_len * p.group;
  if (n_rows > kRows) return;
  const Span spans[2] = {span_of(p, kv_len, q_len, min(g, n_rows - 1)), span_of(p, kv_len, q_len, min(g + 8, n_rows - 1))};
  const Span lowest = span_of(p, kv_len, q_len, 0), highest = span_of(p, kv_len, q_len, n_rows - 1);
  const int first = lowest.begin / kKeys, n_steps = (highest.end + kKeys - 1) / kKeys - first;
  const int per_split = (n_steps + p.n_splits - 1) / p.n_splits;
  const int begin = first + split * per_split, end = min(begin + per_split, first + n_steps);
  Tile<kDim> tile;
  tile.load_q(p, token0, head * p.group, 0, n_rows, g, t);
  walk(tile, p, seq, head, kv_len, spans, {highest.begin, lowest.end}, begin + warp, end, kWarps, g, t);
  tile.finish_totals();

  float* stats = shared + kWarps * kRows * kDim;
  tile.each_piece(t, [&](int h, int column, const float* piece) {
    float* to = shared + (warp * kRows + g + 8 * h) * kDim + column;
#pragma unroll
    for (int j = 0; j < 2 * Tile<kDim>::kPerLane; ++j) to[j] = piece[j];
  });
  if (t == 0) {
    for (int h = 0; h < 2; ++h) {
      stats[(warp * kRows + g + 8 * h) * 2] = tile.most[h];
      stats[(warp * kRows + g + 8 * h) * 2 + 1] = tile.total[h];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < n_rows * kDim; i += blockDim.x) {
    const int row = i / kDim, column = i % kDim;
    float most = kNone, sum = 0, total = 0;
    for (int w = 0; w < kWarps; ++w) most = fmaxf(most, stats[(w * kRows + row) * 2]);
    const float base = most == kNone ? 0.0f : most;
    for (int w = 0; w < kWarps; ++w) {
      const float weight = exp2f(stats[(w * kRows + row) * 2] - base);
      sum += weight * shared[(w * kRows + row) * kDim + column];
      total += weight * stats[(w * kRows + row) * 2 + 1];
    }
    if (p.n_splits == 1) {
      store(p, (token0 + row / p.group) * p.y_stride + (head * p.group + row % p.group) * kDim + column, sum / total);
      continue;
    }
    float* part = p.partials + (((int64_t{seq} * gridDim.y + head) * kRows + row) * p.n_splits + split) * (kDim + 2);
    part[column] = sum;
    if (column == 0) part[kDim] = most, part[kDim + 1] = total;
  }
}

// Merges the splits of one row: one block a row of a sequence and KV head, one thread a column.
template <int kDim>
__global__ void merge_kernel(const __grid_constant__ Params p) {
  const int row = blockIdx.x, head = blockIdx.y, seq = blockIdx.z, column = threadIdx.x;
  const int token0 = p.batch.q_start[seq], n_rows = (p.batch.q_start[seq + 1] - token0) * p.group;
  if (n_rows > kRows || row >= n_rows) return;
  const float* parts = p.partials + ((int64_t{seq} * gridDim.y + head) * kRows + row) * p.n_splits * (kDim + 2);
  float most = kNone, sum = 0, total = 0;
  for (int s = 0; s < p.n_splits; ++s) most = fmaxf(most, parts[s * (kDim + 2) + kDim]);
  for (int s = 0; s < p.n_splits; ++s) {
    const float* part = parts + s * (kDim + 2);
    const float weight = exp2f(part[kDim] - most);
    sum += weight * part[column];
    total += weight * part[kDim + 1];
  }
  store(p, (token0 + row / p.group) * p.y_stride + (head * p.group + row % p.group) * kDim + column, sum / total);
}

template <int kDim>
void run(const Params& p, const AttentionPlan& plan, cudaStream_t stream) {
  const auto n_seqs = static_cast<unsigned>(plan.n_seqs), n_heads = static_cast<unsigned>(p.kv.n_kv_heads);
  if (plan.any_long) {
    const unsigned n_blocks = blocks_for(int64_t{plan.max_q_len} * p.group, kWarps * kRows);
    long_kernel<kDim><<<dim3(n_blocks, n_heads, n_seqs), kWarps * 32, 0, stream>>>(p);
  }
  if (!plan.any_short) return;
  constexpr int kShared = kWarps * kRows * (kDim + 2) * static_cast<int>(sizeof(float));
  static_assert(kShared <= 48 * 1024);
  short_kernel<kDim><<<dim3(static_cast<unsigned>(plan.n_splits), n_heads, n_seqs), kWarps * 32, kShared, stream>>>(p);
  if (plan.n_splits > 1) {
    merge_kernel<kDim><<<dim3(kRows, n_heads, n_seqs), kDim, 0, stream>>>(p);
  }
}

}  // namespace

bool can_attend(const DeviceKv& kv, const AttentionArgs& a) {
  const bool known = a.head_dim == 32 || a.head_dim == 64 || a.head_dim == 96 || a.head_dim == 128;
  return known && kv.dtype == DType::kF16 && kv.block_size % 16 == 0 && a.n_heads / a.n_kv_heads <= kRows;
}

int short_rows(int group) { return kRows / group; }

void attend(const Tensor& y, const Tensor& q, const DeviceKv& kv, const AttentionArgs& a, const DeviceBatch& batch,
            const AttentionPlan& plan, cudaStream_t stream) {
  CHECK(q.dtype == DType::kF16 && q.stride % 8 == 0);
  Params p{};
  p.q = static_cast<const half*>(q.data);
  p.q_stride = q.stride;
  p.y = y.data;
  p.y_stride = y.stride;
  p.y_f32 = y.dtype == DType::kF32;
  p.kv = kv;
  p.batch = batch;
  p.layer = a.layer;
  p.group = a.n_heads / a.n_kv_heads;
  p.n_splits = plan.n_splits;
  p.window = a.window;
  p.causal = a.causal;
  p.scale = a.softcap > 0 ? a.scale : a.scale * 1.44269504f;
  p.softcap = a.softcap;
  p.partials = plan.partials;
  switch (a.head_dim) {
    case 32: return run<32>(p, plan, stream);
    case 64: return run<64>(p, plan, stream);
    case 96: return run<96>(p, plan, stream);
    case 128: return run<128>(p, plan, stream);
  }
}

}  // namespace ingot::cuda
