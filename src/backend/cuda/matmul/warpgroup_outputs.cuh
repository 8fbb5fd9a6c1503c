// The end of a tile of warpgroup_matmul.cuh: blocks that share the tile add up their sums, and the outputs are written.
// A warp handles its own 2 x 16 rows of weights without waiting for other warps of its block.
#pragma once
#include "backend/cuda/device.cuh"
#include "backend/cuda/matmul/matvec_tiles.cuh"

namespace ingot::cuda::warpgroup_kernel {

using matvec_tiles::Job;
using matvec_tiles::job_of;
using matvec_tiles::pick;
using matvec_tiles::Shape;
using matvec_tiles::shape_of;

constexpr int kTiles = 16, kOwn = 2;      // tiles of 16 rows of weights, in a tile of outputs and of a warp
constexpr int kWarps = kTiles / kOwn;     // that multiply
constexpr int kChunk = 16;                // tokens that a warp finishes at once
constexpr int kMaxTokens = 128;           // in a tile of outputs
constexpr int kStageRow = kTileRows + 4;  // floats in a row of outputs in shared memory, against bank conflicts
constexpr int kStageBytes = kOwn * kChunk * kStageRow * 4;  // of a warp

struct Params : matvec_tiles::Params {
  float4* parts;  // [blocks, kWarps, tokens / 4, 32 lanes]: sums for other blocks
  int* ready;     // [blocks, kWarps]: blocks that have not read this warp's part; zero between launches
};

// Which steps of which tiles a block multiplies. All tiles of a block have the same rows of activations, a token tile.
// Blocks 0, 1, 2 ... have token tile 0, 1, 2 ... in turns, so that blocks with the same weights run side by side, and
// the weights are read from memory once. The steps of all tiles of a token tile, one tile after the other, are divided
// evenly among its blocks. A block goes through its share from the last tile to the first one, and in a tile from the
// first step to the last one.
template <int kTokens, Shape kShape>
struct Share {
  const Params& p;
  int end, begin;  // steps [begin, end) of all tiles are those of one tile; the steps before are left

  __device__ __forceinline__ explicit Share(const Params& params) : p(params) { end = begin = begin_of(index() + 1); }
  // All other numbers are computed when they are needed, because the products need the registers.
  __device__ __forceinline__ int tile() const { return (end - 1) / n_steps(); }
  __device__ __forceinline__ int first() const { return begin - tile() * n_steps(); }  // step of the tile
  __device__ __forceinline__ int last() const { return end - tile() * n_steps(); }
  __device__ __forceinline__ bool next() {
    const int start = begin_of(index());
    if (begin == start) return false;
    end = begin;
    begin = max(start, tile() * n_steps());
    return true;
  }
  __device__ __forceinline__ int n_steps() const { return shape_of<kShape>(p).n_steps; }  // of a tile
  __device__ __forceinline__ int n_tiles() const {
    const Shape s = shape_of<kShape>(p);
    return s.act >= 0 ? (s.n_tiles + kTiles / 2 - 1) / (kTiles / 2) : (s.n_tiles + kTiles - 1) / kTiles;
  }
  __device__ __forceinline__ int n_token_tiles() const { return (p.n + kTokens - 1) / kTokens; }
  __device__ __forceinline__ int token_tile() const { return static_cast<int>(blockIdx.x) % n_token_tiles(); }
  __device__ __forceinline__ int n_shares() const { return static_cast<int>(gridDim.x) / n_token_tiles(); }
  __device__ __forceinline__ int index() const { return static_cast<int>(blockIdx.x) / n_token_tiles(); }
  __device__ __forceinline__ int block_of(int share) const { return share * n_token_tiles() + token_tile(); }
  __device__ __forceinline__ int begin_of(int share) const {
    return static_cast<int>(static_cast<int64_t>(share) * (n_tiles() * n_steps()) / n_shares());
  }
  // The share that has this step.
  __device__ __forceinline__ int share_of(int step) const {
    return static_cast<int>(((step + int64_t{1}) * n_shares() - 1) / (n_tiles() * n_steps()));
  }
};

// A warp's j-th tile of 16 rows in a tile of outputs; with a gate, a tile of the j-th weight.
__device__ __forceinline__ int tile_of(bool gated, int outputs, int warp, int j) {
  const int group = warp / 4, in_group = warp % 4;
  return gated ? outputs * (kTiles / 2) + 4 * group + in_group : outputs * kTiles + 8 * group + 4 * j + in_group;
}

// Writes four neighbours of a row of y; only the first `n` of them exist. If not all four are written at once, adds to
// them with `accumulate`.
__device__ __forceinline__ void write4(float* y, const float4& v, int n, bool accumulate, bool packs) {
  if (packs) {
    *reinterpret_cast<float4*>(y) = v;
    return;
  }
  const float values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (i < n) y[i] = accumulate ? y[i] + values[i] : values[i];
}
__device__ __forceinline__ void write4(half* y, const float4& v, int n, bool accumulate, bool packs) {
  const float values[4] = {v.x, v.y, v.z, v.w};
  __align__(8) half whole[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    whole[i] = from_float<half>(!packs && accumulate && i < n ? to_float(y[i]) + values[i] : values[i]);
  if (packs) {
    *reinterpret_cast<uint2*>(y) = *reinterpret_cast<const uint2*>(whole);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
    if (i < n) y[i] = whole[i];
}

// Copies a chunk of sums to stage [kOwn, kChunk, kStageRow], so that lanes can read four neighbouring rows of a token.
template <int kTokens>
__device__ __forceinline__ void put_chunk(float* stage, const float (&acc)[kOwn][kTokens / 2], int chunk, int lane) {
#pragma unroll
  for (int k = 0; k < kTokens / kChunk; ++k) {
    if (k != chunk) continue;
#pragma unroll
    for (int j = 0; j < kOwn; ++j)
#pragma unroll
      for (int e = 0; e < 8; ++e)
        stage[(j * kChunk + e / 4 * 8 + 2 * (lane % 4) + e % 2) * kStageRow + lane / 4 + e / 2 % 2 * 8] =
            acc[j][8 * k + e];
  }
}

// What a lane needs to finish four neighbouring outputs of a token: rows [row, row + n) of a job.
struct Ending {
  float factor;
  float4 bias;
  char* y;         // of token 0
  int64_t stride;  // bytes from a token to the next
  int n;
  bool packs;  // all four may be written at once
};
template <Shape kShape>
__device__ __forceinline__ Ending ending_of(const Params& p, int tile, int at_job, int lane) {
  const Shape s = shape_of<kShape>(p);
  const Job& job = p.jobs[at_job];
  const int row = (tile - pick(s.first_tile, at_job)) * kTileRows + lane / 8 * 4, size = s.y_f32 ? 4 : 2;
  Ending e{job.w.factor,
           {},
           static_cast<char*>(job.y) + row * size,
           job.y_stride * size,
           tile < s.n_tiles ? min(4, pick(s.n_out, at_job) - row) : 0,
           false};
  e.packs = e.n == 4 && (reinterpret_cast<uintptr_t>(job.y) | static_cast<uintptr_t>(e.stride)) % (4 * size) == 0;
  if (s.has_bias && job.bias != nullptr) {
    const float* bias = job.bias + row;
    if (e.n > 0) e.bias.x = bias[0];
    if (e.n > 1) e.bias.y = bias[1];
    if (e.n > 2) e.bias.z = bias[2];
    if (e.n > 3) e.bias.w = bias[3];
  }
  return e;
}
__device__ __forceinline__ float4 floats_of(const uint2& four) {
  const float2 a = __half22float2(half2_of(four.x)), b = __half22float2(half2_of(four.y));
  return make_float4(a.x, a.y, b.x, b.y);
}
__device__ __forceinline__ float4 operator+(const float4& a, const float4& b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// A lane's sums of a chunk: of four neighbouring rows of tile j, and token lane % 8 + 8 * h.
struct Sums {
  float4 v[kOwn][2];
};
__device__ __forceinline__ Sums staged(const float* stage, int lane) {
  Sums s;
#pragma unroll
  for (int i = 0; i < 2 * kOwn; ++i)
    s.v[i / 2][i % 2] = *reinterpret_cast<const float4*>(stage + (8 * i + lane % 8) * kStageRow + lane / 8 * 4);
  return s;
}

// Writes a lane's outputs of a chunk: tokens `token` and token + 8.
template <Shape kShape>
__device__ __forceinline__ void write_chunk(const Params& p, const Ending (&ends)[kOwn], const Sums& sums, int token) {
  const Shape s = shape_of<kShape>(p);
  const bool gated = s.act >= 0;
  float4 v[kOwn][2];
#pragma unroll
  for (int i = 0; i < 2 * kOwn; ++i) {
    const int j = i / 2, h = i % 2;
    const Ending& e = ends[j];
    const float4& sum = sums.v[j][h];
    v[j][h] = make_float4(sum.x * e.factor + e.bias.x, sum.y * e.factor + e.bias.y, sum.z * e.factor + e.bias.z,
                          sum.w * e.factor + e.bias.w);
  }
  if (gated)
#pragma unroll
    for (int h = 0; h < 2; ++h)
      v[0][h] = make_float4(act_mul(v[0][h].x, v[1][h].x, s.act), act_mul(v[0][h].y, v[1][h].y, s.act),
                            act_mul(v[0][h].z, v[1][h].z, s.act), act_mul(v[0][h].w, v[1][h].w, s.act));
  if (s.accumulate)
#pragma unroll
    for (int i = 0; i < 2 * kOwn; ++i) {
      const int j = i / 2, h = i % 2;
      if (!ends[j].packs || token + 8 * h >= p.n || (gated && j > 0)) continue;
      const char* y = ends[j].y + (token + 8 * h) * ends[j].stride;
      v[j][h] = v[j][h] + (s.y_f32 ? __ldcg(reinterpret_cast<const float4*>(y))
                                   : floats_of(__ldcg(reinterpret_cast<const uint2*>(y))));
    }
#pragma unroll
  for (int i = 0; i < 2 * kOwn; ++i) {
    const int j = i / 2, h = i % 2;
    if (token + 8 * h >= p.n || (gated && j > 0)) continue;
    char* y = ends[j].y + (token + 8 * h) * ends[j].stride;
    s.y_f32 ? write4(reinterpret_cast<float*>(y), v[j][h], ends[j].n, s.accumulate, ends[j].packs)
            : write4(reinterpret_cast<half*>(y), v[j][h], ends[j].n, s.accumulate, ends[j].packs);
  }
}

// Where a warp's part of a tile is: [kTokens / 4, 32 lanes] sums of four, as the tensor cores leave them.
template <int kTokens>
__device__ __forceinline__ float4* part_of(const Params& p, int block, int warp, int lane) {
  return p.parts + static_cast<int64_t>(block * kWarps + warp) * (kTokens / 4 * 32) + lane;
}
__device__ __forceinline__ void await_ready(const int* ready) {
  int is_ready;
  do {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(is_ready) : "l"(ready) : "memory");
  } while (!__all_sync(0xFFFFFFFFu, is_ready != 0));  // no lane leaves before others: the warp stays together
}

// The blocks that share a tile, and the chunks of a warp that this block finishes. If all tiles are divided alike,
// every block finishes some of them, else the block with the tile's last steps finishes all.
struct Sharers {
  int first_block, stride;  // of the blocks' numbers
  int n, rank;
  unsigned chunks;  // a bit for each chunk
  int n_readers;    // blocks that finish chunks of this warp, without this one

  template <int kTokens, Shape kShape>
  __device__ __forceinline__ Sharers(const Share<kTokens, kShape>& share, int tile, int warp) {
    constexpr int kChunks = kTokens / kChunk;
    const int first = share.share_of(tile * share.n_steps());
    first_block = share.block_of(first), stride = share.n_token_tiles();
    n = share.share_of((tile + 1) * share.n_steps() - 1) + 1 - first;
    rank = share.index() - first;
    if (share.n_shares() % share.n_tiles() == 0) {
      chunks = 0;
      for (int c = 0; c < kChunks; ++c)
        if ((warp * kChunks + c) % n == rank) chunks |= 1u << c;
      n_readers = min(kChunks, n) - (chunks != 0);
    } else {
      chunks = rank == n - 1 ? (1u << kChunks) - 1 : 0;
      n_readers = chunks == 0;
    }
  }
  __device__ __forceinline__ int block(int k) const { return first_block + k * stride; }
};

// Leaves the sums of the chunks that other blocks finish.
template <int kTokens>
__device__ __forceinline__ void put_part(const Params& p, const float (&acc)[kOwn][kTokens / 2], const Sharers& sharers,
                                         int warp, int lane) {
  const int block = static_cast<int>(blockIdx.x);
  float4* to = part_of<kTokens>(p, block, warp, lane);
#pragma unroll
  for (int i = 0; i < kTokens / 4; ++i) {
    const int j = i / (kTokens / 8), at = i % (kTokens / 8) * 4;  // 8 sums of a chunk
    if ((sharers.chunks >> (at / 8) & 1) == 0)
      __stcg(to + 32 * i, make_float4(acc[j][at], acc[j][at + 1], acc[j][at + 2], acc[j][at + 3]));
  }
  __syncwarp();
  if (lane == 0 && sharers.n_readers > 0)
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(p.ready + block * kWarps + warp), "r"(sharers.n_readers)
                 : "memory");
}

// Adds the other blocks' sums of the chunks that this block finishes. The order is the same in every run, because the
// same block always finishes a chunk.
template <int kTokens>
__device__ __forceinline__ void add_parts(const Params& p, float (&acc)[kOwn][kTokens / 2], const Sharers& sharers,
                                          int warp, int lane) {
  constexpr int kPerChunk = 2 * kOwn;  // sums of four
#pragma unroll 1
  for (int k = 0; k < sharers.n; ++k)
    if (k != sharers.rank) await_ready(p.ready + sharers.block(k) * kWarps + warp);
#pragma unroll
  for (int c = 0; c < kTokens / kChunk; ++c) {
    if ((sharers.chunks >> c & 1) == 0) continue;
#pragma unroll 1
    for (int k = 0; k < sharers.n; k += 2) {  // two blocks' sums at once
      float4 v[2][kPerChunk] = {};
#pragma unroll
      for (int of = 0; of < 2; ++of) {
        if (k + of == sharers.rank || k + of >= sharers.n) continue;
        const float4* from = part_of<kTokens>(p, sharers.block(k + of), warp, lane);
#pragma unroll
        for (int i = 0; i < kPerChunk; ++i) v[of][i] = __ldcg(from + (i / 2 * (kTokens / 8) + 2 * c + i % 2) * 32);
      }
#pragma unroll
      for (int of = 0; of < 2; ++of)
#pragma unroll
        for (int i = 0; i < kPerChunk; ++i) {
          float* to = acc[i / 2] + 8 * c + i % 2 * 4;
          to[0] += v[of][i].x, to[1] += v[of][i].y, to[2] += v[of][i].z, to[3] += v[of][i].w;
        }
    }
  }
  __syncwarp();
  if (lane < sharers.n && lane != sharers.rank)  // the last reader leaves a zero
    atomicSub(p.ready + sharers.block(lane) * kWarps + warp, 1);
}

// Prefetches the outputs that sums will be added to. Weights have evicted them from the L2 cache.
template <int kTokens>
__device__ __forceinline__ void prefetch_outputs(const Params& p, const Ending (&ends)[kOwn], unsigned chunks,
                                                 int token) {
#pragma unroll 1
  for (int c = 0; c < kTokens / kChunk; ++c, token += kChunk) {
    if ((chunks >> c & 1) == 0) continue;
#pragma unroll
    for (int i = 0; i < 2 * kOwn; ++i) {
      const Ending& e = ends[i / 2];
      if (e.n > 0 && token + 8 * (i % 2) < p.n)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(e.y + (token + 8 * (i % 2)) * e.stride));
    }
  }
}

// Adds up a tile's sums over the blocks that share it, and writes the outputs.
template <int kTokens, Shape kShape>
__device__ __forceinline__ void finish_tile(const Params& p, float (&acc)[kOwn][kTokens / 2],
                                            const Share<kTokens, kShape>& share, int tile, int warp, int lane,
                                            char* stages) {
  const Shape s = shape_of<kShape>(p);
  const bool gated = s.act >= 0;
  // Keeps the compiler from computing addresses before the products, which need the registers.
  asm volatile("" : "+r"(warp), "+r"(lane), "+r"(tile));
  float* stage = reinterpret_cast<float*>(stages + warp * kStageBytes);
  const Sharers sharers(share, tile, warp);
  const int first_token = share.token_tile() * kTokens + lane % 8;
  const auto ending = [&](int j) {
    const int at = tile_of(gated, tile, warp, j);
    return ending_of<kShape>(p, at, gated ? j : job_of(s, min(at, s.n_tiles - 1)), lane);
  };
  const Ending ends[kOwn] = {ending(0), ending(1)};
  if (s.accumulate) prefetch_outputs<kTokens>(p, ends, sharers.chunks, first_token);
  if (sharers.n > 1) {
    put_part<kTokens>(p, acc, sharers, warp, lane);
    if (sharers.chunks == 0) return;
    add_parts<kTokens>(p, acc, sharers, warp, lane);
  }
#pragma unroll 1  // short code: a block runs it once or twice, and fetching instructions takes time
  for (int c = 0; c < kTokens / kChunk; ++c) {
    if ((sharers.chunks >> c & 1) == 0) continue;
    put_chunk<kTokens>(stage, acc, c, lane);
    __syncwarp();
    const Sums sums = staged(stage, lane);
    __syncwarp();
    write_chunk<kShape>(p, ends, sums, first_token + kChunk * c);
  }
}

}  // namespace ingot::cuda::warpgroup_kernel
