// The scan of Mamba-2, token by token, or for many tokens in chunks (ssm_chunks.cu). A warp handles a column of a
// head's matrix: its lanes keep the column's elements in registers, and sum their shares of a token's output. So a
// token's result never depends on the batch.
#include "backend/cuda/recurrence/ssm_scan.cuh"

namespace ingot::cuda {

using namespace recurrence;

namespace {

constexpr int kScanThreads = 128, kWarpLanes = 32, kScanColumns = kScanThreads / kWarpLanes;

// kPer: rows of the matrix in a lane.
template <int kPer>
__global__ void __launch_bounds__(kScanThreads) scan_kernel(const __grid_constant__ Scan p) {
  start_dependent();
  const int lane = threadIdx.x % kWarpLanes, head = blockIdx.y, seq = blockIdx.z,
            column = static_cast<int>(blockIdx.x) * kScanColumns + threadIdx.x / kWarpLanes;
  if (column >= p.head_dim) return;  // a whole warp
  const int group = head / (p.n_heads / p.n_groups), begin = p.batch.q_start[seq], end = p.batch.q_start[seq + 1],
            in = p.batch.state_in[seq];
  if (end - begin >= p.fewest_chunked) return;
  const int64_t place = (int64_t{head} * p.head_dim + column) * p.state_dim, of_column = head * p.head_dim + column;
  const float decay = p.decay[head], dt_bias = p.dt_bias[head], skip = p.skip[head];
  float s[kPer];
  const float* before = p.states.data + in * p.states.slot_floats + place;
#pragma unroll
  for (int j = 0; j < kPer; ++j) {
    const int row = j * kWarpLanes + lane;
    s[j] = in >= 0 && row < p.state_dim ? before[row] : 0.0f;
  }
  for (int64_t t = begin; t < end; ++t) {
    const float *b = p.b + t * p.b_stride + group * p.state_dim, *c = p.c + t * p.c_stride + group * p.state_dim;
    const float x = p.x[t * p.x_stride + of_column], step = step_of(p, p.dt[t * p.dt_stride + head], dt_bias),
                keep = expf(decay * step), change = step * x;
    float out = 0;
#pragma unroll
    for (int j = 0; j < kPer; ++j) {
      const int row = j * kWarpLanes + lane;
      if (row >= p.state_dim) break;
      s[j] = fmaf(b[row], change, keep * s[j]);
      out = fmaf(c[row], s[j], out);
    }
#pragma unroll
    for (int i = kWarpLanes / 2; i > 0; i /= 2) out += __shfl_xor_sync(0xFFFFFFFFu, out, i);
    if (lane == 0) p.y[t * p.y_stride + of_column] = fmaf(skip, x, out);
  }
  float* after = p.states.data + p.batch.state_out[seq] * p.states.slot_floats + place;
#pragma unroll
  for (int j = 0; j < kPer; ++j)
    if (const int row = j * kWarpLanes + lane; row < p.state_dim) after[row] = s[j];
}

}  // namespace

void ssm_scan(const SsmScanArgs& a, const DeviceStates& states, const DeviceBatch& batch, int n_seqs, int fewest_tokens,
              int most_tokens, bool chunks, Device& device) {
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
    scan_chunks(p, n_seqs, most_tokens, device);
    if (fewest_tokens >= kChunkedScanTokens) return;
  }
  const dim3 grid(blocks_for(p.head_dim, kScanColumns), static_cast<unsigned>(p.n_heads),
                  static_cast<unsigned>(n_seqs));
  const auto start = [&](auto kernel) { launch(device, kernel, grid, kScanThreads, 0, p); };
  static_assert(kMaxStateDim <= 8 * kWarpLanes);
  p.state_dim <= 2 * kWarpLanes   ? start(scan_kernel<2>)
  : p.state_dim <= 4 * kWarpLanes ? start(scan_kernel<4>)
                                  : start(scan_kernel<8>);
}

}  // namespace ingot::cuda
