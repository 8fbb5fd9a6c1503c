// The rank-one rule over many tokens: 16 tokens are one chunk. S is the matrix before a chunk, g[t] the product of keep
// over the chunk's tokens up to t, for each row, and u[t] = a[t] S_before. With i up to t, or before t for u:
//   u[t] = (a[t] g[t-1]) S + sum over i < t of (a[t] g[t-1] / g[i]) (b[i] u[i] + k[i] v[i])
//   y[t] = (q[t] g[t]) S + sum over i <= t of (q[t] g[t] / g[i]) (b[i] u[i] + k[i] v[i])
//   S = diag(g[last]) S + sum over i of (g[last] / g[i]) (b[i]^T u[i] + k[i]^T v[i])        after the chunk
// The sums over i < t are a triangular system. A first kernel solves it for all chunks at once, which leaves
//   u = w S + z v,  y = p S + r v
// with w, p [16, 64] and z, r [16, 16]. Factors g[t] / g[i] are split at the chunk's middle; each keep is at least 1/2,
// so both parts fit in halves. The results overwrite rows of the inputs: w and p those of a; (g[last] / g[i]) b[i] and
// k[i] those of b; z, r and g[last] those of keep. A second kernel walks through the chunks of a sequence: a warp has 16
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

// Fills the tiles. A lane has two neighbouring rows of the matrix. Rows of some tokens are loaded before anything is
// stored, because a load waits for the stores before it.
__device__ __forceinline__ void load_tiles(Solving& s, const RankOne& p, int head, int64_t first) {
  constexpr int kMiddle = kRuleChunk / 2, kAtOnce = 8;
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
  for (int first_row = 0; first_row < kRuleChunk; first_row += kAtOnce) {
    float2 a[kAtOnce], b[kAtOnce], q[kAtOnce], k[kAtOnce];
    const auto row_of = [&](const float* rows, int64_t stride, int i) {
      return *reinterpret_cast<const float2*>(rows + (first + first_row + i) * stride + at);
    };
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      a[i] = row_of(p.a, p.a_stride, i), b[i] = row_of(p.b, p.b_stride, i);
      q[i] = row_of(p.q, p.q_stride, i), k[i] = row_of(p.k, p.k_stride, i);
    }
    __syncwarp();  // all of the rows of b have been read
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int t = first_row + i;
      const float2 before = t == 0 ? start : d[t > 0 ? t - 1 : 0], now = d[t],
                   inverse = {__fdividef(1.0f, now.x), __fdividef(1.0f, now.y)};
      const auto put = [&](half* tile, float x, float y) {
        *reinterpret_cast<uint32_t*>(tile + t * kTileRow + 2 * lane) = pair_of(x, y);
      };
      put(s.a, a[i].x * before.x, a[i].y * before.y);
      put(s.q, q[i].x * now.x, q[i].y * now.y);
      put(s.b, b[i].x * inverse.x, b[i].y * inverse.y);
      put(s.k, k[i].x * inverse.x, k[i].y * inverse.y);
      put(s.a0, a[i].x * before.x * from_start.x, a[i].y * before.y * from_start.y);
      put(s.q0, q[i].x * now.x * from_start.x, q[i].y * now.y * from_start.y);
      half* to = halves_at(p.b, p.b_stride, first + t, head) + 2 * lane;
      *reinterpret_cast<uint32_t*>(to) = pair_of(b[i].x * last.x * inverse.x, b[i].y * last.y * inverse.y);
      *reinterpret_cast<uint32_t*>(to + kRuleDim) = pair_of(k[i].x * last.x * inverse.x, k[i].y * last.y * inverse.y);
    }
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
  const auto put = [&](float* rows, int64_t stride, int first_half, float(&c)[4], int column) {
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

// A warp of the second kernel has 16 columns of a head's matrix.
constexpr int kWalkWarps = 2, kWalkThreads = 32 * kWalkWarps, kWarpColumns = 16, kSlice = kWalkWarps * kWarpColumns,
              kStages = 4;  // chunks in shared memory
constexpr int kPairRow = 2 * kRuleDim + 8, kSquaresRow = 2 * kRuleChunk + 8,
              kValueRow = kSlice + 4;  // rows in shared memory, against bank conflicts

// A chunk in shared memory, as the first kernel leaves it.
struct RuleChunk {
  half a[kRuleChunk * kPairRow], b[kRuleChunk * kPairRow];  // of a token: w and p; b and k
  half squares[kRuleChunk * kSquaresRow];                   // z, r, and four floats of g[last]
  float v[kRuleChunk * kValueRow];

  __device__ __forceinline__ float2 keep(int row) const {  // of two rows of the matrix, from an even one on
    return *reinterpret_cast<const float2*>(
        reinterpret_cast<const float*>(squares + row / 4 * kSquaresRow + 2 * kRuleChunk) + row % 4);
  }
};

// Copies the chunk of 16 tokens from `first` on. A thread copies the same piece of some tokens.
__device__ __forceinline__ void copy_chunk(RuleChunk& to, const RankOne& p, int head, int column, int64_t first) {
  const auto copy_rows = [&](auto* rows, int row, const float* from, int64_t stride, int n_pieces, int used) {
    const int piece = static_cast<int>(threadIdx.x) % n_pieces * 16, t = static_cast<int>(threadIdx.x) / n_pieces,
              at_once = kWalkThreads / n_pieces;
    const char* source = reinterpret_cast<const char*>(from + (first + t) * stride) + piece;
    char* target = reinterpret_cast<char*>(rows) + t * row + piece;
    if (piece >= 16 * used) return;
#pragma unroll
    for (int i = 0; i < kRuleChunk / at_once; ++i)
      copy16(target + i * at_once * row, source + i * at_once * stride * 4, true);
  };
  constexpr int kHalf = sizeof(half), kFloat = sizeof(float);
  copy_rows(to.a, kPairRow * kHalf, p.a + head * kRuleDim, p.a_stride, 16, 16);
  copy_rows(to.b, kPairRow * kHalf, p.b + head * kRuleDim, p.b_stride, 16, 16);
  copy_rows(to.squares, kSquaresRow * kHalf, p.keep + head * kRuleDim, p.keep_stride, 8, 5);
  copy_rows(to.v, kValueRow * kFloat, p.v + head * kRuleDim + column, p.v_stride, 8, 8);
}

// An operand a [16, 16] from the sums of two products [16, 8].
__device__ __forceinline__ void operand_of(uint32_t (&a)[4], const float (&left)[4], const float (&right)[4]) {
  a[0] = pair_of(left[0], left[1]), a[1] = pair_of(left[2], left[3]);
  a[2] = pair_of(right[0], right[1]), a[3] = pair_of(right[2], right[3]);
}

// Some columns of a head's matrix through the whole chunks of a sequence. All is transposed, so that sums of a product
// become the next product's operand in the same registers, and a warp waits for no other: s is [16 columns, 64 rows],
// u, v and y are [16 columns, 16 tokens].
__global__ void __launch_bounds__(kWalkThreads) rule_walk_kernel(const __grid_constant__ RankOne p) {
  extern __shared__ __align__(128) char shared[];
  auto* chunks = reinterpret_cast<RuleChunk*>(shared);  // [kStages]
  start_dependent();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, head = blockIdx.y, seq = blockIdx.z,
            first_column = static_cast<int>(blockIdx.x) * kSlice;
  const int begin = p.batch.q_start[seq], length = p.batch.q_start[seq + 1] - begin, in = p.batch.state_in[seq];
  if (length < kFewestRuleTokens) return;
  const int n_chunks = length / kRuleChunk;
  const auto copy = [&](int i) {
    if (i < n_chunks) copy_chunk(chunks[i % kStages], p, head, first_column, begin + int64_t{i} * kRuleChunk);
    end_copies();
  };
#pragma unroll 1
  for (int i = 0; i + 1 < kStages; ++i) copy(i);
  float s[kRuleDim / 8][4];
  const auto each_pair = [&](auto&& f) {
#pragma unroll
    for (int j = 0; j < kRuleDim / 8; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        f(s[j][2 * h], s[j][2 * h + 1], 8 * j + 2 * (lane % 4),
          (int64_t{head} * kRuleDim + first_column + kWarpColumns * warp + lane / 4 + 8 * h) * kRuleDim);
  };
  const float* before = p.states.data + in * p.states.slot_floats;
  each_pair([&](float& a, float& b, int row, int64_t column) {
    a = in >= 0 ? before[column + row] : 0.0f, b = in >= 0 ? before[column + row + 1] : 0.0f;
  });
  const int own = kWarpColumns * warp + lane / 4;  // the lane's first column in the block
  float* y_at = p.y + begin * p.y_stride + head * kRuleDim + first_column + own;
#pragma unroll 1
  for (int i = 0; i < n_chunks; ++i) {
    await_copies<kStages - 2>();
    __syncthreads();
    copy(i + kStages - 1);  // to the chunk before, which all warps have read
    const RuleChunk& chunk = chunks[i % kStages];
    uint32_t of_s[4], of_v[4], of_u[4], b[4];
    const float* v = chunk.v + 2 * (lane % 4) * kValueRow + own;
#pragma unroll
    for (int piece = 0; piece < 4; ++piece) {
      const float* at = v + piece / 2 * 8 * kValueRow + piece % 2 * 8;
      of_v[piece] = pair_of(at[0], at[kValueRow]);
    }
    float u[2][4] = {}, y[2][4] = {};
    load_matrices(b, place_of_transposed_b(chunk.squares, kSquaresRow, 0, 0, lane));  // z
    multiply(u[0], u[1], of_v, b);
    load_matrices(b, place_of_transposed_b(chunk.squares, kSquaresRow, kRuleChunk, 0, lane));  // r
    multiply(y[0], y[1], of_v, b);
#pragma unroll
    for (int k = 0; k < kRuleDim / 16; ++k) {
      operand_of(of_s, s[2 * k], s[2 * k + 1]);
      load_matrices(b, place_of_transposed_b(chunk.a, kPairRow, 16 * k, 0, lane));  // w
      multiply(u[0], u[1], of_s, b);
      load_matrices(b, place_of_transposed_b(chunk.a, kPairRow, kRuleDim + 16 * k, 0, lane));  // p
      multiply(y[0], y[1], of_s, b);
    }
    operand_of(of_u, u[0], u[1]);
#pragma unroll
    for (int j = 0; j < kRuleDim / 8; ++j) {
      const float2 keep = chunk.keep(8 * j + 2 * (lane % 4));
      s[j][0] *= keep.x, s[j][1] *= keep.y, s[j][2] *= keep.x, s[j][3] *= keep.y;
    }
#pragma unroll
    for (int j = 0; j < kRuleDim / 16; ++j) {
      load_transposed(b, place_of_b(chunk.b, kPairRow, 0, kRuleDim + 16 * j, lane));  // k
      multiply(s[2 * j], s[2 * j + 1], of_v, b);
      load_transposed(b, place_of_b(chunk.b, kPairRow, 0, 16 * j, lane));
      multiply(s[2 * j], s[2 * j + 1], of_u, b);
    }
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) y_at[(8 * j + 2 * (lane % 4) + e % 2) * p.y_stride + e / 2 * 8] = y[j][e];
    y_at += kRuleChunk * p.y_stride;
  }
  float* after = p.states.data + p.batch.state_out[seq] * p.states.slot_floats;
  each_pair([&](float& a, float& b, int row, int64_t column) { after[column + row] = a, after[column + row + 1] = b; });
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
  launch(device, rule_walk_kernel, dim3(kRuleDim / kSlice, static_cast<unsigned>(p.n_heads), of_seqs), kWalkThreads,
         kStages * sizeof(RuleChunk), p);
}

}  // namespace ingot::cuda
