// Like experts/rows.cu, for dense weights; also a slow kernel for any weight. A warp computes an output of a row, or of
// a weighted sum of rows.
#include "backend/cuda/experts/rows.cuh"
#include "backend/cuda/experts/rows_launch.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/matmul/unpack.cuh"
#include "backend/cuda/memory.h"

namespace ingot::cuda {

using namespace expert_rows_detail;

namespace {

constexpr int kWarps = 8, kAhead = 8;  // kAhead: loads of a lane in flight
constexpr int kChunk = 32 * 8;         // elements in one load of a warp

__device__ __forceinline__ const half* input_of(const Params& p, int64_t row) {
  return p.x + row * p.x_rows / p.n_rows * p.x_stride;
}

// n_steps counts chunks.
template <int kGates>
__global__ void __launch_bounds__(32 * kWarps) dense_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) half x[];  // [n_terms, n_in]
  constexpr int kBatch = kAhead / kGates;
  const int lane = threadIdx.x % 32, sum = blockIdx.y, first_row = sum * p.n_terms;
  const int64_t out = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32, row = min(out, p.w[0].n_out - 1);
  wait_for_previous();
  let_next_start();  // not earlier: the next kernel may read the ids
  Term term(p, first_row + lane, lane < p.n_terms, p.accumulate);
  Shape own = p;
  if (p.partial) own.n_terms = term.keep_own(p.n_terms, lane);
  if (own.n_terms == 0) return;
  const int n_items = own.n_terms * p.n_steps;
  uint4 v[kBatch][kGates];
  const auto load = [&](int first) {
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int item = first + j, k = min(item / p.n_steps, own.n_terms - 1),
                column = (item - k * p.n_steps) * kChunk + 8 * lane;
      const int64_t expert = term.expert_of(k);
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        const half* w =
            reinterpret_cast<const half*>(static_cast<const char*>(p.w[g].data) + expert * p.w[g].expert_bytes) +
            row * p.n_in;
        v[j][g] = item < n_items && column < p.n_in ? load_stream(w + column) : uint4{};
      }
    }
  };
  load(0);
  for (int i = 8 * static_cast<int>(threadIdx.x); i < p.n_terms * p.n_in; i += 8 * 32 * kWarps) {
    const int k = i / p.n_in;
    *reinterpret_cast<uint4*>(x + i) = *reinterpret_cast<const uint4*>(input_of(p, first_row + k) + i - k * p.n_in);
  }
  __syncthreads();
  const float before = p.accumulate && lane == 0 ? *output_of(p, sum, row) : 0.0f;
  float sums[kGates] = {};
  for (int first = 0; first < n_items; first += kBatch) {
    if (first > 0) load(first);
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int item = first + j, k = min(item / p.n_steps, own.n_terms - 1),
                column = (item - k * p.n_steps) * kChunk + 8 * lane;
      const float weight = term.weight_of(k);
      const int place = p.partial ? term.place_of(k) : k;
      if (item >= n_items || column >= p.n_in) continue;
      const uint4 in = *reinterpret_cast<const uint4*>(x + place * p.n_in + column);
#pragma unroll
      for (int g = 0; g < kGates; ++g) sums[g] += weight * dot8(v[j][g], in, 0.0f);
    }
  }
#pragma unroll
  for (int g = 0; g < kGates; ++g) sums[g] = warp_sum(sums[g]);
  put<kGates>(p, own, sum, row, sums, before, lane == 0 && out < p.w[0].n_out, term);
}

// Any format, size and alignment: a warp computes one output of a row.
template <class S, class Y>
__global__ void plain_kernel(const __grid_constant__ Params p, const S* x) {
  start_dependent();
  const int lane = threadIdx.x % 32;
  const int64_t i = blockIdx.x, out = int64_t{blockIdx.y} * kWarps + threadIdx.x / 32, expert = p.ids[i];
  const PackedWeight& w = p.w[0];
  if (out >= w.n_out || expert < 0) return;
  const S* in = x + i * p.x_rows / p.n_rows * p.x_stride;
  float sum = 0;
  if (w.layout == Layout::kDense) {
    const S* row = static_cast<const S*>(w.data) + (expert * w.n_out + out) * w.n_in;
    for (int64_t k = lane; k < w.n_in; k += 32) sum += to_float(in[k]) * to_float(row[k]);
  } else {
    const int64_t row = expert * ((w.n_out + kTileRows - 1) / kTileRows * kTileRows) + out;
    for (int64_t k = lane; k < w.n_in / 8; k += 32) {
      float values[8];
      decode8<S>(w, row, k, values);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum += to_float(in[8 * k + j]) * values[j];
    }
  }
  sum = warp_sum(sum) * w.factor;
  if (lane == 0)
    static_cast<Y*>(p.y)[i * p.y_stride + out] =
        from_float<Y>(sum + (p.bias[0] ? p.bias[0][expert * w.n_out + out] : 0.0f));
}

template <int kGates>
void start_dense(Params p, unsigned n_sums, Device& device) {
  p.n_steps = (p.n_in + kChunk - 1) / kChunk;
  launch(device, dense_kernel<kGates>, dim3(blocks_for(p.w[0].n_out, kWarps), n_sums), 32 * kWarps,
         static_cast<size_t>(p.n_terms) * static_cast<size_t>(p.n_in) * sizeof(half), p);
}

}  // namespace

void expert_rows_detail::dense_expert_rows(const ExpertMatmul& m, Device& device) {
  const auto n_sums = static_cast<unsigned>(m.n_rows / m.n_terms);
  m.gate >= 0 ? start_dense<2>(params_of(m), n_sums, device) : start_dense<1>(params_of(m), n_sums, device);
}

void plain_expert_rows(const ExpertMatmul& m, Device& device) {
  CHECK(m.gate < 0 && m.weights == nullptr && m.x.dtype == (m.w[0]->f32 ? DType::kF32 : DType::kF16));
  const Params p = params_of(m);
  with_type(m.x.dtype, [&](auto* px) {
    with_type(m.y.dtype, [&](auto* py) {
      using S = std::remove_pointer_t<decltype(px)>;
      using Y = std::remove_pointer_t<decltype(py)>;
      launch(device, plain_kernel<S, Y>, dim3(static_cast<unsigned>(m.n_rows), blocks_for(m.w[0]->n_out, kWarps)),
             32 * kWarps, 0, p, static_cast<const S*>(m.x.data));
    });
  });
}

}  // namespace ingot::cuda
