// The second kernel of the chunked delta rule (delta_chunks.cu). A block processes 16 columns of a head's matrix
// through all chunks of a sequence. The matrix is f32, in registers, and is converted to halves for the products. The
// next chunk is copied while the current chunk is used.
#include "backend/cuda/memory.h"
#include "backend/cuda/recurrence/delta_chunks.cuh"

namespace ingot::cuda {

using namespace recurrence;

namespace {

constexpr int kSlice = 16, kSliceRow = kSlice + 8;  // columns of a block; halves between its rows in shared memory

// The part of a chunk that a block of the second kernel uses.
struct Stage {
  half w[kTokens * kRow], q[kTokens * kRow], k[kTokens * kRow], p[kTokens * kSquare], u[kTokens * kSliceRow];
  float since[kTokens], until[kTokens];  // exp(g), exp(g[last] - g)
};
struct Walk {
  Stage stages[2];
  half s[kSlice * kRow];                                   // [column of v, row of k]
  half u[kTokens * kSliceRow], left[kTokens * kSliceRow];  // u: what tokens add; left: the rest of u after the chunk
};

// Copies a stage; tokens past the last are zeros.
__device__ __forceinline__ void copy_stage(Stage& s, const Delta& p, const Places& places, int head, int64_t first,
                                           int n) {
  constexpr int kPieces = kDim / 8;
  for (int i = threadIdx.x; i < kTokens * kPieces; i += kChunkThreads) {
    const int t = i / kPieces, piece = i % kPieces * 8;
    const bool in = t < n;
    const int64_t at = in ? (first + t) * p.qkv_stride : 0;
    copy16(s.w + t * kRow + piece, reinterpret_cast<const half*>(places.v + at) + piece, in);
    copy16(s.q + t * kRow + piece, reinterpret_cast<const half*>(places.q + at) + piece, in);
    copy16(s.k + t * kRow + piece, reinterpret_cast<const half*>(places.k + at) + piece, in);
    if (piece < kTokens) copy16(s.p + t * kSquare + piece, places.p + 2 * at + piece, in);
    if (piece < kSlice)
      copy16(s.u + t * kSliceRow + piece,
             reinterpret_cast<const half*>(places.v + at) + kDim + static_cast<int>(blockIdx.x) * kSlice + piece, in);
  }
  if (const int t = threadIdx.x; t < kTokens) {
    copy_float(&s.since[t], p.alpha + (t < n ? (first + t) * p.alpha_stride + head : 0), t < n);
    copy_float(&s.until[t], p.beta + (t < n ? (first + t) * p.beta_stride + head : 0), t < n);
  }
  end_copies();
}

// A warp's 16 rows of the 16 columns of a matrix: element e of s[j].
struct Share {
  const int row, column;  // of element 0 of s[0]
  __device__ Share()
      : row(16 * static_cast<int>(threadIdx.x / 32) + static_cast<int>(threadIdx.x) % 32 / 4),
        column(2 * static_cast<int>(threadIdx.x % 4)) {}

  template <class F>
  __device__ __forceinline__ void each(F&& f) const {
#pragma unroll
    for (int j = 0; j < 2; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) f(j, e, row + e / 2 * 8, column + 8 * j + e % 2);
  }
};

// Computes W S or q S for a band of 16 tokens. Even and odd steps have separate sums, because each product waits for
// the previous one.
__device__ __forceinline__ void multiply_state(float (&sums)[2][4], const half* rows, const half* s, int first,
                                               int lane) {
  float odd[2][4] = {};
#pragma unroll
  for (int k = 0; k < kDim; k += 32) {
    uint32_t a[4], b[4];
    load_matrices(a, place_of_a(rows, kRow, first, k, lane));
    load_matrices(b, place_of_transposed_b(s, kRow, k, 0, lane));
    multiply(sums[0], sums[1], a, b);
    load_matrices(a, place_of_a(rows, kRow, first, k + 16, lane));
    load_matrices(b, place_of_transposed_b(s, kRow, k + 16, 0, lane));
    multiply(odd[0], odd[1], a, b);
  }
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[j][e] += odd[j][e];
}

// Computes, from W S of a band, what its tokens add to the matrix.
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

// Computes, from q S of a band, the outputs of its tokens; the chunk has n tokens.
__device__ __forceinline__ void put_outputs(const Walk& c, const Stage& stage, float (&sums)[2][4], float* y,
                                            int64_t stride, int n, int first, int lane) {
#pragma unroll
  for (int j = 0; j < 2; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[j][e] *= stage.since[first + lane / 4 + e / 2 * 8];
#pragma unroll
  for (int k = 0; k < kTokens; k += 16) {
    if (k > first) break;
    uint32_t a[4], b[4];
    load_matrices(a, place_of_a(stage.p, kSquare, first, k, lane));
    load_transposed(b, place_of_b(c.u, kSliceRow, k, 0, lane));
    multiply(sums[0], sums[1], a, b);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first + lane / 4 + 8 * h;
    if (row >= n) continue;
#pragma unroll
    for (int j = 0; j < 2; ++j)
      *reinterpret_cast<float2*>(y + row * stride + 8 * j + 2 * (lane % 4)) =
          make_float2(sums[j][2 * h], sums[j][2 * h + 1]);
  }
}

// Processes 16 columns of a head's matrix through all chunks of a sequence. Each warp holds 16 rows of the matrix. Four
// warps multiply W by the matrix, and four multiply q.
__global__ void __launch_bounds__(kChunkThreads, 1) walk_kernel(const __grid_constant__ Delta p) {
  extern __shared__ __align__(128) char shared[];
  Walk& c = *reinterpret_cast<Walk*>(shared);
  const int head = blockIdx.y, seq = blockIdx.z, warp = threadIdx.x / 32, lane = threadIdx.x % 32,
            first_column = static_cast<int>(blockIdx.x) * kSlice;
  const int sharing = p.n_heads / p.n_key_heads, key_head = p.tiled ? head % p.n_key_heads : head / sharing;
  start_dependent();
  const int begin = p.batch.q_start[seq], length = p.batch.q_start[seq + 1] - begin, in = p.batch.state_in[seq];
  if (length < kChunkedTokens) return;
  const Places places(p, key_head, p.tiled ? head / p.n_key_heads : head % sharing);
  copy_stage(c.stages[0], p, places, head, begin, min(kTokens, length));

  const Share share;
  const auto place_of = [&](int row, int column) {
    return (int64_t{head} * kDim + first_column + column) * kDim + row;
  };
  float s[2][4] = {};
  const auto show = [&](int j, int e, int row, int column) { c.s[column * kRow + row] = from_float<half>(s[j][e]); };
  share.each([&](int j, int e, int row, int column) {
    s[j][e] = in >= 0 ? p.states.data[in * p.states.slot_floats + place_of(row, column)] : 0.0f;
  });
  share.each(show);

  const int band = warp % 4 * 16;
  const bool of_q = warp >= 4;
  for (int done = 0, at = 0; done < length; done += kTokens, at ^= 1) {
    await_copies<0>();
    __syncthreads();
    const Stage& stage = c.stages[at];
    const int n = min(kTokens, length - done);
    if (done + kTokens < length)
      copy_stage(c.stages[at ^ 1], p, places, head, begin + done + kTokens, min(kTokens, length - done - kTokens));
    float sums[2][4] = {};
    multiply_state(sums, of_q ? stage.q : stage.w, c.s, band, lane);
    if (!of_q) put_added(c, stage, sums, band, lane);
    __syncthreads();

    const float keep = stage.since[n - 1];
    share.each([&](int j, int e, int, int) { s[j][e] *= keep; });
#pragma unroll
    for (int k = 0; k < kTokens; k += 16) {
      uint32_t a[4], b[4];
      load_transposed(a, place_of_transposed_a(stage.k, kRow, 16 * warp, k, lane));
      load_transposed(b, place_of_b(c.left, kSliceRow, k, 0, lane));
      multiply(s[0], s[1], a, b);
    }
    share.each(show);
    if (of_q)
      put_outputs(c, stage, sums, p.y + (begin + done) * p.y_stride + head * kDim + first_column, p.y_stride, n, band,
                  lane);
  }
  share.each([&](int j, int e, int row, int column) {
    p.states.data[p.batch.state_out[seq] * p.states.slot_floats + place_of(row, column)] = s[j][e];
  });
}

}  // namespace

size_t recurrence::walk_bytes() { return sizeof(Walk); }

void recurrence::walk_chunks(const Delta& p, int n_seqs, Device& device) {
  const dim3 grid(kDim / kSlice, static_cast<unsigned>(p.n_heads), static_cast<unsigned>(n_seqs));
  launch(device, walk_kernel, grid, kChunkThreads, sizeof(Walk), p);
}

}  // namespace ingot::cuda
