// The rank-one rule over many tokens: 16 tokens are one chunk. S is the matrix before a chunk, g[t] the product of keep
// over the chunk's tokens up to t, for each row, and u[t] = a[t] S_before. With i up to t, or before t for u:
//   u[t] = (a[t] g[t-1]) S + sum over i < t of (a[t] g[t-1] / g[i]) (b[i] u[i] + k[i] v[i])
//   y[t] = (q[t] g[t]) S + sum over i <= t of (q[t] g[t] / g[i]) (b[i] u[i] + k[i] v[i])
//   S = diag(g[last]) S + sum over i of (g[last] / g[i]) (b[i]^T u[i] + k[i]^T v[i])        after the chunk
// The sums over i < t are a triangular system. A first kernel solves it for all chunks at once, which leaves
//   u = w S + z v,  y = p S + r v
// with w, p [16, 64] and z, r [16, 16]. Factors g[t] / g[i] are split at the chunk's middle; each keep is at least 1/2,
// so both parts fit in halves. The results overwrite rows of the inputs: w and p those of a; (g[last] / g[i]) b[i] and k[i]
// those of b; z, r and g[last] those of keep. A second kernel walks through the chunks of a sequence: a block has 32
// columns of a head's matrix, in registers as f32. Products are on the tensor cores, from halves, with sums in f32.
#include "backend/cuda/recurrence/rank_one.cuh"
#include "backend/cuda/recurrence/tiles.cuh"

namespace ingot::cuda {

using namespace recurrence;

namespace {

constexpr int kRuleDim = 64, kSolveWarps = 4, kTileRow = kRuleDim + 8, kSquareRow = kRuleChunk + 8;  // rows in halves
constexpr float kFewestKeep = 0.5f;

// The rows of a chunk in memory after the first kernel, as halves. Row t begins at t * 2 * stride.
template <class F>
__device__ __forceinline__ half* halves_at(F* rows, int64_t stride, int64_t token, int head) {
  return reinterpret_cast<half*>(rows + token * stride + head * kRuleDim);
}

struct Solving {
  half a[kRuleChunk * kTileRow], q[kRuleChunk * kTileRow];    // times g relative to the middle; a: before the token
  half b[kRuleChunk * kTileRow], k[kRuleChunk * kTileRow];    // divided by it
  half a0[kRuleChunk * kTileRow], q0[kRuleChunk * kTileRow];  // times g; q0 becomes w
  half square[kRuleChunk * kSquareRow];                       // an operand [16, 16]
  float system[kRuleChunk][kRuleChunk + 1];
};

// Fills the tiles. A lane has two neighbouring rows of the matrix.
__device__ __forceinline__ void load_tiles(Solving& s, const RankOne& p, int head, int64_t first) {
  constexpr int kMiddle = kRuleChunk / 2;
  const int lane = threadIdx.x % 32, at = head * kRuleDim + 2 * lane;
  float2 keep[kRuleChunk], d[kRuleChunk], start = {1, 1};  // d: g relative to token kMiddle - 1
#pragma unroll
  for (int t = 0; t < kRuleChunk; ++t)
    keep[t] = *reinterpret_cast<const float2*>(p.keep + (first + t) * p.keep_stride + at);
  d[kMiddle - 1] = {1, 1};
#pragma unroll
  for (int t = kMiddle; t < kRuleChunk; ++t) d[t] = {d[t - 1].x * keep[t].x, d[t - 1].y * keep[t].y};
#pragma unroll
  for (int t = kMiddle - 1; t > 0; --t) d[t - 1] = {__fdividef(d[t].x, keep[t].x), __fdividef(d[t].y, keep[t].y)};
  start = {__fdividef(d[0].x, keep[0].x), __fdividef(d[0].y, keep[0].y)};
  const float2 from_start = {__fdividef(1.0f, start.x), __fdividef(1.0f, start.y)}, last = d[kRuleChunk - 1];
  __syncwarp();  // all rows of keep have been read
#pragma unroll
  for (int t = 0; t < kRuleChunk; ++t) {
    const float2 a = *reinterpret_cast<const float2*>(p.a + (first + t) * p.a_stride + at),
                 b = *reinterpret_cast<const float2*>(p.b + (first + t) * p.b_stride + at),
                 q = *reinterpret_cast<const float2*>(p.q + (first + t) * p.q_stride + at),
                 k = *reinterpret_cast<const float2*>(p.k + (first + t) * p.k_stride + at);
    const float2 before = t == 0 ? start : d[t > 0 ? t - 1 : 0], now = d[t],
                 inverse = {__fdividef(1.0f, now.x), __fdividef(1.0f, now.y)};
    const auto put = [&](half* tile, float x, float y) {
      *reinterpret_cast<uint32_t*>(tile + t * kTileRow + 2 * lane) = pair_of(x, y);
    };
    put(s.a, a.x * before.x, a.y * before.y);
    put(s.q, q.x * now.x, q.y * now.y);
    put(s.b, b.x * inverse.x, b.y * inverse.y);
    put(s.k, k.x * inverse.x, k.y * inverse.y);
    put(s.a0, a.x * before.x * from_start.x, a.y * before.y * from_start.y);
    put(s.q0, q.x * now.x * from_start.x, q.y * now.y * from_start.y);
    __syncwarp();  // all of row b has been read
    half* to = halves_at(p.b, p.b_stride, first + t, head) + 2 * lane;
    *reinterpret_cast<uint32_t*>(to) = pair_of(b.x * last.x * inverse.x, b.y * last.y * inverse.y);
    *reinterpret_cast<uint32_t*>(to + kRuleDim) = pair_of(k.x * last.x * inverse.x, k.y * last.y * inverse.y);
  }
  // g[last], four rows of the matrix behind z and r of each token
  float* to = p.keep + (first + lane / 2) * p.keep_stride + head * kRuleDim + kRuleChunk + lane % 2 * 2;
  *reinterpret_cast<float2*>(to) = {last.x * from_start.x, last.y * from_start.y};
}

// c = x y^T for tiles of 16 rows.
__device__ __forceinline__ void multiply_rows(float (&c)[2][4], const half* x, const half* y) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < kRuleDim; k += 16) {
    uint32_t a[4], b[4];
    load_matrices(a, place_of_a(x, kTileRow, 0, k, lane));
    load_matrices(b, place_of_transposed_b(y, kTileRow, k, 0, lane));
    multiply(c[0], c[1], a, b);
  }
}

// Calls f(element, t, i) for the elements of a lane.
template <class F>
__device__ __forceinline__ void each_of_square(float (&c)[2][4], F&& f) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) f(c[j][e], lane / 4 + e / 2 * 8, 8 * j + 2 * (lane % 4) + e % 2);
}

__device__ __forceinline__ void keep_square(half* to, float (&c)[2][4]) {
  __syncwarp();  // the last operand has been read
  each_of_square(c, [&](float& element, int t, int i) { to[t * kSquareRow + i] = from_float<half>(element); });
  __syncwarp();
}

// The inverse of 1 - system, which is strictly lower triangular; a lane has a column.
__device__ __forceinline__ void invert(Solving& s) {
  const int column = threadIdx.x % 32;
  float inverse[kRuleChunk];
#pragma unroll
  for (int t = 0; t < kRuleChunk; ++t) {
    inverse[t] = t == column ? 1.0f : 0.0f;
#pragma unroll
    for (int i = 0; i < t; ++i) inverse[t] = fmaf(s.system[t][i], inverse[i], inverse[t]);
  }
  __syncwarp();
  if (column < kRuleChunk) {
#pragma unroll
    for (int t = 0; t < kRuleChunk; ++t) s.square[t * kSquareRow + column] = from_float<half>(inverse[t]);
  }
  __syncwarp();
}

// A warp solves a chunk of a head.
__global__ void __launch_bounds__(32 * kSolveWarps) solve_kernel(const __grid_constant__ RankOne p) {
  extern __shared__ __align__(128) char shared[];
  start_dependent();
  Solving& s = reinterpret_cast<Solving*>(shared)[threadIdx.x / 32];
  const int head = static_cast<int>(blockIdx.y) * kSolveWarps + static_cast<int>(threadIdx.x) / 32, seq = blockIdx.z,
            lane = threadIdx.x % 32;
  const int begin = p.batch.q_start[seq], length = p.batch.q_start[seq + 1] - begin,
            done = static_cast<int>(blockIdx.x) * kRuleChunk;
  if (head >= p.n_heads || length < kFewestRuleTokens || done + kRuleChunk > length) return;  // a whole warp
  const int64_t first = begin + done;
  load_tiles(s, p, head, first);
  __syncwarp();
  float of_b[2][4] = {}, of_k[2][4] = {}, read_b[2][4] = {}, read_k[2][4] = {};
  multiply_rows(of_b, s.a, s.b);
  multiply_rows(of_k, s.a, s.k);
  multiply_rows(read_b, s.q, s.b);
  multiply_rows(read_k, s.q, s.k);
  const auto lower = [](float& element, int t, int i) { element = i <= t ? element : 0.0f; };
  each_of_square(read_b, lower), each_of_square(read_k, lower);
  each_of_square(of_k, [](float& element, int t, int i) { element = i < t ? element : 0.0f; });
  each_of_square(of_b, [&](float& element, int t, int i) { s.system[t][i] = element; });
  __syncwarp();
  invert(s);
  uint32_t solution[4], b[4];
  load_matrices(solution, place_of_a(s.square, kSquareRow, 0, 0, lane));
  float w[kRuleDim / 8][4] = {}, z[2][4] = {};
#pragma unroll
  for (int j = 0; j < kRuleDim / 16; ++j) {
    load_transposed(b, place_of_b(s.a0, kTileRow, 0, 16 * j, lane));
    multiply(w[2 * j], w[2 * j + 1], solution, b);
  }
  keep_square(s.square, of_k);
  load_transposed(b, place_of_b(s.square, kSquareRow, 0, 0, lane));
  multiply(z[0], z[1], solution, b);
  keep_square(s.square, read_b);
  uint32_t reads[4];
  load_matrices(reads, place_of_a(s.square, kSquareRow, 0, 0, lane));
  keep_square(s.square, z);
  load_transposed(b, place_of_b(s.square, kSquareRow, 0, 0, lane));
  multiply(read_k[0], read_k[1], reads, b);  // r
  const auto put = [&](float* rows, int64_t stride, int first_half, float (&c)[4], int column) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
      *reinterpret_cast<uint32_t*>(halves_at(rows, stride, first + lane / 4 + 8 * h, head) + first_half + column +
                                   2 * (lane % 4)) = pair_of(c[2 * h], c[2 * h + 1]);
  };
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    put(p.keep, p.keep_stride, 0, z[j], 8 * j);
    put(p.keep, p.keep_stride, kRuleChunk, read_k[j], 8 * j);
  }
#pragma unroll
  for (int j = 0; j < kRuleDim / 8; ++j) {
    put(p.a, p.a_stride, 0, w[j], 8 * j);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint32_t& pair = *reinterpret_cast<uint32_t*>(s.q0 + (lane / 4 + 8 * h) * kTileRow + 8 * j + 2 * (lane % 4));
      const float2 q0 = __half22float2(half2_of(pair));
      pair = pair_of(w[j][2 * h], w[j][2 * h + 1]);
      w[j][2 * h] = q0.x, w[j][2 * h + 1] = q0.y;
    }
  }
  __syncwarp();  // q0 is w now, and the registers have q0
#pragma unroll
  for (int j = 0; j < kRuleDim / 16; ++j) {
    load_transposed(b, place_of_b(s.q0, kTileRow, 0, 16 * j, lane));
    multiply(w[2 * j], w[2 * j + 1], reads, b);  // p
    put(p.a, p.a_stride, kRuleDim, w[2 * j], 16 * j);
    put(p.a, p.a_stride, kRuleDim, w[2 * j + 1], 16 * j + 8);
  }
}

constexpr int kRuleSlice = 32, kSliceRow = kRuleSlice + 8, kWalkWarps = 4, kWalkThreads = 32 * kWalkWarps;

// A chunk in shared memory.
struct RuleChunk {
  half w[kRuleChunk * kTileRow], p[kRuleChunk * kTileRow], b[kRuleChunk * kTileRow], k[kRuleChunk * kTileRow];
  half z[kRuleChunk * kSquareRow], r[kRuleChunk * kSquareRow];
  float keep[kRuleDim], v[kRuleChunk * kRuleSlice];
};
struct RuleWalk {
  RuleChunk chunks[2];
  half s[kRuleSlice * kTileRow];                                // the matrix: [column, row]
  half u[kRuleChunk * kSliceRow], v[kRuleChunk * kSliceRow];
};

__device__ __forceinline__ void copy_chunk(RuleChunk& to, const RankOne& p, int head, int column, int64_t first) {
  constexpr int kPieces = kRuleDim / 8, kAll = 4 * kPieces + 4 + 1 + kRuleSlice / 4;  // of a token
  for (int i = threadIdx.x; i < kRuleChunk * kAll; i += kWalkThreads) {
    const int t = i / kAll, piece = i % kAll;
    if (piece < 2 * kPieces) {
      copy16((piece < kPieces ? to.w : to.p) + t * kTileRow + piece % kPieces * 8,
             halves_at(p.a, p.a_stride, first + t, head) + piece * 8, true);
    } else if (piece < 4 * kPieces) {
      const int j = piece - 2 * kPieces;
      copy16((j < kPieces ? to.b : to.k) + t * kTileRow + j % kPieces * 8,
             halves_at(p.b, p.b_stride, first + t, head) + j * 8, true);
    } else if (piece < 4 * kPieces + 4) {
      const int j = piece - 4 * kPieces;
      copy16((j < 2 ? to.z : to.r) + t * kSquareRow + j % 2 * 8, halves_at(p.keep, p.keep_stride, first + t, head) + j * 8,
             true);
    } else if (piece == 4 * kPieces + 4) {
      copy16(to.keep + 4 * t, p.keep + (first + t) * p.keep_stride + head * kRuleDim + kRuleChunk, true);
    } else {
      const int j = (piece - 4 * kPieces - 5) * 4;
      copy16(to.v + t * kRuleSlice + j, p.v + (first + t) * p.v_stride + head * kRuleDim + column + j, true);
    }
  }
}

// c += x S + y v for 8 columns.
__device__ __forceinline__ void read_matrix(float (&c)[4], const half* x, const half* square, const RuleWalk& w,
                                            int column) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < kRuleDim; k += 16) {
    uint32_t a[4], b[2];
    load_matrices(a, place_of_a(x, kTileRow, 0, k, lane));
    b[0] = *reinterpret_cast<const uint32_t*>(w.s + (column + lane / 4) * kTileRow + k + 2 * (lane % 4));
    b[1] = *reinterpret_cast<const uint32_t*>(w.s + (column + lane / 4) * kTileRow + k + 8 + 2 * (lane % 4));
    mma(c, a[0], a[1], a[2], a[3], b[0], b[1]);
  }
  uint32_t a[4], b[4];
  load_matrices(a, place_of_a(square, kSquareRow, 0, 0, lane));
  load_transposed(b, place_of_b(w.v, kSliceRow, 0, column / 16 * 16, lane));
  column % 16 == 0 ? mma(c, a[0], a[1], a[2], a[3], b[0], b[1]) : mma(c, a[0], a[1], a[2], a[3], b[2], b[3]);
}

// Some columns of a head's matrix, through the whole chunks of a sequence.
__global__ void __launch_bounds__(kWalkThreads) rule_walk_kernel(const __grid_constant__ RankOne p) {
  extern __shared__ __align__(128) char shared[];
  RuleWalk& w = *reinterpret_cast<RuleWalk*>(shared);
  start_dependent();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, head = blockIdx.y, seq = blockIdx.z,
            first_column = static_cast<int>(blockIdx.x) * kRuleSlice;
  const int begin = p.batch.q_start[seq], length = p.batch.q_start[seq + 1] - begin, in = p.batch.state_in[seq];
  if (length < kFewestRuleTokens) return;
  const int end = begin + length / kRuleChunk * kRuleChunk;
  copy_chunk(w.chunks[0], p, head, first_column, begin);
  asm volatile("cp.async.commit_group;" ::: "memory");
  // A warp has 16 rows of the matrix.
  float s[kRuleSlice / 8][4];
  const auto each = [&](auto&& f) {
#pragma unroll
    for (int j = 0; j < kRuleSlice / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) f(s[j][e], 16 * warp + lane / 4 + e / 2 * 8, 8 * j + 2 * (lane % 4) + e % 2);
  };
  const int64_t place = (int64_t{head} * kRuleDim + first_column) * kRuleDim;
  const float* before = p.states.data + in * p.states.slot_floats + place;
  each([&](float& element, int row, int column) { element = in >= 0 ? before[column * kRuleDim + row] : 0.0f; });
  int at = 0;
  for (int first = begin; first < end; first += kRuleChunk, at ^= 1) {
    const RuleChunk& chunk = w.chunks[at];
    each([&](float& element, int row, int column) { w.s[column * kTileRow + row] = from_float<half>(element); });
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    for (int i = threadIdx.x; i < kRuleChunk * kRuleSlice / 2; i += kWalkThreads) {
      const int t = i / (kRuleSlice / 2), column = i % (kRuleSlice / 2) * 2;
      const float2 v = *reinterpret_cast<const float2*>(chunk.v + t * kRuleSlice + column);
      *reinterpret_cast<uint32_t*>(w.v + t * kSliceRow + column) = pair_of(v.x, v.y);
    }
    if (first + kRuleChunk < end) copy_chunk(w.chunks[at ^ 1], p, head, first_column, first + kRuleChunk);
    asm volatile("cp.async.commit_group;" ::: "memory");
    __syncthreads();
    float u[4] = {}, y[4] = {};
    read_matrix(u, chunk.w, chunk.z, w, 8 * warp);
    read_matrix(y, chunk.p, chunk.r, w, 8 * warp);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int t = lane / 4 + 8 * h, column = 8 * warp + 2 * (lane % 4);
      *reinterpret_cast<uint32_t*>(w.u + t * kSliceRow + column) = pair_of(u[2 * h], u[2 * h + 1]);
      *reinterpret_cast<float2*>(p.y + int64_t{first + t} * p.y_stride + head * kRuleDim + first_column + column) =
          make_float2(y[2 * h], y[2 * h + 1]);
    }
    __syncthreads();
    each([&](float& element, int row, int) { element *= chunk.keep[row]; });
    uint32_t of_b[4], of_k[4], b[4];
    load_transposed(of_b, place_of_transposed_a(chunk.b, kTileRow, 16 * warp, 0, lane));
    load_transposed(of_k, place_of_transposed_a(chunk.k, kTileRow, 16 * warp, 0, lane));
#pragma unroll
    for (int j = 0; j < kRuleSlice / 16; ++j) {
      load_transposed(b, place_of_b(w.u, kSliceRow, 0, 16 * j, lane));
      multiply(s[2 * j], s[2 * j + 1], of_b, b);
      load_transposed(b, place_of_b(w.v, kSliceRow, 0, 16 * j, lane));
      multiply(s[2 * j], s[2 * j + 1], of_k, b);
    }
  }
  float* after = p.states.data + p.batch.state_out[seq] * p.states.slot_floats + place;
  each([&](float& element, int row, int column) { after[column * kRuleDim + row] = element; });
}

bool is_on_packs(const Tensor& x) { return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 4 == 0; }

}  // namespace

bool recurrence::can_chunk_rule(const RankOneRuleArgs& a, const RankOne& p) {
  return a.least_keep >= kFewestKeep && p.key_dim == kRuleDim && p.value_dim == kRuleDim && is_on_packs(a.q) &&
         is_on_packs(a.keep) && is_on_packs(a.a) && is_on_packs(a.b) && is_on_packs(a.k) && is_on_packs(a.v) &&
         is_on_packs(a.y);
}

void recurrence::rule_chunks(const RankOne& p, int n_seqs, int most_tokens, Device& device) {
  const auto of_seqs = static_cast<unsigned>(n_seqs);
  launch(device, solve_kernel,
         dim3(static_cast<unsigned>(most_tokens / kRuleChunk), blocks_for(p.n_heads, kSolveWarps), of_seqs),
         32 * kSolveWarps, kSolveWarps * sizeof(Solving), p);
  launch(device, rule_walk_kernel, dim3(kRuleDim / kRuleSlice, static_cast<unsigned>(p.n_heads), of_seqs),
         kWalkThreads, sizeof(RuleWalk), p);
}

}  // namespace ingot::cuda
