// The gated delta rule over many tokens at once (arXiv:2406.06484, arXiv:2412.06464): 64 tokens are one chunk. S is the
// matrix before a chunk. g[t] is the sum of the logarithms of the decays of the chunk's tokens up to t. A[t, i] =
// beta[t] exp(g[t] - g[i]) k[t] k[i]^T for i < t. Then
//   T = (1 + A)^-1,  W = T beta exp(g) k,  U = T beta v - W S             what each token adds to S
//   y = exp(g) q S + P U,  with P[t, i] = exp(g[t] - g[i]) q[t] k[i]^T for i <= t
//   S = exp(g[last]) S + (exp(g[last] - g) k)^T U                         after the chunk
// All exponents are differences of such sums, and never positive, however fast a state decays.
//
// A first kernel computes all chunks at once: T in f32, products on the tensor cores. It overwrites its inputs with its
// results: q and k scaled to length 1 and P in the rows of q and k, W and T beta v in the rows of v, all in halves, and
// the exponentials in alpha and beta. A second kernel (delta_walk.cu) processes the chunks in order.
#include "backend/cuda/memory.h"
#include "backend/cuda/recurrence/delta_chunks.cuh"

namespace ingot::cuda {

using namespace recurrence;

namespace {

constexpr int kMaxShared = 4;  // value heads of one key head; their P are stored in its q and k

// Shared memory of a block of the first kernel.
struct Chunk {
  half q[kTokens * kRow], k[kTokens * kRow], v[kTokens * kRow];
  float a[kTokens][kTokens + 4], t[kTokens][kTokens + 4];   // t: the inverse
  half for_v[kTokens * kSquare], for_k[kTokens * kSquare];  // T beta, T beta exp(g)
  float part[3][16][16];
  float g[kTokens], beta[kTokens];
};

// Scales 8 rows of 128 in each warp, and stores them as halves; with `keep`, also in place of the f32 rows.
template <class Factor>
__device__ __forceinline__ void stage_rows(half* to, float* from, int64_t stride, int n, bool keep, Factor&& factor) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float4 v[kTokens / kChunkWarps];
#pragma unroll
  for (int j = 0; j < kTokens / kChunkWarps; ++j) {
    const int t = warp * (kTokens / kChunkWarps) + j;
    v[j] = t < n ? __ldcg(reinterpret_cast<const float4*>(from + t * stride) + lane) : float4{};
  }
#pragma unroll
  for (int j = 0; j < kTokens / kChunkWarps; ++j) {
    const int t = warp * (kTokens / kChunkWarps) + j;
    const float f = factor(v[j]);
    const uint2 packed = make_uint2(pair_of(f * v[j].x, f * v[j].y), pair_of(f * v[j].z, f * v[j].w));
    reinterpret_cast<uint2*>(to + t * kRow)[lane] = packed;
    if (keep && t < n) reinterpret_cast<uint2*>(from + t * stride)[lane] = packed;
  }
}

// Sums the logarithms of decays, in one warp; alpha and beta become exp(g) and exp(g[last] - g).
__device__ __forceinline__ void find_decays(Chunk& c, const Delta& p, int head, int64_t first, int n, int lane) {
  constexpr float kLeast =
      -60.0f;  // of one token, after which nothing is left of the state; lower values would make later sums inexact
  float sum = 0, g[2];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int t = lane + 32 * j;
    float own = 0, beta = 0;
    if (t < n) {
      own = fmaxf(p.decay[head] * softplus(p.alpha[(first + t) * p.alpha_stride + head] + p.dt[head]), kLeast);
      beta = p.share * sigmoid(p.beta[(first + t) * p.beta_stride + head]);
    }
#pragma unroll
    for (int s = 1; s < 32; s *= 2) {
      const float before = __shfl_up_sync(0xFFFFFFFFu, own, s);
      if (lane >= s) own += before;
    }
    g[j] = own + sum;
    sum = __shfl_sync(0xFFFFFFFFu, g[j], 31);
    c.g[t] = g[j], c.beta[t] = beta;
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int t = lane + 32 * j;
    if (t >= n) continue;
    p.alpha[(first + t) * p.alpha_stride + head] = expf(g[j]);
    p.beta[(first + t) * p.beta_stride + head] = expf(sum - g[j]);
  }
}

// c.t = (1 + c.a)^-1; both are lower triangles. The blocks of 16 on the diagonal are solved by substitution, one column
// at a time. Then the blocks below follow, one diagonal after another: T[i, j] = -T[i, i] (sum over k from j to i - 1
// of A[i, k] T[k, j]).
__device__ __forceinline__ void invert(Chunk& c) {
  if (threadIdx.x < kTokens) {
    const int first = static_cast<int>(threadIdx.x) / 16 * 16, column = static_cast<int>(threadIdx.x) % 16;
    float x[16];
#pragma unroll
    for (int r = 0; r < 16; ++r) {
      float sum = r == column ? 1.0f : 0.0f;
#pragma unroll
      for (int i = 0; i < r; ++i) sum = fmaf(-c.a[first + r][first + i], x[i], sum);
      x[r] = sum;
      c.t[first + r][first + column] = sum;
    }
  }
  __syncthreads();
  const int r = static_cast<int>(threadIdx.x) / 16, column = static_cast<int>(threadIdx.x) % 16;
  for (int d = 1; d < kTokens / 16; ++d) {
    for (int i = d; i < kTokens / 16; ++i) {
      float sum = 0;
#pragma unroll 8
      for (int k = 16 * (i - d); k < 16 * i; ++k) sum = fmaf(c.a[16 * i + r][k], c.t[k][16 * (i - d) + column], sum);
      c.part[i - d][r][column] = sum;
    }
    __syncthreads();
    for (int i = d; i < kTokens / 16; ++i) {
      float sum = 0;
#pragma unroll
      for (int k = 0; k < 16; ++k) sum = fmaf(-c.t[16 * i + r][16 * i + k], c.part[i - d][k][column], sum);
      c.t[16 * i + r][16 * (i - d) + column] = sum;
    }
    __syncthreads();
  }
}

// Four warps each have a band of 16 rows of k k^T, four have a band of q k^T, up to the diagonal. The longest band of
// one product runs next to the shortest band of the other.
struct Band {
  const bool of_q;
  const int first, lane;  // row of the band
  __device__ Band()
      : of_q(threadIdx.x >= kChunkThreads / 2),
        first(16 * static_cast<int>(of_q ? 7 - threadIdx.x / 32 : threadIdx.x / 32)),
        lane(threadIdx.x % 32) {}

  // acc[j]: the band's columns from 8j on.
  __device__ __forceinline__ void multiply_keys(float (&acc)[8][4], const Chunk& c) const {
#pragma unroll
    for (int k = 0; k < kDim; k += 16) {
      uint32_t a[4], b[4];
      load_matrices(a, place_of_a(of_q ? c.q : c.k, kRow, first, k, lane));
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (16 * j > first) break;
        load_matrices(b, place_of_transposed_b(c.k, kRow, k, 16 * j, lane));
        multiply(acc[2 * j], acc[2 * j + 1], a, b);
      }
    }
  }
  // Writes A to shared memory, and P of n tokens to the free space in the rows of q and k.
  __device__ __forceinline__ void put_decayed(Chunk& c, const float (&acc)[8][4], half* to, int64_t stride,
                                              int n) const {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (8 * j > first + 8) break;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = first + lane / 4 + 8 * h, column = 8 * j + 2 * (lane % 4);
        const float decays[2] = {expf(fminf(c.g[row] - c.g[column], 0.0f)),
                                 expf(fminf(c.g[row] - c.g[column + 1], 0.0f))};
        if (of_q) {
          const uint32_t pair = pair_of(column <= row ? decays[0] * acc[j][2 * h] : 0.0f,
                                        column + 1 <= row ? decays[1] * acc[j][2 * h + 1] : 0.0f);
          if (row < n) *reinterpret_cast<uint32_t*>(to + row * stride + column) = pair;
        } else {
          c.a[row][column] = column < row ? c.beta[row] * decays[0] * acc[j][2 * h] : 0.0f;
          c.a[row][column + 1] = column + 1 < row ? c.beta[row] * decays[1] * acc[j][2 * h + 1] : 0.0f;
        }
      }
    }
  }
};

// Computes T beta and T beta exp(g), for the products.
__device__ __forceinline__ void scale_inverse(Chunk& c) {
  for (int e = threadIdx.x; e < kTokens * kTokens; e += kChunkThreads) {
    const int row = e / kTokens, column = e % kTokens;
    const float value = column <= row ? c.t[row][column] * c.beta[column] : 0.0f;
    c.for_v[row * kSquare + column] = from_float<half>(value);
    c.for_k[row * kSquare + column] = from_float<half>(value * expf(c.g[column]));
  }
}

// Writes W and T beta v, 16 columns for each warp, to the rows of v.
__device__ __forceinline__ void put_products(const Chunk& c, float* rows, int64_t stride, int n) {
  const int column = static_cast<int>(threadIdx.x) / 32 * 16, lane = threadIdx.x % 32;
  uint32_t of_k[4][4], of_v[4][4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    load_transposed(of_k[k], place_of_b(c.k, kRow, 16 * k, column, lane));
    load_transposed(of_v[k], place_of_b(c.v, kRow, 16 * k, column, lane));
  }
#pragma unroll
  for (int m = 0; m < 4; ++m) {
    float w[2][4] = {}, u[2][4] = {};
#pragma unroll
    for (int k = 0; k <= m; ++k) {
      uint32_t a[4];
      load_matrices(a, place_of_a(c.for_k, kSquare, 16 * m, 16 * k, lane));
      multiply(w[0], w[1], a, of_k[k]);
      load_matrices(a, place_of_a(c.for_v, kSquare, 16 * m, 16 * k, lane));
      multiply(u[0], u[1], a, of_v[k]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = 16 * m + lane / 4 + 8 * h;
      if (row >= n) continue;
      half* to = reinterpret_cast<half*>(rows + row * stride) + column + 2 * (lane % 4);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        *reinterpret_cast<uint32_t*>(to + 8 * j) = pair_of(w[j][2 * h], w[j][2 * h + 1]);
        *reinterpret_cast<uint32_t*>(to + kDim + 8 * j) = pair_of(u[j][2 * h], u[j][2 * h + 1]);
      }
    }
  }
}

// One chunk of one key head of a sequence, with the value heads of that key head one after another.
__global__ void __launch_bounds__(kChunkThreads, 2) chunk_kernel(const __grid_constant__ Delta p) {
  extern __shared__ __align__(128) char shared[];
  Chunk& c = *reinterpret_cast<Chunk*>(shared);
  const int key_head = blockIdx.y, seq = blockIdx.z, done = static_cast<int>(blockIdx.x) * kTokens;
  start_dependent();
  const int begin = p.batch.q_start[seq], length = p.batch.q_start[seq + 1] - begin, n = min(kTokens, length - done);
  if (length < kChunkedTokens || n <= 0) return;
  const int64_t first = begin + done, at = first * p.qkv_stride;
  const auto square = [](const float4& v) { return warp_sum(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w) + 1e-6f; };
  const Places keys(p, key_head, 0);
  stage_rows(c.q, keys.q + at, p.qkv_stride, n, true, [&](const float4& v) { return rsqrtf(square(v) * kDim); });
  stage_rows(c.k, keys.k + at, p.qkv_stride, n, true, [&](const float4& v) { return rsqrtf(square(v)); });
  __syncthreads();
  const Band band;
  float acc[8][4] = {};
  band.multiply_keys(acc, c);
  for (int i = 0; i < p.n_heads / p.n_key_heads; ++i) {
    const Places places(p, key_head, i);
    __syncthreads();  // the previous head is done
    stage_rows(c.v, places.v + at, p.qkv_stride, n, false, [](const float4&) { return 1.0f; });
    if (threadIdx.x < 32) find_decays(c, p, value_head(p, key_head, i), first, n, threadIdx.x);
    __syncthreads();
    band.put_decayed(c, acc, places.p + 2 * at, 2 * p.qkv_stride, n);
    __syncthreads();
    invert(c);
    scale_inverse(c);
    __syncthreads();
    put_products(c, places.v + at, p.qkv_stride, n);
  }
}

}  // namespace

bool recurrence::can_chunk(const Device& device, const Delta& p) {
  return p.key_dim == kDim && p.value_dim == kDim && p.n_heads <= kMaxShared * p.n_key_heads && p.packs &&
         p.y_stride % 2 == 0 && reinterpret_cast<uintptr_t>(p.y) % 8 == 0 && device.most_shared() >= walk_bytes();
}

void recurrence::delta_chunks(const Delta& p, int n_seqs, int most_tokens, Device& device) {
  const dim3 grid(blocks_for(most_tokens, kTokens), static_cast<unsigned>(p.n_key_heads),
                  static_cast<unsigned>(n_seqs));
  launch(device, chunk_kernel, grid, kChunkThreads, sizeof(Chunk), p);
  walk_chunks(p, n_seqs, device);
}

}  // namespace ingot::cuda
