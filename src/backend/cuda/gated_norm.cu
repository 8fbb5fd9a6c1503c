// The norm after the scan of Mamba-2: a block handles a group of a row, in registers.
#include "backend/cuda/kernels.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/rms.cuh"

namespace ingot::cuda {
namespace {

template <class Y>
struct GatedNorm {
  Y* y;
  const float *x, *gate, *weight;
  int64_t y_stride, x_stride, gate_stride, weight_stride;
  int n_packs;  // of a group
  float eps;
};

__device__ __forceinline__ float silu(float x) { return x / (1.0f + expf(-x)); }

template <class Y, int kPacks>
__global__ void __launch_bounds__(kPackThreads) gated_norm_kernel(const __grid_constant__ GatedNorm<Y> p) {
  __shared__ float sums[kPackThreads / 32];
  const int64_t row = blockIdx.x, first = int64_t{blockIdx.y} * 4 * p.n_packs;
  let_next_start();
  float4 normed[kPacks], gates[kPacks], scales[kPacks];
  load_packs(scales, p.weight + blockIdx.y * p.weight_stride, p.n_packs);
  wait_for_previous();
  load_packs(normed, p.x + row * p.x_stride + first, p.n_packs);
  load_packs(gates, p.gate + row * p.gate_stride + first, p.n_packs);
#pragma unroll
  for (int j = 0; j < kPacks; ++j) {
    const float4 v = normed[j], g = gates[j];
    normed[j] = {v.x * silu(g.x), v.y * silu(g.y), v.z * silu(g.z), v.w * silu(g.w)};
  }
  rms_packs(normed, scales, p.n_packs, p.eps, sums);
#pragma unroll
  for (int j = 0; j < kPacks; ++j)
    if (const int i = threadIdx.x + j * blockDim.x; i < p.n_packs)
      store4(p.y + row * p.y_stride + first + 4 * i, normed[j]);
}

bool has_packs(const Tensor& t) { return t.stride % 4 == 0 && on_16_bytes(t.data); }

}  // namespace

bool can_gated_norm(const Tensor& y, const Tensor& x, const Tensor& gate, const NormArgs& args) {
  const Tensor& weight = args.weight;
  return args.kind == NormKind::kRms && !args.bias && x.dtype == DType::kF32 && gate.dtype == DType::kF32 &&
         weight.cols % 4 == 0 && weight.cols <= 4 * kPackThreads * kMaxPacks && has_packs(x) && has_packs(y) &&
         has_packs(gate) && on_16_bytes(weight.data) && (weight.rows == 1 || weight.stride % 4 == 0);
}

void gated_norm_rows(const Tensor& y, const Tensor& x, const Tensor& gate, const NormArgs& args, Device& device) {
  if (x.rows == 0) return;
  const Tensor& weight = args.weight;
  with_type(y.dtype, [&](auto* py) {
    using Y = std::remove_pointer_t<decltype(py)>;
    const GatedNorm<Y> p{.y = static_cast<Y*>(y.data),
                         .x = x.f32(),
                         .gate = gate.f32(),
                         .weight = weight.f32(),
                         .y_stride = y.stride,
                         .x_stride = x.stride,
                         .gate_stride = gate.stride,
                         .weight_stride = weight.stride,
                         .n_packs = static_cast<int>(weight.cols / 4),
                         .eps = args.eps};
    const dim3 grid(static_cast<unsigned>(x.rows), static_cast<unsigned>(weight.rows));
    with_packs(p.n_packs, [&](auto packs, int) {  // with no more threads than needed, more blocks run at once
      constexpr int kPacks = decltype(packs)::value;
      launch(device, gated_norm_kernel<Y, kPacks>, grid, (p.n_packs + 32 * kPacks - 1) / (32 * kPacks) * 32, 0, p);
    });
  });
}

}  // namespace ingot::cuda
