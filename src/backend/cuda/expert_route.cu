// Which experts each token goes to; the rows of a step in order of their experts; the sum of the experts' answers.
#include <algorithm>

#include "backend/cuda/device.cuh"
#include "backend/cuda/experts.h"

namespace ingot::cuda {
namespace {

constexpr int kWarps = 4;  // of a block, a token each
constexpr int kOrderThreads = 1024;

struct Route {
  int32_t* ids;
  float* weights;
  const float* logits;
  int64_t logits_stride, n_tokens;
  const float* bias;
  int n_experts, n_used, n_groups, n_groups_used;
  bool sigmoid, normalize;
  float scale;
};

// Orders as floats do; what is no number comes before all, with nothing.
__device__ __forceinline__ uint32_t key_of(float v) {
  const uint32_t bits = __float_as_uint(v);
  return isnan(v) ? 0 : bits >> 31 ? ~bits : bits | 0x80000000u;
}

// The best that a lane has: its experts are every 32nd.
struct Best {
  uint32_t key = 0;
  int at = INT32_MAX;

  __device__ __forceinline__ Best(const float* choice, int n_experts, int lane) {
    for (int e = lane; e < n_experts; e += 32) {
      const uint32_t other = key_of(choice[e]);
      if (other > key) key = other, at = e;
    }
  }
};
// The best of a warp: of equal ones the first.
__device__ __forceinline__ int best_of_warp(const Best& best) {
  const uint32_t key = __reduce_max_sync(0xFFFFFFFFu, best.key);
  return __reduce_min_sync(0xFFFFFFFFu, best.key == key ? best.at : INT32_MAX);
}

__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int s = 16; s > 0; s /= 2) v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFu, v, s));
  return v;
}

// Floats of shared memory that a token takes: scores, what is chosen by, and what groups are worth, then the chosen.
__host__ __device__ int route_floats(int n_experts) { return 3 * n_experts; }

__device__ void score(const Route& p, int64_t token, float* scores, float* choice, int lane) {
  const float* logits = p.logits + token * p.logits_stride;
  float top = -INFINITY, sum = 0;
  for (int e = lane; e < p.n_experts; e += 32) top = fmaxf(top, scores[e] = logits[e]);
  top = warp_max(top);
  for (int e = lane; e < p.n_experts; e += 32) {
    scores[e] = p.sigmoid ? 1.0f / (1.0f + expf(-scores[e])) : expf(scores[e] - top);
    sum += scores[e];
  }
  const float factor = p.sigmoid ? 1.0f : 1.0f / warp_sum(sum);
  for (int e = lane; e < p.n_experts; e += 32) {
    scores[e] *= factor;
    choice[e] = scores[e] + (p.bias != nullptr ? p.bias[e] : 0.0f);
  }
  __syncwarp();
}

// Experts outside the best groups can no longer be chosen. A lane counts for each group how many are better.
__device__ void keep_best_groups(const Route& p, float* choice, float* worth, int lane) {
  const int size = p.n_experts / p.n_groups;
  for (int g = lane; g < p.n_groups; g += 32) {
    float best = -INFINITY, second = -INFINITY;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      const float v = choice[e];
      second = fmaxf(second, fminf(best, v));
      best = fmaxf(best, v);
    }
    worth[g] = p.bias != nullptr && size > 1 ? best + second : best;
  }
  __syncwarp();
  for (int g = lane; g < p.n_groups; g += 32) {
    int n_better = 0;
    for (int other = 0; other < p.n_groups; ++other)
      n_better += worth[other] > worth[g] || (worth[other] == worth[g] && other < g);
    if (n_better >= p.n_groups_used)
      for (int e = g * size; e < (g + 1) * size; ++e) choice[e] = -INFINITY;
  }
  __syncwarp();
}

Route route_of(const Tensor& ids, const Tensor& weights, const Tensor& logits, const RouteArgs& a) {
  CHECK(ids.contiguous() && weights.contiguous() && ids.cols == a.n_used && weights.cols == a.n_used);
  CHECK(a.n_used <= logits.cols && logits.cols <= kMostExperts);
  return {ids.i32(), weights.f32(), logits.f32(), logits.stride, logits.rows, a.bias ? a.bias.f32() : nullptr, static_cast<int>(logits.cols),
          a.n_used, a.n_groups, a.n_groups_used, a.scoring == Scoring::kSigmoid, a.normalize, a.scale};
}

// A warp a token.
__global__ void route_kernel(const __grid_constant__ Route p) {
  extern __shared__ float shared[];
  start_dependent();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t token = int64_t{blockIdx.x} * kWarps + warp;
  if (token >= p.n_tokens) return;
  float *scores = shared + warp * route_floats(p.n_experts), *choice = scores + p.n_experts, *chosen = choice + p.n_experts;
  score(p, token, scores, choice, lane);
  if (p.n_groups_used < p.n_groups) keep_best_groups(p, choice, chosen, lane);
  float sum = 0;
  Best best(choice, p.n_experts, lane);
  for (int i = 0; i < p.n_used; ++i) {
    const int found = best_of_warp(best), at = found == INT32_MAX ? i : found;  // nothing is a number: but an expert it must be
    sum += scores[at];
    if (lane == at % 32) {
      chosen[i] = __int_as_float(at);
      choice[at] = NAN;  // cannot be chosen again
      best = Best(choice, p.n_experts, lane);
    }
  }
  __syncwarp();
  const float factor = p.normalize ? p.scale / fmaxf(sum, 1e-20f) : p.scale;
  for (int i = lane; i < p.n_used; i += 32) {
    const int at = __float_as_int(chosen[i]);
    p.ids[token * p.n_used + i] = at;
    p.weights[token * p.n_used + i] = scores[at] * factor;
  }
}

// One block: counts, sums them up, and scatters. Which of an expert's rows comes first is up to chance, and does not matter: a row's
// numbers are its own.
__global__ void __launch_bounds__(kOrderThreads) order_kernel(ExpertOrder out, const int32_t* ids, int64_t n_rows, int n_experts) {
  extern __shared__ int counts[];  // [n_experts], then where each begins, among rows and among tiles
  int *starts = counts + n_experts, *tile_starts = starts + n_experts;
  start_dependent();
  for (int e = threadIdx.x; e < n_experts; e += kOrderThreads) counts[e] = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < n_rows; i += kOrderThreads) atomicAdd(&counts[ids[i]], 1);
  __syncthreads();
  if (threadIdx.x < 32) {
    int row = 0, tile = 0;
    for (int first = 0; first < n_experts; first += 32) {
      const int e = first + static_cast<int>(threadIdx.x), n = e < n_experts ? counts[e] : 0;
      int rows = n, tiles = (n + out.tile_rows - 1) / out.tile_rows;
      const int n_tiles = tiles;
#pragma unroll
      for (int s = 1; s < 32; s *= 2) {
        const int rows_before = __shfl_up_sync(0xFFFFFFFFu, rows, s), tiles_before = __shfl_up_sync(0xFFFFFFFFu, tiles, s);
        if (static_cast<int>(threadIdx.x) >= s) rows += rows_before, tiles += tiles_before;
      }
      if (e < n_experts) starts[e] = row + rows - n, tile_starts[e] = tile + tiles - n_tiles;
      row += __shfl_sync(0xFFFFFFFFu, rows, 31);
      tile += __shfl_sync(0xFFFFFFFFu, tiles, 31);
    }
    if (threadIdx.x == 0) *out.n_tiles = tile;
  }
  __syncthreads();
  for (int e = threadIdx.x; e < n_experts; e += kOrderThreads)
    for (int done = 0, tile = tile_starts[e]; done < counts[e]; done += out.tile_rows, ++tile)
      out.tiles[tile] = {e, starts[e] + done, min(out.tile_rows, counts[e] - done)};
  __syncthreads();
  for (int64_t i = threadIdx.x; i < n_rows; i += kOrderThreads) out.order[atomicAdd(&starts[ids[i]], 1)] = static_cast<int32_t>(i);
}

template <class Y>
__global__ void combine_kernel(float* residual, int64_t residual_stride, const Y* y, int64_t y_stride, const float* weights,
                               int64_t weights_stride, int n_used, int64_t dim) {
  start_dependent();
  const int64_t t = blockIdx.x, c = int64_t{blockIdx.y} * blockDim.x + threadIdx.x;
  if (c >= dim) return;
  float sum = residual[t * residual_stride + c];
#pragma unroll 4
  for (int k = 0; k < n_used; ++k) sum += weights[t * weights_stride + k] * to_float(y[(t * n_used + k) * y_stride + c]);
  residual[t * residual_stride + c] = sum;
}

}  // namespace

void route_rows(const Tensor& ids, const Tensor& weights, const Tensor& logits, const RouteArgs& args, cudaStream_t stream) {
  const Route p = route_of(ids, weights, logits, args);
  if (p.n_tokens == 0) return;
  const size_t shared = static_cast<size_t>(kWarps * route_floats(p.n_experts)) * sizeof(float);  // 48 KiB at most
  launch(route_kernel, dim3(blocks_for(p.n_tokens, kWarps)), kWarps * 32, shared, stream, p);
}

ExpertOrder expert_order_in(void* memory, int64_t n_rows, int64_t n_experts) {
  ExpertOrder o;
  o.tile_rows = n_rows <= 16 * n_experts ? 16 : 64;
  o.most_tiles = std::min(n_rows, n_experts) + n_rows / o.tile_rows;
  o.n_tiles = static_cast<int32_t*>(memory);
  o.order = o.n_tiles + 1;
  o.tiles = reinterpret_cast<RowTile*>(o.order + n_rows);
  return o;
}

size_t expert_order_bytes(int64_t n_rows, int64_t n_experts) {
  return static_cast<size_t>(1 + n_rows + 3 * (std::min(n_rows, n_experts) + n_rows / 16)) * sizeof(int32_t);
}

void order_by_expert(const ExpertOrder& order, const int32_t* ids, int64_t n_rows, int64_t n_experts, cudaStream_t stream) {
  CHECK(n_experts <= kMostExperts);
  launch(order_kernel, dim3(1), kOrderThreads, static_cast<size_t>(3 * n_experts) * sizeof(int), stream, order, ids, n_rows,
         static_cast<int>(n_experts));
}

void combine_rows(const Tensor& residual, const Tensor& y, const Tensor& weights, cudaStream_t stream) {
  if (residual.rows == 0) return;
  const dim3 grid(static_cast<unsigned>(residual.rows), blocks_for(residual.cols, 256));
  with_type(y.dtype, [&](auto* p) {
    using Y = std::remove_pointer_t<decltype(p)>;
    launch(combine_kernel<Y>, grid, 256, 0, stream, residual.f32(), residual.stride, static_cast<const Y*>(y.data), y.stride, weights.f32(),
           weights.stride, static_cast<int>(weights.cols), residual.cols);
  });
}

}  // namespace ingot::cuda
