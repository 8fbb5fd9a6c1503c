// The scan of Mamba-2 over many tokens at once (arXiv:2405.21060): 64 tokens are one chunk. S is the matrix before a
// chunk, and g[t] is the sum of decay * step over the chunk's tokens up to t. Then
//   y[t] = exp(g[t]) c[t] S + sum over s <= t of exp(g[t] - g[s]) (c[t] b[s]) step[s] x[s] + skip x[t]
//   S = exp(g[last]) S + sum over s of exp(g[last] - g[s]) b[s]^T step[s] x[s]                   after the chunk
// No exponent is positive, however fast a state decays.
//
// A first kernel computes what all heads of a group share, for all chunks at once: it overwrites b and c with halves,
// and writes the products c[t] b[s] behind the halves of c. Steps and sums g replace dt and keep. A second kernel walks
// through the chunks of a sequence: a block has 64 columns of a head's matrix (32 if the head's size is no multiple of
// 64), in registers as f32. Products are on the tensor cores, from halves, with sums in f32. While a chunk is used, the
// next one's c and products are copied to shared memory and its x to registers; while outputs are computed, b.
//
// A walk is a chain of chunks, so few sequences leave most of the GPU waiting. They are cut into parts of some chunks: all parts are walked at once without outputs, from zeros; a third kernel joins their matrices;
// and all parts are walked again, from the matrices before them.
#include "backend/cuda/memory.h"
#include "backend/cuda/recurrence/ssm_scan.cuh"
#include "backend/cuda/recurrence/tiles.cuh"

namespace ingot::cuda {

using namespace recurrence;

namespace {

constexpr int kSsmTokens = kChunkedScanTokens, kSsmWarps = 8, kSsmThreads = 32 * kSsmWarps;
constexpr float kLargestHalf = 65504.0f;
constexpr int kFewestPartChunks = 4, kMostParts = 16;  // of a sequence
constexpr int kPairsRow = kSsmTokens + 8;              // rows in halves, against bank conflicts

template <int kState>
constexpr int kStateRow = kState + 8;

// Numbers past the largest half become it, because an infinity times a decay of 0 is no number.
__device__ __forceinline__ uint32_t finite(half2 pair) {
  const half2 most = __float2half2_rn(kLargestHalf);
  return bits_of(__hmax2(__hmin2(pair, most), __hneg2(most)));
}
__device__ __forceinline__ uint32_t finite_pair_of(float a, float b) { return finite(__floats2half2_rn(a, b)); }
__device__ __forceinline__ uint2 finite_halves_of(const float4& v) {
  return make_uint2(finite_pair_of(v.x, v.y), finite_pair_of(v.z, v.w));
}

// The places of a group's halves and products in the rows of b and c.
template <int kState>
struct Halves {
  half *b, *c, *pairs;  // of token 0
  int64_t b_stride, c_stride;

  __device__ Halves(const Scan& p, int group)
      : b(reinterpret_cast<half*>(p.b + group * kState)),
        c(reinterpret_cast<half*>(p.c + group * kState)),
        pairs(c + kState),
        b_stride(2 * p.b_stride),
        c_stride(2 * p.c_stride) {}
};

// Steps, and sums of decay * step from the chunk's first token on. steps: room for room floats. All threads compute
// steps, because a step needs a logarithm; then a thread adds up those of a head.
__device__ __forceinline__ void find_steps(const Scan& p, float* steps, int room, int group, int64_t first, int n) {
  constexpr float kLeast = -60.0f;  // of one token, after which nothing is left of the state
  const int sharing = p.n_heads / p.n_groups, most = room / kSsmTokens;
  for (int done = 0; done < sharing; done += most) {
    const int head = group * sharing + done, n_heads = min(most, sharing - done);
    for (int i = threadIdx.x; i < n * n_heads; i += kSsmThreads) {
      const int t = i / n_heads, h = i % n_heads;
      float& dt = p.dt[(first + t) * p.dt_stride + head + h];
      steps[i] = dt = step_of(p, dt, p.dt_bias[head + h]);
    }
    __syncthreads();
    for (int h = threadIdx.x; h < n_heads; h += kSsmThreads) {
      const float decay = p.decay[head + h];
      float sum = 0;
      for (int t = 0; t < n; ++t)
        p.keep[(first + t) * p.keep_stride + head + h] = sum += fmaxf(decay * steps[t * n_heads + h], kLeast);
    }
    __syncthreads();
  }
}

// One chunk of one group of a sequence. Half of the blocks compute steps, and the others products.
template <int kState>
__global__ void __launch_bounds__(kSsmThreads) pairs_kernel(const __grid_constant__ Scan p) {
  constexpr int kRow = kStateRow<kState>, kPacks = kState / 4, kPerLane = (kPacks + 31) / 32;
  extern __shared__ __align__(128) char shared[];
  half *b = reinterpret_cast<half*>(shared), *c = b + kSsmTokens * kRow;
  start_dependent();
  const int group = blockIdx.y / 2, seq = blockIdx.z, done = static_cast<int>(blockIdx.x) * kSsmTokens,
            warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int begin = p.batch.q_start[seq], length = p.batch.q_start[seq + 1] - begin, n = min(kSsmTokens, length - done);
  if (length < kSsmTokens || n <= 0) return;
  const int64_t first = begin + done;
  if (blockIdx.y % 2 == 0) return find_steps(p, reinterpret_cast<float*>(shared), kSsmTokens * kRow, group, first, n);
  const Halves<kState> halves(p, group);
  for (int t = warp; t < kSsmTokens; t += kSsmWarps) {
    float4 of_b[kPerLane] = {}, of_c[kPerLane] = {};
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int i = lane + 32 * j;
      if (t >= n || i >= kPacks) continue;
      of_b[j] = reinterpret_cast<const float4*>(p.b + (first + t) * p.b_stride + group * kState)[i];
      of_c[j] = reinterpret_cast<const float4*>(p.c + (first + t) * p.c_stride + group * kState)[i];
    }
    __syncwarp();  // the halves overwrite the row
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int i = lane + 32 * j;
      if (i >= kPacks) continue;
      const uint2 b4 = finite_halves_of(of_b[j]), c4 = finite_halves_of(of_c[j]);
      reinterpret_cast<uint2*>(b + t * kRow)[i] = b4;
      reinterpret_cast<uint2*>(c + t * kRow)[i] = c4;
      if (t >= n) continue;
      reinterpret_cast<uint2*>(halves.b + (first + t) * halves.b_stride)[i] = b4;
      reinterpret_cast<uint2*>(halves.c + (first + t) * halves.c_stride)[i] = c4;
    }
  }
  __syncthreads();
  // A warp has 16 rows and 32 columns of the products; those above the diagonal are not used.
  const int row = warp % 4 * 16, column = warp / 4 * 32;
  if (column > row + 15) return;
  float sums[4][4] = {};
#pragma unroll
  for (int k = 0; k < kState; k += 16) {
    uint32_t of_c[4], of_b[4];
    load_matrices(of_c, place_of_a(c, kRow, row, k, lane));
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      load_matrices(of_b, place_of_transposed_b(b, kRow, k, column + 16 * j, lane));
      multiply(sums[2 * j], sums[2 * j + 1], of_c, of_b);
    }
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int t = row + lane / 4 + 8 * h;
    if (t >= n) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      *reinterpret_cast<uint32_t*>(halves.pairs + (first + t) * halves.c_stride + column + 8 * j + 2 * (lane % 4)) =
          finite_pair_of(sums[j][2 * h], sums[j][2 * h + 1]);
  }
}

// What a block of the second kernel has in shared memory. Two chunks have places for what outputs need.
template <int kStateDim, int kColumns>
struct ScanWalk {
  static constexpr int kState = kStateDim, kSlice = kColumns, kSliceRow = kSlice + 8, kRow = kStateRow<kState>;
  struct Chunk {
    half c[kSsmTokens * kRow], pairs[kSsmTokens * kPairsRow];
    float step[kSsmTokens], sum[kSsmTokens];
  };
  Chunk chunks[2];
  half b[kSsmTokens * kRow];
  half s[kState * kSliceRow];  // the matrix: [row, column]
  half x[kSsmTokens * kSliceRow];
  half left[kSsmTokens];  // step, times what is left of a token after the chunk

  // A walk without outputs has no c, so two chunks have places for b.
  __device__ half* next_b(int chunk) { return chunk % 2 == 0 ? b : chunks[0].c; }
};

// Blocks of a multiprocessor.
constexpr int walks_at_once(int state_dim) { return state_dim > 128 ? 1 : 2; }

// What a walk computes: all of a sequence; of a part, its matrix if it began with zeros; the outputs of a part.
enum class Walk { kAll, kEnd, kOutputs };

// Copies rows of halves [64, cols], from token `first` on; tokens from n on are zeros.
template <int cols>
__device__ __forceinline__ void copy_rows(half* to, int row, const half* from, int64_t stride, int64_t first, int n) {
  constexpr int kPieces = cols / 8, kAtOnce = kSsmThreads / kPieces;  // rows
  const int t = static_cast<int>(threadIdx.x) / kPieces, piece = static_cast<int>(threadIdx.x) % kPieces * 8;
  const half* at = from + (first + t) * stride + piece;
#pragma unroll
  for (int j = 0; j < kSsmTokens / kAtOnce; ++j, at += kAtOnce * stride) {
    const bool in = t + j * kAtOnce < n;
    copy16(to + (t + j * kAtOnce) * row + piece, in ? at : from, in);
  }
}
// Copies the chunk's steps and their sums, and for outputs c and products.
template <Walk kWalk, class W>
__device__ __forceinline__ void copy_chunk(typename W::Chunk& to, const Scan& p, const Halves<W::kState>& halves,
                                           int head, int64_t first, int n) {
  if (kWalk != Walk::kEnd) {
    copy_rows<W::kState>(to.c, W::kRow, halves.c, halves.c_stride, first, n);
    copy_rows<kSsmTokens>(to.pairs, kPairsRow, halves.pairs, halves.c_stride, first, n);
  }
  if (const int t = threadIdx.x; t < kSsmTokens) {
    copy_float(&to.step[t], p.dt + (t < n ? (first + t) * p.dt_stride : 0) + head, t < n);
    copy_float(&to.sum[t], p.keep + (t < n ? (first + t) * p.keep_stride : 0) + head, t < n);
  }
}

// A thread's share of a chunk's x: loaded to registers while another chunk is used.
template <class W>
struct ScanInputs {
  static constexpr int kPacks = W::kSlice / 4, kOwn = kSsmTokens * kPacks / kSsmThreads;
  float4 x[kOwn];

  // from: of the chunk's first token and the block's first column; tokens from n on are zeros
  __device__ __forceinline__ void load(const float* from, int64_t stride, int n) {
    constexpr int kAtOnce = kSsmThreads / kPacks;  // tokens
    const int t = static_cast<int>(threadIdx.x) / kPacks;
    const float* at = from + t * stride + static_cast<int>(threadIdx.x) % kPacks * 4;
#pragma unroll
    for (int j = 0; j < kOwn; ++j, at += kAtOnce * stride)
      x[j] = t + j * kAtOnce < n ? *reinterpret_cast<const float4*>(at) : float4{};
  }
  __device__ __forceinline__ void show(W& w) const {
#pragma unroll
    for (int j = 0; j < kOwn; ++j) {
      const int i = static_cast<int>(threadIdx.x) + j * kSsmThreads;
      *reinterpret_cast<uint2*>(w.x + i / kPacks * W::kSliceRow + i % kPacks * 4) = finite_halves_of(x[j]);
    }
  }
};

// The products of 16 tokens from `row` on with 16 tokens from `s` on, an operand a, times steps and decays. On the
// diagonal, tokens have no part in outputs before them.
template <bool kDiagonal, class Chunk>
__device__ __forceinline__ void load_decayed(uint32_t (&a)[4], const Chunk& chunk, int row, int s,
                                             const float (&sums)[2], int lane) {
  load_matrices(a, place_of_a(chunk.pairs, kPairsRow, row, s, lane));
#pragma unroll
  for (int piece = 0; piece < 4; ++piece) {
    const int t = row + lane / 4 + piece % 2 * 8, of = s + 2 * (lane % 4) + piece / 2 * 8;
    const float2 product = __half22float2(half2_of(a[piece])),
                 before = *reinterpret_cast<const float2*>(chunk.sum + of),
                 step = *reinterpret_cast<const float2*>(chunk.step + of);
    float2 decayed = {product.x * step.x * __expf(sums[piece % 2] - before.x),
                      product.y * step.y * __expf(sums[piece % 2] - before.y)};
    if (kDiagonal) decayed = {of <= t ? decayed.x : 0.0f, of + 1 <= t ? decayed.y : 0.0f};
    a[piece] = finite_pair_of(decayed.x, decayed.y);
  }
}

// A warp computes 16 tokens and half of the columns of the outputs. y: of the chunk's first token and the block's first
// column.
template <class W>
__device__ __forceinline__ void put_scan_outputs(const W& w, const typename W::Chunk& chunk, float* y, int64_t stride,
                                                 float skip, int n) {
  constexpr int kColumns = W::kSlice / 2;
  const int lane = threadIdx.x % 32, row = static_cast<int>(threadIdx.x) / 32 % 4 * 16,
            column = static_cast<int>(threadIdx.x) / 128 * kColumns;
  float sums[kColumns / 8][4] = {};
#pragma unroll
  for (int k = 0; k < W::kState; k += 16) {
    uint32_t a[4], b[4];
    load_matrices(a, place_of_a(chunk.c, W::kRow, row, k, lane));
#pragma unroll
    for (int j = 0; j < kColumns / 16; ++j) {
      load_transposed(b, place_of_b(w.s, W::kSliceRow, k, column + 16 * j, lane));
      multiply(sums[2 * j], sums[2 * j + 1], a, b);
    }
  }
  const float of_rows[2] = {chunk.sum[row + lane / 4], chunk.sum[row + lane / 4 + 8]};
  const float decays[2] = {__expf(of_rows[0]), __expf(of_rows[1])};
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[j][e] *= decays[e / 2];
  const auto add = [&]<bool kDiagonal>(int k) {
    uint32_t a[4], b[4];
    load_decayed<kDiagonal>(a, chunk, row, k, of_rows, lane);
#pragma unroll
    for (int j = 0; j < kColumns / 16; ++j) {
      load_transposed(b, place_of_b(w.x, W::kSliceRow, k, column + 16 * j, lane));
      multiply(sums[2 * j], sums[2 * j + 1], a, b);
    }
  };
#pragma unroll 1
  for (int k = 0; k < row; k += 16) add.template operator()<false>(k);
  add.template operator()<true>(row);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int t = row + lane / 4 + 8 * h;
    if (t >= n) continue;
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j) {
      const int at = column + 8 * j + 2 * (lane % 4);
      const float2 x = __half22float2(*reinterpret_cast<const half2*>(w.x + t * W::kSliceRow + at));
      *reinterpret_cast<float2*>(y + t * stride + at) =
          make_float2(fmaf(skip, x.x, sums[j][2 * h]), fmaf(skip, x.y, sums[j][2 * h + 1]));
    }
  }
}

// A warp's rows of the block's columns of the matrix: bands of 16 rows, 8 bands apart.
template <class W>
struct ScanRows {
  static constexpr int kState = W::kState, kSlice = W::kSlice, kBands = (kState / 16 + kSsmWarps - 1) / kSsmWarps;
  float s[kBands][kSlice / 8][4] = {};

  // Calls f with neighbours in a row, the row, and the first one's column.
  template <class F>
  __device__ __forceinline__ void each(F&& f) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < kBands; ++m) {
      const int first = 16 * (warp + kSsmWarps * m);
      if (first >= kState) break;
#pragma unroll
      for (int j = 0; j < kSlice / 8; ++j)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          f(s[m][j][2 * h], s[m][j][2 * h + 1], first + lane / 4 + 8 * h, 8 * j + 2 * (lane % 4));
    }
  }
  __device__ __forceinline__ void show(W& w) {
    each([&](float& a, float& b, int row, int column) {
      *reinterpret_cast<uint32_t*>(w.s + row * W::kSliceRow + column) = finite_pair_of(a, b);
    });
  }
  // of_b: [64, kState]
  __device__ __forceinline__ void update(const W& w, const half* of_b, float keep) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    each([&](float& a, float& b, int, int) { a *= keep, b *= keep; });
#pragma unroll
    for (int m = 0; m < kBands; ++m) {
      const int first = 16 * (warp + kSsmWarps * m);
      if (first >= kState) break;
#pragma unroll
      for (int k = 0; k < kSsmTokens; k += 16) {
        uint32_t a[4], b[4];
        load_transposed(a, place_of_transposed_a(of_b, W::kRow, first, k, lane));
#pragma unroll
        for (int piece = 0; piece < 4; ++piece) {
          const half2 left = *reinterpret_cast<const half2*>(w.left + k + piece / 2 * 8 + 2 * (lane % 4));
          a[piece] = finite(__hmul2(half2_of(a[piece]), left));
        }
#pragma unroll
        for (int j = 0; j < kSlice / 16; ++j) {
          load_transposed(b, place_of_b(w.x, W::kSliceRow, k, 16 * j, lane));
          multiply(s[m][2 * j], s[m][2 * j + 1], a, b);
        }
      }
    }
  }
};

// The parts of long sequences.
struct ScanParts {
  Scan scan;
  float* matrices;  // [parts, n_heads, head_dim, state_dim]: after each part, or before it
  int tokens;       // of a part: some chunks

  // Parts are in the order of sequences, with gaps.
  __device__ float* at(int first_token, int seq) const {
    return matrices + int64_t{first_token / tokens + seq} * scan.n_heads * scan.head_dim * scan.state_dim;
  }
};

// Some columns of a head's matrix, through all chunks of a sequence or of a part.
template <int kState, int kSlice, Walk kWalk>
__global__ void __launch_bounds__(kSsmThreads, walks_at_once(kState))
    scan_walk_kernel(const __grid_constant__ ScanParts parts) {
  extern __shared__ __align__(128) char shared[];
  using W = ScanWalk<kState, kSlice>;
  W& w = *reinterpret_cast<W*>(shared);
  start_dependent();
  const Scan& p = parts.scan;
  const int head = blockIdx.y, slices = p.head_dim / kSlice, part = static_cast<int>(blockIdx.x) / slices,
            seq = blockIdx.z, first_column = static_cast<int>(blockIdx.x) % slices * kSlice;
  const int start = p.batch.q_start[seq], stop = p.batch.q_start[seq + 1], in = p.batch.state_in[seq];
  const int begin = start + part * parts.tokens, end = kWalk == Walk::kAll ? stop : min(begin + parts.tokens, stop);
  if (stop - start < kSsmTokens || begin >= stop || (kWalk == Walk::kEnd && end == stop)) return;
  const Halves<kState> halves(p, head / (p.n_heads / p.n_groups));
  const int column = head * p.head_dim + first_column;  // of x
  const auto n_of = [&](int chunk) { return max(0, min(kSsmTokens, end - begin - chunk * kSsmTokens)); };
  const auto first_of = [&](int chunk) { return int64_t{begin} + chunk * kSsmTokens; };
  const auto copy_b = [&](int chunk) {
    copy_rows<kState>(kWalk == Walk::kEnd ? w.next_b(chunk) : w.b, W::kRow, halves.b, halves.b_stride, first_of(chunk),
                      n_of(chunk));
  };
  ScanInputs<W> inputs;
  const auto begin_chunk = [&](int chunk) {
    copy_chunk<kWalk, W>(w.chunks[chunk % 2], p, halves, head, first_of(chunk), n_of(chunk));
    if (kWalk == Walk::kEnd) copy_b(chunk);
    end_copies();
    inputs.load(p.x + first_of(chunk) * p.x_stride + column, p.x_stride, n_of(chunk));
  };
  begin_chunk(0);
  if (kWalk != Walk::kEnd) copy_b(0), end_copies();
  ScanRows<W> rows;
  const auto place_of = [&](int row, int column) {
    return (int64_t{head} * p.head_dim + first_column + column) * kState + row;
  };
  const float *before = kWalk == Walk::kAll ? p.states.data + in * p.states.slot_floats : parts.at(begin, seq),
              skip = p.skip[head];
  if (kWalk != Walk::kEnd) {
    const bool is_kept = kWalk == Walk::kOutputs || in >= 0;
    rows.each([&](float& a, float& b, int row, int column) {
      a = is_kept ? before[place_of(row, column)] : 0.0f, b = is_kept ? before[place_of(row, column + 1)] : 0.0f;
    });
    rows.show(w);
  }
  for (int chunk = 0; n_of(chunk) > 0; ++chunk) {
    const int n = n_of(chunk);
    const auto& own = w.chunks[chunk % 2];
    inputs.show(w);
    await_copies<kWalk == Walk::kEnd ? 0 : 1>();  // b is still being copied
    __syncthreads();
    begin_chunk(chunk + 1);
    const float last = own.sum[n - 1];
    if (const int t = threadIdx.x; t < kSsmTokens)
      w.left[t] = from_float<half>(fminf(own.step[t] * __expf(fminf(last - own.sum[t], 0.0f)), kLargestHalf));
    if (kWalk != Walk::kEnd) put_scan_outputs(w, own, p.y + first_of(chunk) * p.y_stride + column, p.y_stride, skip, n);
    if (kWalk == Walk::kOutputs && end < stop && n_of(chunk + 1) == 0) break;
    if (kWalk != Walk::kEnd) await_copies<1>();
    __syncthreads();
    rows.update(w, kWalk == Walk::kEnd ? w.next_b(chunk) : w.b, __expf(last));
    if (kWalk != Walk::kEnd) rows.show(w);
    __syncthreads();
    if (kWalk != Walk::kEnd) copy_b(chunk + 1), end_copies();
  }
  await_copies<0>();
  if (kWalk == Walk::kOutputs && end < stop) return;
  float* after =
      kWalk == Walk::kEnd ? parts.at(begin, seq) : p.states.data + p.batch.state_out[seq] * p.states.slot_floats;
  rows.each([&](float& a, float& b, int row, int column) {
    after[place_of(row, column)] = a, after[place_of(row, column + 1)] = b;
  });
}

constexpr int kJoinThreads = 256, kJoinPack = 4, kJoinedAtOnce = 8;  // parts whose matrices are read together

// A thread handles some elements of a head's matrix, and replaces the matrix after each part by the one before it.
__global__ void __launch_bounds__(kJoinThreads) join_scans_kernel(const __grid_constant__ ScanParts parts) {
  start_dependent();
  const Scan& p = parts.scan;
  const int seq = blockIdx.z, head = blockIdx.y, start = p.batch.q_start[seq], stop = p.batch.q_start[seq + 1],
            in = p.batch.state_in[seq], size = p.head_dim * p.state_dim,
            element = (static_cast<int>(blockIdx.x) * kJoinThreads + threadIdx.x) * kJoinPack;
  if (stop - start < kSsmTokens || element >= size) return;
  const int64_t place = int64_t{head} * size + element;
  const auto matrix = [&](int begin) { return reinterpret_cast<float4*>(parts.at(begin, seq) + place); };
  const float* before = p.states.data + in * p.states.slot_floats + place;  // not always on 16 bytes
  float4 s = in >= 0 ? make_float4(before[0], before[1], before[2], before[3]) : float4{};
  for (int first = start; first < stop; first += kJoinedAtOnce * parts.tokens) {
    float4 after[kJoinedAtOnce];
    float sums[kJoinedAtOnce] = {};
#pragma unroll
    for (int i = 0; i < kJoinedAtOnce; ++i) {
      const int begin = first + i * parts.tokens;
      if (begin + parts.tokens >= stop) break;
      after[i] = *matrix(begin);
      for (int t = begin + kSsmTokens; t <= begin + parts.tokens; t += kSsmTokens)
        sums[i] += p.keep[int64_t{t - 1} * p.keep_stride + head];
    }
#pragma unroll
    for (int i = 0; i < kJoinedAtOnce; ++i) {
      const int begin = first + i * parts.tokens;
      if (begin >= stop) break;
      *matrix(begin) = s;
      const float keep = __expf(sums[i]);
      if (begin + parts.tokens < stop)
        s = make_float4(fmaf(keep, s.x, after[i].x), fmaf(keep, s.y, after[i].y), fmaf(keep, s.z, after[i].z),
                        fmaf(keep, s.w, after[i].w));
    }
  }
}

// Columns of a block: 64 read b and c half as often as 32.
int slice_of(int head_dim) { return head_dim % 64 == 0 ? 64 : 32; }

template <int kState, int kSlice>
void start_walks(const ScanParts& parts, int n_seqs, int most_tokens, Device& device) {
  const Scan& p = parts.scan;
  const auto of_seqs = static_cast<unsigned>(n_seqs), heads = static_cast<unsigned>(p.n_heads);
  const auto walk = [&](auto kernel, unsigned n_parts) {
    launch(device, kernel, dim3(static_cast<unsigned>(p.head_dim / kSlice) * n_parts, heads, of_seqs), kSsmThreads,
           sizeof(ScanWalk<kState, kSlice>), parts);
  };
  if (parts.matrices == nullptr) return walk(scan_walk_kernel<kState, kSlice, Walk::kAll>, 1);
  const unsigned n_parts = blocks_for(most_tokens, parts.tokens);
  walk(scan_walk_kernel<kState, kSlice, Walk::kEnd>, n_parts - 1);
  launch(device, join_scans_kernel,
         dim3(blocks_for(p.head_dim * p.state_dim, kJoinThreads * kJoinPack), heads, of_seqs), kJoinThreads, 0, parts);
  walk(scan_walk_kernel<kState, kSlice, Walk::kOutputs>, n_parts);
}

template <int kState>
void start_chunks(const ScanParts& parts, int n_seqs, int most_tokens, Device& device) {
  const Scan& p = parts.scan;
  launch(
      device, pairs_kernel<kState>,
      dim3(blocks_for(most_tokens, kSsmTokens), 2 * static_cast<unsigned>(p.n_groups), static_cast<unsigned>(n_seqs)),
      kSsmThreads, size_t{2} * kSsmTokens * kStateRow<kState> * sizeof(half), p);
  slice_of(p.head_dim) == 64 ? start_walks<kState, 64>(parts, n_seqs, most_tokens, device)
                             : start_walks<kState, 32>(parts, n_seqs, most_tokens, device);
}

// The tokens of a part, for walks of n_blocks for each part; 0 if whole sequences take no longer. A round of blocks
// takes as long as its chunks and its start; parts take another walk.
int part_tokens(const Device& device, int state_dim, int64_t n_blocks, int most_tokens) {
  const int64_t slots = int64_t{walks_at_once(state_dim)} * device.n_multiprocessors();
  const int n_chunks = (most_tokens + kSsmTokens - 1) / kSsmTokens;
  const auto time_of = [&](int n_parts, int chunks) { return (n_blocks * n_parts + slots - 1) / slots * (chunks + 1); };
  int best = 0;
  int64_t least = time_of(1, n_chunks) / 2;
  for (int n_parts = 2; n_parts <= kMostParts; ++n_parts) {
    const int chunks = (n_chunks + n_parts - 1) / n_parts;
    if (chunks < kFewestPartChunks) break;
    if (const int64_t time = time_of(n_parts, chunks); time < least) best = chunks * kSsmTokens, least = time;
  }
  return best;
}

int part_tokens(const Device& device, const Scan& p, int n_seqs, int most_tokens) {
  return part_tokens(device, p.state_dim, int64_t{n_seqs} * p.n_heads * (p.head_dim / slice_of(p.head_dim)),
                     most_tokens);
}

bool is_on_packs(const float* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 4 == 0;
}

}  // namespace

bool recurrence::can_chunk_scan(const Device& device, const Scan& p) {
  const bool is_wide = slice_of(p.head_dim) == 64;
  const auto needed = [&]<int kState>() {
    return is_wide ? sizeof(ScanWalk<kState, 64>) : sizeof(ScanWalk<kState, 32>);
  };
  const size_t shared = p.state_dim == 64    ? needed.operator()<64>()
                        : p.state_dim == 128 ? needed.operator()<128>()
                                             : needed.operator()<256>();
  return (p.state_dim == 64 || p.state_dim == 128 || p.state_dim == 256) && p.head_dim % 32 == 0 &&
         is_on_packs(p.b, p.b_stride) && is_on_packs(p.c, p.c_stride) && is_on_packs(p.x, p.x_stride) &&
         is_on_packs(p.y, p.y_stride) && device.most_shared() >= shared;
}

int64_t ssm_part_floats(const Device& device, const SsmScanArgs& a, int n_tokens, int n_seqs, int most_tokens) {
  const StateBuffer& s = a.states->buffer(a.buffer);
  const int64_t n_blocks = n_seqs * s.count * (s.cols / slice_of(static_cast<int>(s.cols)));
  const int tokens = part_tokens(device, static_cast<int>(s.rows), n_blocks, most_tokens);
  return tokens == 0 ? 0 : (n_tokens / tokens + n_seqs + 1) * s.size();
}

void recurrence::scan_chunks(const Scan& p, float* matrices, int n_seqs, int most_tokens, Device& device) {
  const ScanParts parts{.scan = p, .matrices = matrices, .tokens = part_tokens(device, p, n_seqs, most_tokens)};
  p.state_dim == 64    ? start_chunks<64>(parts, n_seqs, most_tokens, device)
  : p.state_dim == 128 ? start_chunks<128>(parts, n_seqs, most_tokens, device)
                       : start_chunks<256>(parts, n_seqs, most_tokens, device);
}

}  // namespace ingot::cuda
