// The gated delta rule over many tokens at once (arXiv:2406.06484, arXiv:2412.06464): 64 of them are one chunk. With S the matrix before a
// chunk, g[t] the sum of the logarithms of its tokens' decays up to t, and A[t, i] = beta[t] exp(g[t] - g[i]) k[t] k[i]^T for i < t,
//   T = (1 + A)^-1,  W = T beta exp(g) k,  U = T beta v - W S             what each token adds to S
//   y = exp(g) q S + P U,  with P[t, i] = exp(g[t] - g[i]) q[t] k[i]^T for i <= t
//   S = exp(g[last]) S + (exp(g[last] - g) k)^T U                         after the chunk
// Exponents are differences of sums, so none is positive, however fast a state decays.
//
// A first kernel takes all chunks at once: T in f32, products on the tensor cores. What it makes takes the place of what it read: q and k
// of length 1 and P in the rows of q and k, W and T beta v in those of v, all halves, and the exponentials in those of alpha and beta.
// A second one goes through the chunks with 16 columns of a head's matrix in a block: the matrix is f32, in registers, and becomes halves to
// be multiplied.
#include "backend/cuda/device.cuh"
#include "backend/cuda/memory.h"
#include "backend/cuda/recurrence.cuh"

namespace ingot::cuda {

using namespace recurrence;

namespace {

constexpr int kTokens = 64, kDim = 128, kSlice = 16;  // of a chunk; of keys and of values; columns of a block
constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kMostShared = 4;                        // value heads of a key head, whose P lie in its q and k
constexpr int kRow = kDim + 8, kSquare = kTokens + 8, kSliceRow = kSlice + 8;  // halves from row to row in shared memory: no bank twice

// Four 8 x 8 matrices of halves; the second turns them.
__device__ __forceinline__ void load_matrices(uint32_t (&v)[4], const half* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(shared_address(at)));
}
__device__ __forceinline__ void load_turned(uint32_t (&v)[4], const half* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(shared_address(at)));
}

// Where a lane points ldmatrix for the operands of mma() at rows and columns of a matrix in shared memory.
//   a, 16 x 16: of a matrix as it lies; turned: of one that lies the other way round, [columns of a, rows of a]
//   b, 16 deep and 16 wide, which is two: of a matrix that lies [depth, width], turned; or [width, depth], as it is
__device__ __forceinline__ const half* place_of_a(const half* m, int stride, int row, int column, int lane) {
  return m + (row + lane % 16) * stride + column + lane / 16 * 8;
}
__device__ __forceinline__ const half* place_of_turned_a(const half* m, int stride, int row, int column, int lane) {
  return m + (column + lane % 8 + lane / 16 * 8) * stride + row + lane / 8 % 2 * 8;
}
__device__ __forceinline__ const half* place_of_b(const half* m, int stride, int depth, int width, int lane) {
  return m + (depth + lane % 16) * stride + width + lane / 16 * 8;
}
__device__ __forceinline__ const half* place_of_turned_b(const half* m, int stride, int depth, int width, int lane) {
  return m + (width + lane % 8 + lane / 16 * 8) * stride + depth + lane / 8 % 2 * 8;
}

__device__ __forceinline__ void multiply(float (&low)[4], float (&high)[4], const uint32_t (&a)[4], const uint32_t (&b)[4]) {
  mma(low, a[0], a[1], a[2], a[3], b[0], b[1]);
  mma(high, a[0], a[1], a[2], a[3], b[2], b[3]);
}

__device__ __forceinline__ uint32_t pair_of(float a, float b) { return bits_of(__halves2half2(from_float<half>(a), from_float<half>(b))); }

// The value head `i` of those of a key head, and where its halves lie: see above.
__device__ __forceinline__ int value_head(const Delta& p, int key_head, int i) {
  return p.tiled ? i * p.n_key_heads + key_head : key_head * (p.n_heads / p.n_key_heads) + i;
}
struct Places {
  float *q, *k, *v;  // rows of token 0
  half* p;

  __device__ Places(const Delta& d, int key_head, int i)
      : q(d.qkv + key_head * kDim), k(q + d.n_key_heads * kDim), v(d.qkv + 2 * d.n_key_heads * kDim + value_head(d, key_head, i) * kDim),
        p(reinterpret_cast<half*>(i < 2 ? q : k) + kDim + i % 2 * kTokens) {}
};

// What a block of the first kernel has in shared memory.
struct Chunk {
  half q[kTokens * kRow], k[kTokens * kRow], v[kTokens * kRow];
  float a[kTokens][kTokens + 4], t[kTokens][kTokens + 4];  // t: the inverse
  half for_v[kTokens * kSquare], for_k[kTokens * kSquare];  // T beta, T beta exp(g)
  float part[3][16][16];
  float g[kTokens], beta[kTokens];
};

// 8 rows of 128 a warp, as halves of their factors, also where `keep` says.
template <class Factor>
__device__ __forceinline__ void stage_rows(half* to, float* from, int64_t stride, int n, bool keep, Factor&& factor) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  float4 v[kTokens / kWarps];
#pragma unroll
  for (int j = 0; j < kTokens / kWarps; ++j) {
    const int t = warp * (kTokens / kWarps) + j;
    v[j] = t < n ? __ldcg(reinterpret_cast<const float4*>(from + t * stride) + lane) : float4{};
  }
#pragma unroll
  for (int j = 0; j < kTokens / kWarps; ++j) {
    const int t = warp * (kTokens / kWarps) + j;
    const float f = factor(v[j]);
    const uint2 packed = make_uint2(pair_of(f * v[j].x, f * v[j].y), pair_of(f * v[j].z, f * v[j].w));
    reinterpret_cast<uint2*>(to + t * kRow)[lane] = packed;
    if (keep && t < n) reinterpret_cast<uint2*>(from + t * stride)[lane] = packed;
  }
}

// The sums of logarithms of decays, by one warp; alpha and beta become exp(g) and exp(g[last] - g).
__device__ __forceinline__ void find_decays(Chunk& c, const Delta& p, int head, int64_t first, int n, int lane) {
  constexpr float kLeast = -60.0f;  // of a token, after which nothing is left; sums of less would round what comes after
  float sum = 0, g[2];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int t = lane + 32 * j;
    float own = 0, beta = 0;
    if (t < n) {
      own = fmaxf(p.decay[head] * softplus(p.alpha[(first + t) * p.alpha_stride + head] + p.dt[head]), kLeast);
      beta = sigmoid(p.beta[(first + t) * p.beta_stride + head]);
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

// c.t = (1 + c.a)^-1, both lower triangles: columns of the blocks of 16 on the diagonal by substitution, then the blocks below, one
// diagonal after another: T[i, j] = -T[i, i] (sum over k from j to i - 1 of A[i, k] T[k, j]).
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

// Four warps have a band of 16 rows each of k k^T, four of q k^T, up to the diagonal; the longest of one beside the shortest of the other.
struct Band {
  const bool of_q;
  const int first, lane;  // first: row
  __device__ Band() : of_q(threadIdx.x >= kThreads / 2), first(16 * static_cast<int>(of_q ? 7 - threadIdx.x / 32 : threadIdx.x / 32)), lane(threadIdx.x % 32) {}

  // acc[j]: its columns from 8j on.
  __device__ __forceinline__ void multiply_keys(float (&acc)[8][4], const Chunk& c) const {
#pragma unroll
    for (int k = 0; k < kDim; k += 16) {
      uint32_t a[4], b[4];
      load_matrices(a, place_of_a(of_q ? c.q : c.k, kRow, first, k, lane));
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (16 * j > first) break;
        load_matrices(b, place_of_turned_b(c.k, kRow, k, 16 * j, lane));
        multiply(acc[2 * j], acc[2 * j + 1], a, b);
      }
    }
  }
  // A to shared memory, P, of n tokens, to where the rows of q and k have room.
  __device__ __forceinline__ void put_decayed(Chunk& c, const float (&acc)[8][4], half* to, int64_t stride, int n) const {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (8 * j > first + 8) break;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = first + lane / 4 + 8 * h, column = 8 * j + 2 * (lane % 4);
        const float decays[2] = {expf(fminf(c.g[row] - c.g[column], 0.0f)), expf(fminf(c.g[row] - c.g[column + 1], 0.0f))};
        if (of_q) {
          const uint32_t pair = pair_of(column <= row ? decays[0] * acc[j][2 * h] : 0.0f, column + 1 <= row ? decays[1] * acc[j][2 * h + 1] : 0.0f);
          if (row < n) *reinterpret_cast<uint32_t*>(to + row * stride + column) = pair;
        } else {
          c.a[row][column] = column < row ? c.beta[row] * decays[0] * acc[j][2 * h] : 0.0f;
          c.a[row][column + 1] = column + 1 < row ? c.beta[row] * decays[1] * acc[j][2 * h + 1] : 0.0f;
        }
      }
    }
  }
};

// T times beta, and times beta exp(g), for the products.
__device__ __forceinline__ void scale_inverse(Chunk& c) {
  for (int e = threadIdx.x; e < kTokens * kTokens; e += kThreads) {
    const int row = e / kTokens, column = e % kTokens;
    const float value = column <= row ? c.t[row][column] * c.beta[column] : 0.0f;
    c.for_v[row * kSquare + column] = from_float<half>(value);
    c.for_k[row * kSquare + column] = from_float<half>(value * expf(c.g[column]));
  }
}

// W and T beta v, 16 columns a warp, to the rows of v.
__device__ __forceinline__ void put_products(const Chunk& c, float* rows, int64_t stride, int n) {
  const int column = static_cast<int>(threadIdx.x) / 32 * 16, lane = threadIdx.x % 32;
  uint32_t of_k[4][4], of_v[4][4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    load_turned(of_k[k], place_of_b(c.k, kRow, 16 * k, column, lane));
    load_turned(of_v[k], place_of_b(c.v, kRow, 16 * k, column, lane));
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

// A chunk of a key head of a sequence, and of its value heads one after another.
__global__ void __launch_bounds__(kThreads, 2) chunk_kernel(const __grid_constant__ Delta p) {
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
    __syncthreads();  // of the head before
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

// A chunk's share of a block of the second kernel.
struct Stage {
  half w[kTokens * kRow], q[kTokens * kRow], k[kTokens * kRow], p[kTokens * kSquare], u[kTokens * kSliceRow];
  float since[kTokens], until[kTokens];  // exp(g), exp(g[last] - g)
};
struct Walk {
  Stage stages[2];
  half s[kSlice * kRow];                                   // [column of v, row of k]
  half u[kTokens * kSliceRow], left[kTokens * kSliceRow];  // what tokens add; and what is left of it at the end
};

__device__ __forceinline__ void copy16(void* to, const void* from, bool in) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(in ? 16 : 0) : "memory");
}

// Zeros for tokens past the last.
__device__ __forceinline__ void copy_stage(Stage& s, const Delta& p, const Places& places, int head, int64_t first, int n) {
  constexpr int kPieces = kDim / 8;
  for (int i = threadIdx.x; i < kTokens * kPieces; i += kThreads) {
    const int t = i / kPieces, piece = i % kPieces * 8;
    const bool in = t < n;
    const int64_t at = in ? (first + t) * p.qkv_stride : 0;
    copy16(s.w + t * kRow + piece, reinterpret_cast<const half*>(places.v + at) + piece, in);
    copy16(s.q + t * kRow + piece, reinterpret_cast<const half*>(places.q + at) + piece, in);
    copy16(s.k + t * kRow + piece, reinterpret_cast<const half*>(places.k + at) + piece, in);
    if (piece < kTokens) copy16(s.p + t * kSquare + piece, places.p + 2 * at + piece, in);
    if (piece < kSlice)
      copy16(s.u + t * kSliceRow + piece, reinterpret_cast<const half*>(places.v + at) + kDim + static_cast<int>(blockIdx.x) * kSlice + piece, in);
  }
  if (const int t = threadIdx.x; t < kTokens) {
    copy_float(&s.since[t], p.alpha + (t < n ? (first + t) * p.alpha_stride + head : 0), t < n);
    copy_float(&s.until[t], p.beta + (t < n ? (first + t) * p.beta_stride + head : 0), t < n);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// A warp's 16 rows of the 16 columns of a matrix: element e of s[j].
struct Share {
  const int row, column;  // of element 0 of s[0]
  __device__ Share() : row(16 * static_cast<int>(threadIdx.x / 32) + static_cast<int>(threadIdx.x) % 32 / 4), column(2 * static_cast<int>(threadIdx.x % 4)) {}

  template <class F>
  __device__ __forceinline__ void each(F&& f) const {
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) f(j, e, row + e / 2 * 8, column + 8 * j + e % 2);
  }
};

// W S or q S, a band of 16 tokens; even and odd steps by themselves, for they wait for each other.
__device__ __forceinline__ void multiply_state(float (&sums)[2][4], const half* rows, const half* s, int first, int lane) {
  float odd[2][4] = {};
#pragma unroll
  for (int k = 0; k < kDim; k += 32) {
    uint32_t a[4], b[4];
    load_matrices(a, place_of_a(rows, kRow, first, k, lane));
    load_matrices(b, place_of_turned_b(s, kRow, k, 0, lane));
    multiply(sums[0], sums[1], a, b);
    load_matrices(a, place_of_a(rows, kRow, first, k + 16, lane));
    load_matrices(b, place_of_turned_b(s, kRow, k + 16, 0, lane));
    multiply(odd[0], odd[1], a, b);
  }
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[j][e] += odd[j][e];
}

// From W S of a band what its tokens add.
__device__ __forceinline__ void put_added(Walk& c, const Stage& stage, const float (&sums)[2][4], int first, int lane) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first + lane / 4 + 8 * h;
    const float until = stage.until[row];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int place = row * kSliceRow + 8 * j + 2 * (lane % 4);
      const float2 u = __half22float2(*reinterpret_cast<const half2*>(stage.u + place));
      const float v[2] = {u.x - sums[j][2 * h], u.y - sums[j][2 * h + 1]};
      *reinterpret_cast<uint32_t*>(c.u + place) = pair_of(v[0], v[1]);
      *reinterpret_cast<uint32_t*>(c.left + place) = pair_of(until * v[0], until * v[1]);
    }
  }
}

// From q S of a band the outputs of its tokens, of which the chunk has n.
__device__ __forceinline__ void put_outputs(const Walk& c, const Stage& stage, float (&sums)[2][4], float* y, int64_t stride, int n, int first,
                                            int lane) {
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[j][e] *= stage.since[first + lane / 4 + e / 2 * 8];
#pragma unroll
  for (int k = 0; k < kTokens; k += 16) {
    if (k > first) break;
    uint32_t a[4], b[4];
    load_matrices(a, place_of_a(stage.p, kSquare, first, k, lane));
    load_turned(b, place_of_b(c.u, kSliceRow, k, 0, lane));
    multiply(sums[0], sums[1], a, b);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first + lane / 4 + 8 * h;
    if (row >= n) continue;
#pragma unroll
    for (int j = 0; j < 2; ++j)
      *reinterpret_cast<float2*>(y + row * stride + 8 * j + 2 * (lane % 4)) = make_float2(sums[j][2 * h], sums[j][2 * h + 1]);
  }
}

// 16 columns of a head's matrix through all chunks of a sequence. A warp keeps 16 rows of it; four multiply W with it, four q.
__global__ void __launch_bounds__(kThreads, 1) walk_kernel(const __grid_constant__ Delta p) {
  extern __shared__ __align__(128) char shared[];
  Walk& c = *reinterpret_cast<Walk*>(shared);
  const int head = blockIdx.y, seq = blockIdx.z, warp = threadIdx.x / 32, lane = threadIdx.x % 32, first_column = static_cast<int>(blockIdx.x) * kSlice;
  const int sharing = p.n_heads / p.n_key_heads, key_head = p.tiled ? head % p.n_key_heads : head / sharing;
  start_dependent();
  const int begin = p.batch.q_start[seq], length = p.batch.q_start[seq + 1] - begin, in = p.batch.state_in[seq];
  if (length < kChunkedTokens) return;
  const Places places(p, key_head, p.tiled ? head / p.n_key_heads : head % sharing);
  copy_stage(c.stages[0], p, places, head, begin, min(kTokens, length));

  const Share share;
  const auto place_of = [&](int row, int column) { return (int64_t{head} * kDim + first_column + column) * kDim + row; };
  float s[2][4] = {};
  const auto show = [&](int j, int e, int row, int column) { c.s[column * kRow + row] = from_float<half>(s[j][e]); };
  share.each([&](int j, int e, int row, int column) { s[j][e] = in >= 0 ? p.states.data[in * p.states.slot_floats + place_of(row, column)] : 0.0f; });
  share.each(show);

  const int band = warp % 4 * 16;
  const bool of_q = warp >= 4;
  for (int done = 0, at = 0; done < length; done += kTokens, at ^= 1) {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    const Stage& stage = c.stages[at];
    const int n = min(kTokens, length - done);
    if (done + kTokens < length) copy_stage(c.stages[at ^ 1], p, places, head, begin + done + kTokens, min(kTokens, length - done - kTokens));
    float sums[2][4] = {};
    multiply_state(sums, of_q ? stage.q : stage.w, c.s, band, lane);
    if (!of_q) put_added(c, stage, sums, band, lane);
    __syncthreads();

    const float keep = stage.since[n - 1];
    share.each([&](int j, int e, int, int) { s[j][e] *= keep; });
#pragma unroll
    for (int k = 0; k < kTokens; k += 16) {
      uint32_t a[4], b[4];
      load_turned(a, place_of_turned_a(stage.k, kRow, 16 * warp, k, lane));
      load_turned(b, place_of_b(c.left, kSliceRow, k, 0, lane));
      multiply(s[0], s[1], a, b);
    }
    share.each(show);
    if (of_q) put_outputs(c, stage, sums, p.y + (begin + done) * p.y_stride + head * kDim + first_column, p.y_stride, n, band, lane);
  }
  share.each([&](int j, int e, int row, int column) { p.states.data[p.batch.state_out[seq] * p.states.slot_floats + place_of(row, column)] = s[j][e]; });
}

}  // namespace

bool recurrence::can_chunk(const Delta& p) {
  return p.key_dim == kDim && p.value_dim == kDim && p.n_heads <= kMostShared * p.n_key_heads && p.packs && p.y_stride % 2 == 0 &&
         reinterpret_cast<uintptr_t>(p.y) % 8 == 0 && most_shared() >= sizeof(Walk);
}

void recurrence::delta_chunks(const Delta& p, int n_seqs, int most_tokens, cudaStream_t stream) {
  static const cudaError_t set = [] {
    const cudaError_t first = cudaFuncSetAttribute(chunk_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Chunk));
    return first != cudaSuccess ? first : cudaFuncSetAttribute(walk_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Walk));
  }();
  check(set, "cudaFuncSetAttribute");
  const auto seqs = static_cast<unsigned>(n_seqs);
  launch(chunk_kernel, dim3(blocks_for(most_tokens, kTokens), static_cast<unsigned>(p.n_key_heads), seqs), kThreads, sizeof(Chunk), stream, p);
  launch(walk_kernel, dim3(kDim / kSlice, static_cast<unsigned>(p.n_heads), seqs), kThreads, sizeof(Walk), stream, p);
}

}  // namespace ingot::cuda
