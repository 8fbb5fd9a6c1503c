// The scan of Mamba-2, token by token, or for many tokens in chunks (ssm_chunks.cu). A few lanes have some columns of a
// head's matrix in registers, and the lanes sum their shares. So a token's result never depends on the batch.
#include "backend/cuda/recurrence/columns.cuh"
#include "backend/cuda/recurrence/ssm_scan.cuh"

namespace ingot::cuda {

using namespace recurrence;

namespace {

constexpr int kScanThreads = 64, kLaneColumns = 2, kBlockColumns = kScanThreads / kColumnLanes * kLaneColumns;

// The inputs of a few tokens in shared memory. Rows past the last are zeros.
template <int kRows, int kTokens>
struct ScanTokens {
  float b[kTokens][kRows], c[kTokens][kRows], x[kTokens][kBlockColumns];
  float step[kTokens], keep[kTokens];
};

template <bool kPacks, int kRows, int kTokens>
__device__ __forceinline__ void copy_tokens(ScanTokens<kRows, kTokens>& to, const Scan& p, int head, int64_t first,
                                            int n) {
  const int group = head / (p.n_heads / p.n_groups), column = static_cast<int>(blockIdx.x) * kBlockColumns;
  copy_rows<kPacks>(to.b, p.b + first * p.b_stride + group * p.state_dim, p.b_stride, n, p.state_dim, kScanThreads);
  copy_rows<kPacks>(to.c, p.c + first * p.c_stride + group * p.state_dim, p.c_stride, n, p.state_dim, kScanThreads);
  copy_rows<false>(to.x, p.x + first * p.x_stride + head * p.head_dim + column, p.x_stride, n, p.head_dim - column,
                   kScanThreads);
  end_copies();
  if (const int t = threadIdx.x; t < n) {
    to.step[t] = step_of(p, p.dt[(first + t) * p.dt_stride + head], p.dt_bias[head]);
    to.keep[t] = expf(p.decay[head] * to.step[t]);
  }
}

// kPer: rows of the matrix in a lane. The next tokens are copied while some tokens are used.
template <int kPer, int kTokens, bool kPacks>
__global__ void __launch_bounds__(kScanThreads) scan_kernel(const __grid_constant__ Scan p) {
  using Tokens = ScanTokens<kPer * kColumnLanes, kTokens>;
  __shared__ __align__(16) Tokens chunks[2];
  start_dependent();
  const int lane = threadIdx.x % kColumnLanes, head = blockIdx.y, seq = blockIdx.z,
            local = static_cast<int>(threadIdx.x) / kColumnLanes * kLaneColumns,
            first_column = static_cast<int>(blockIdx.x) * kBlockColumns + local;
  const int begin = p.batch.q_start[seq], end = p.batch.q_start[seq + 1], in = p.batch.state_in[seq];
  if (end - begin >= p.fewest_chunked) return;
  copy_tokens<kPacks>(chunks[0], p, head, begin, min(kTokens, end - begin));
  const int64_t place = (int64_t{head} * p.head_dim + first_column) * p.state_dim;
  const float* before = p.states.data + in * p.states.slot_floats + place;
  const float skip = p.skip[head];
  float s[kLaneColumns][kPer];
#pragma unroll
  for (int i = 0; i < kLaneColumns; ++i) {
    const bool is_kept = in >= 0 && first_column + i < p.head_dim;
    load_column<kPacks>(s[i], before + i * p.state_dim, lane, is_kept ? p.state_dim : 0);
  }
  int at = 0;
  for (int first = begin; first < end; first += kTokens, at ^= 1) {
    await_copies<0>();
    __syncthreads();
    const Tokens& chunk = chunks[at];
    const int n = min(kTokens, end - first);
    copy_tokens<kPacks>(chunks[at ^ 1], p, head, first + n, min(kTokens, end - first - n));
    for (int t = 0; t < n; ++t) {
      float b[kPer], c[kPer], out[kLaneColumns];
      load_rows(b, chunk.b[t], lane);
      load_rows(c, chunk.c[t], lane);
      const float step = chunk.step[t], keep = chunk.keep[t];
#pragma unroll
      for (int i = 0; i < kLaneColumns; ++i) {
        const float change = step * chunk.x[t][local + i];
#pragma unroll
        for (int j = 0; j < kPer; ++j) s[i][j] = fmaf(b[j], change, keep * s[i][j]);
        out[i] = dot_rows(c, s[i]);
      }
      sum_lanes(out);
#pragma unroll
      for (int i = 0; i < kLaneColumns; ++i)
        if (lane == i && first_column + i < p.head_dim)
          p.y[int64_t{first + t} * p.y_stride + head * p.head_dim + first_column + i] =
              fmaf(skip, chunk.x[t][local + i], out[i]);
    }
  }
  float* after = p.states.data + p.batch.state_out[seq] * p.states.slot_floats + place;
#pragma unroll
  for (int i = 0; i < kLaneColumns; ++i)
    if (first_column + i < p.head_dim) store_column<kPacks>(after + i * p.state_dim, s[i], lane, p.state_dim);
}

// kTokens: of long sequences, so that two chunks fit in 48 KiB.
template <int kPer, int kTokens>
void start_scan(const Scan& p, dim3 grid, bool is_long, bool packs, Device& device) {
  with_chunks<kTokens>(is_long, packs, [&](auto tokens, auto is_packed) {
    launch(device, scan_kernel<kPer, decltype(tokens)::value, decltype(is_packed)::value>, grid, kScanThreads, 0, p);
  });
}

}  // namespace

void ssm_scan(const SsmScanArgs& a, const DeviceStates& states, const DeviceBatch& batch, int n_seqs, int fewest_tokens,
              int most_tokens, bool chunks, float* parts, Device& device) {
  if (n_seqs == 0) return;
  const StateBuffer& s = a.states->buffer(a.buffer);
  Scan p{.y = a.y.f32(),
         .x = a.x.f32(),
         .b = a.b.f32(),
         .c = a.c.f32(),
         .dt = a.dt.f32(),
         .keep = a.keep.f32(),
         .decay = a.decay.f32(),
         .dt_bias = a.dt_bias.f32(),
         .skip = a.skip.f32(),
         .y_stride = a.y.stride,
         .x_stride = a.x.stride,
         .b_stride = a.b.stride,
         .c_stride = a.c.stride,
         .dt_stride = a.dt.stride,
         .keep_stride = a.keep.stride,
         .n_heads = static_cast<int>(s.count),
         .n_groups = a.n_groups,
         .head_dim = static_cast<int>(s.cols),
         .state_dim = static_cast<int>(s.rows),
         .fewest_chunked = INT32_MAX,
         .min_step = a.min_step,
         .max_step = a.max_step,
         .states = states,
         .batch = batch};
  if (chunks && most_tokens >= kChunkedScanTokens && can_chunk_scan(device, p)) {
    p.fewest_chunked = kChunkedScanTokens;
    scan_chunks(p, parts, n_seqs, most_tokens, device);
    if (fewest_tokens >= kChunkedScanTokens) return;
  }
  const dim3 grid(blocks_for(p.head_dim, kBlockColumns), static_cast<unsigned>(p.n_heads),
                  static_cast<unsigned>(n_seqs));
  static_assert(kMaxStateDim <= 32 * kColumnLanes);
  const bool is_long = most_tokens >= kManyTokens,
             packs = packs_columns(states, p.state_dim) && packs_rows(a.b) && packs_rows(a.c);
  p.state_dim <= 8 * kColumnLanes    ? start_scan<8, 16>(p, grid, is_long, packs, device)
  : p.state_dim <= 16 * kColumnLanes ? start_scan<16, 16>(p, grid, is_long, packs, device)
                                     : start_scan<32, 8>(p, grid, is_long, packs, device);
}

}  // namespace ingot::cuda
