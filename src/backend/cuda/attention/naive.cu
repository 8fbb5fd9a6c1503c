// Attention in f32 arithmetic for every head size, cache type and page size: the fallback and the reference of the fast
// kernels. One block per head of a token; its warps share the keys.
#include "backend/cuda/attention/cache.cuh"

namespace ingot::cuda {
namespace {

constexpr int kWarps = 4, kManyWarps = 16;  // of a block; many if there are few blocks
constexpr int kMaxPerLane = 18;             // columns of a lane: heads of up to 576, the size of latents

struct Params {
  DeviceKv kv;
  DeviceBatch batch;
  int layer, group, window;
  bool causal, sees_later;
  float scale, softcap;
  const float* sinks;  // [n heads] or null
};

template <class Y, class Q, class K, class V>
__global__ void naive_kernel(Y* y, int64_t y_stride, const Q* q, int64_t q_stride, const __grid_constant__ Params p) {
  extern __shared__ float shared[];  // [head_dim] query; [warps, head_dim + 2] sums, maximum, total
  const int token = blockIdx.x, head = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32,
            dim = p.kv.head_dim, n_warps = static_cast<int>(blockDim.x) / 32;
  const int seq = p.batch.token_seq[token], position = p.batch.positions[token];
  const int kv_len = p.batch.kv_len[seq];
  const int end = p.causal       ? (p.sees_later && p.batch.seen_len != nullptr ? p.batch.seen_len[token] : position + 1)
                  : p.window > 0 ? min(kv_len, position + p.window)
                                 : kv_len,
            begin = p.window > 0 ? max(0, position + 1 - p.window) : 0;
  const int32_t* table = p.batch.block_table + int64_t{seq} * *p.batch.max_blocks;
  const int kv_head = head / p.group;
  for (int i = threadIdx.x; i < dim; i += blockDim.x)
    shared[i] = to_float(q[token * q_stride + int64_t{head} * dim + i]);
  __syncthreads();

  float out[kMaxPerLane] = {}, row_max = -INFINITY, total = 0;
  for (int key = begin + warp; key < end; key += n_warps) {
    const int64_t k = cached_row(p.kv, p.layer, table[key / p.kv.block_size], key, 0, kv_head),
                  v = cached_row(p.kv, p.layer, table[key / p.kv.block_size], key, 1, kv_head);
    float score = 0;
    for (int i = lane; i < dim; i += 32) score += shared[i] * cached_element<K>(rows_of<K, V>(p.kv, 0), k, dim, i);
    score = warp_sum(score) * p.scale;
    if (p.softcap > 0) score = p.softcap * tanhf(score / p.softcap);
    const float largest = fmaxf(row_max, score), shrink = expf(row_max - largest), weight = expf(score - largest);
    row_max = largest;
    total = total * shrink + weight;
#pragma unroll
    for (int j = 0; j < kMaxPerLane; ++j)
      if (lane + 32 * j < dim)
        out[j] = out[j] * shrink + weight * cached_element<V>(rows_of<K, V>(p.kv, 1), v, dim, lane + 32 * j);
  }
  float* parts = shared + dim;
  for (int j = 0; j < kMaxPerLane; ++j)
    if (lane + 32 * j < dim) parts[warp * (dim + 2) + lane + 32 * j] = out[j];
  if (lane == 0) parts[warp * (dim + 2) + dim] = row_max, parts[warp * (dim + 2) + dim + 1] = total;
  __syncthreads();
  for (int i = threadIdx.x; i < dim; i += blockDim.x) {
    float largest = p.sinks != nullptr ? p.sinks[head] : -INFINITY, sum = 0;
    for (int w = 0; w < n_warps; ++w) largest = fmaxf(largest, parts[w * (dim + 2) + dim]);
    float all = p.sinks != nullptr ? expf(p.sinks[head] - largest) : 0.0f;
    for (int w = 0; w < n_warps; ++w) {
      const float weight = expf(parts[w * (dim + 2) + dim] - largest);
      sum += weight * parts[w * (dim + 2) + i];
      all += weight * parts[w * (dim + 2) + dim + 1];
    }
    y[token * y_stride + int64_t{head} * dim + i] = from_float<Y>(sum / all);
  }
}

}  // namespace

void attend_naive(const Tensor& y, const Tensor& q, const DeviceKv& kv, const AttentionArgs& a,
                  const DeviceBatch& batch, Device& device, bool batch_invariant) {
  CHECK(a.head_dim <= 32 * kMaxPerLane);
  if (q.rows == 0) return;
  const Params p{kv,       batch,   a.layer,   a.n_heads / a.n_kv_heads,        a.window,
                 a.causal, a.sees_later, a.scale, a.softcap, a.sinks ? a.sinks.f32() : nullptr};
  const dim3 grid(static_cast<unsigned>(q.rows), static_cast<unsigned>(a.n_heads));
  const int n_warps = !batch_invariant && q.rows * a.n_heads <= 4 * device.n_multiprocessors() ? kManyWarps : kWarps;
  const size_t shared = static_cast<size_t>(a.head_dim + n_warps * (a.head_dim + 2)) * sizeof(float);  // under 48 KiB
  with_type(y.dtype, [&](auto* py) {
    with_type(q.dtype, [&](auto* pq) {
      with_cached(kv, [&](auto* pk, auto* pv) {
        using Y = std::remove_pointer_t<decltype(py)>;
        using Q = std::remove_pointer_t<decltype(pq)>;
        using K = std::remove_pointer_t<decltype(pk)>;
        using V = std::remove_pointer_t<decltype(pv)>;
        naive_kernel<Y, Q, K, V><<<grid, n_warps * 32, shared, device.stream()>>>(
            static_cast<Y*>(y.data), y.stride, static_cast<const Q*>(q.data), q.stride, p);
      });
    });
  });
}

}  // namespace ingot::cuda
