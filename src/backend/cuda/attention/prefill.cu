// Attention of sequences with many rows (prompts). A block has 64 rows, 16 per warp, and loops over the keys 64 at a
// time. Keys and values are double-buffered in shared memory, and swizzled to avoid bank conflicts. ldmatrix transposes
// the values on the way to registers. Pages have a multiple of 16 tokens, and each warp copies 16 tokens of a tile.
// Copies of f16 overlap with the arithmetic (cp.async); other types become f16 during the copy. If the blocks would not
// fill the GPU, several blocks share the keys of the same rows (Split).
#include "backend/cuda/attention/attention.cuh"
#include "backend/cuda/memory.h"

namespace ingot::cuda {

using namespace attention;

namespace {

constexpr int kTileKeys = 64, kBlockRows = kWarps * kRows;

__device__ __forceinline__ uint4 load_shared(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address));
  return v;
}

// A tile in shared memory: rows of kPieces pieces of 16 bytes. Piece c of row r is at place c ^ key_swizzle(r), or c ^
// value_swizzle(r).
template <int kDim>
struct Shared {
  static constexpr int kPieces = kDim / 8, kRowBytes = kDim * 2, kTileBytes = kTileKeys * kRowBytes;
  static constexpr bool kWhole = kPieces % 8 == 0;  // rows of whole 128 bytes
  static __device__ __forceinline__ int key_swizzle(int row) { return kWhole ? (row & 1) * 4 : 0; }
  static __device__ __forceinline__ int value_swizzle(int row) { return kWhole ? row & 7 : row >> 1 & 3; }
};

// Copies this warp's 16 of the 64 keys and values from key0; zeros past the last key.
template <int kDim, class K, class V>
__device__ void copy_tile(uint32_t keys, uint32_t values, const Params& p, const int32_t* table, int head, int key0,
                          int kv_len, int warp, int lane) {
  using S = Shared<kDim>;
  const int first = key0 + 16 * warp, from_key = first < kv_len ? first : 0;
  const int64_t k = row_of(p, table, from_key, 0, head), v = row_of(p, table, from_key, 1, head);
#pragma unroll
  for (int i = lane; i < 16 * S::kPieces; i += 32) {
    const int row = i / S::kPieces, piece = i % S::kPieces;
    const bool in = first + row < kv_len;
    const int at = (16 * warp + row) * S::kRowBytes;
    copy_cached<K, V, 0>(keys + at + 16 * (piece ^ S::key_swizzle(row)), p, k + row, kDim, 8 * piece, in);
    copy_cached<K, V, 1>(values + at + 16 * (piece ^ S::value_swizzle(row)), p, v + row, kDim, 8 * piece, in);
  }
  commit_copies();
}

// scores[u] = queries times keys 8u to 8u + 7 from row `first` of the tile.
template <int kDim>
__device__ __forceinline__ void score(float (&scores)[4][4], const Tile<kDim>& tile, uint32_t keys, int first, int g,
                                      int t) {
  using S = Shared<kDim>;
#pragma unroll
  for (int u = 0; u < 4; ++u) {
    const uint32_t row = keys + (first + 8 * u + g) * S::kRowBytes;
    scores[u][0] = scores[u][1] = scores[u][2] = scores[u][3] = 0;
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) {
      const uint4 k = load_shared(row + 16 * ((4 * i + t) ^ S::key_swizzle(g)));
      const auto& q = tile.q[i];
      mma(scores[u], q[0][0], q[0][1], q[0][2], q[0][3], k.x, k.y);
      mma(scores[u], q[1][0], q[1][1], q[1][2], q[1][3], k.z, k.w);
    }
  }
}

// out += weights times the values of 16 keys from row `first` of the tile. Here the i-th element of out holds columns
// 8i + 2t and 8i + 2t + 1.
template <int kDim>
__device__ __forceinline__ void add_values(Tile<kDim>& tile, const float (&w0)[4], const float (&w1)[4],
                                           uint32_t values, int first, int lane) {
  using S = Shared<kDim>;
  const uint32_t a0 = bits_of(__floats2half2_rn(w0[0], w0[1])), a1 = bits_of(__floats2half2_rn(w0[2], w0[3]));
  const uint32_t a2 = bits_of(__floats2half2_rn(w1[0], w1[1])), a3 = bits_of(__floats2half2_rn(w1[2], w1[3]));
  const int in_16 = lane % 16;
  const uint32_t row = values + (first + in_16) * S::kRowBytes;
  constexpr int kPerLane = Tile<kDim>::kPerLane;
#pragma unroll
  for (int i = 0; i < kDim / 8; i += 2) {
    uint32_t v[4];
    load_transposed(v, row + 16 * ((i + lane / 16) ^ S::value_swizzle(in_16)));
    mma(tile.out[i / kPerLane][i % kPerLane], a0, a1, a2, a3, v[0], v[1]);
    mma(tile.out[i / kPerLane][i % kPerLane + 1], a0, a1, a2, a3, v[2], v[3]);
  }
}

template <int kDim>
__device__ void write_rows(const Tile<kDim>& tile, const Params& p, const Part& part, int row0, int n_rows, int g,
                           int t) {
  constexpr int kPerLane = Tile<kDim>::kPerLane;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = row0 + g + 8 * h;
    if (row >= n_rows) continue;
    const RowEnd to(p, part, row, tile.row_max[h], tile.total[h], t);
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i) {
      const float* sums = tile.out[i / kPerLane][i % kPerLane];
      to.store(p, 8 * i + 2 * t, sums[2 * h], sums[2 * h + 1]);
    }
  }
}

template <int kDim, class K, class V>
__global__ void __launch_bounds__(kWarps * 32, kDim > 128 ? 1 : 3) long_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) char shared[];  // [2] tiles of keys, [2] tiles of values
  using S = Shared<kDim>;
  start_dependent();
  const int seq = blockIdx.z, head = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4,
            t = lane % 4;
  const int token0 = p.batch.q_start[seq], q_len = p.batch.q_start[seq + 1] - token0, kv_len = p.batch.kv_len[seq];
  const int n_rows = q_len * p.group, split = static_cast<int>(blockIdx.x) / p.blocks.n_row_blocks,
            row_block =
                p.blocks.n_row_blocks - 1 - static_cast<int>(blockIdx.x) % p.blocks.n_row_blocks,  // the longest first
      block_row = row_block * kBlockRows;
  if (!takes(p, n_rows) || block_row >= n_rows) return;
  const Split<kTileKeys> splits(p, span_of(p, kv_len, q_len, block_row, min(block_row + kBlockRows, n_rows) - 1));
  if (split >= splits.n_active) return;
  const Span tiles = splits.steps(split);
  const int row0 = block_row + warp * kRows, last_row = min(row0 + kRows, n_rows) - 1;
  const bool idle = row0 >= n_rows;  // a warp that only copies
  const Span spans[2] = {span_of(p, kv_len, q_len, min(row0 + g, n_rows - 1)),
                         span_of(p, kv_len, q_len, min(row0 + g + 8, n_rows - 1))};
  const Span lowest = span_of(p, kv_len, q_len, min(row0, n_rows - 1)),
             highest = span_of(p, kv_len, q_len, max(last_row, 0));
  const int32_t* table = p.batch.block_table + int64_t{seq} * *p.batch.max_blocks;
  const uint32_t base = shared_address(shared);
  Tile<kDim> tile;
  tile.load_q(p, token0, head * p.group, row0, n_rows, g, t);

  copy_tile<kDim, K, V>(base, base + 2 * S::kTileBytes, p, table, head, tiles.begin * kTileKeys, kv_len, warp, lane);
  int buffer = 0;
  for (int i = tiles.begin; i < tiles.end; ++i, buffer ^= 1) {
    const int key0 = i * kTileKeys;
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();  // the tile has arrived, and no warp reads the other buffer
    const uint32_t keys = base + buffer * S::kTileBytes, values = base + (2 + buffer) * S::kTileBytes;
    if (i + 1 < tiles.end) {
      const uint32_t other = base + (buffer ^ 1) * S::kTileBytes;
      copy_tile<kDim, K, V>(other, other + 2 * S::kTileBytes, p, table, head, key0 + kTileKeys, kv_len, warp, lane);
    }
#pragma unroll
    for (int part = 0; part < kTileKeys; part += kKeys) {
      const int first = key0 + part;
      if (idle || first >= highest.end || first + kKeys <= lowest.begin) continue;
      float scores[4][4];
      score(scores, tile, keys, part, g, t);
      mask(scores, p, first, spans, {highest.begin, lowest.end}, t);
      tile.softmax_update(scores);
      add_values(tile, scores[0], scores[1], values, part, lane);
      add_values(tile, scores[2], scores[3], values, part + 16, lane);
    }
  }
  if (idle) return;
  tile.finish_totals();
  write_rows(tile, p, {seq, head, row_block, split, splits.n_active, token0}, row0, n_rows, g, t);
}

template <int kDim, class K, class V>
void run_with(const Params& p, const AttentionPlan& plan, Device& device) {
  constexpr int kBytes = 4 * Shared<kDim>::kTileBytes;
  const dim3 grid(static_cast<unsigned>(p.blocks.n_row_blocks * p.blocks.n_splits),
                  static_cast<unsigned>(p.kv.n_kv_heads), static_cast<unsigned>(plan.n_seqs));
  launch(device, long_kernel<kDim, K, V>, grid, kWarps * 32, kBytes, p);
}

template <int kDim>
void run(const Params& p, const AttentionPlan& plan, Device& device) {
  with_cached_half(p.kv, [&](auto* k, auto* v) {
    run_with<kDim, std::remove_pointer_t<decltype(k)>, std::remove_pointer_t<decltype(v)>>(p, plan, device);
  });
}

}  // namespace

int long_block_rows(int head_dim, const DeviceLimits& device) {
  const bool known = head_dim == 32 || head_dim == 64 || head_dim == 96 || head_dim == 128 || head_dim == 256;
  return known && static_cast<size_t>(8 * kTileKeys * head_dim) <= device.most_shared ? kBlockRows : 0;
}

void attend_long(const Params& p, const AttentionPlan& plan, Device& device) {
  switch (p.kv.head_dim) {
    case 32: return run<32>(p, plan, device);
    case 64: return run<64>(p, plan, device);
    case 96: return run<96>(p, plan, device);
    case 128: return run<128>(p, plan, device);
    case 256: return run<256>(p, plan, device);
  }
}

}  // namespace ingot::cuda
