// Host code of rows.cu and dense.cu.
#pragma once
#include "backend/cuda/experts/experts.h"
#include "backend/cuda/experts/rows.cuh"
#include "backend/cuda/launch.cuh"

namespace ingot::cuda::expert_rows_detail {

// Sets all fields except n_steps.
inline Params params_of(const ExpertMatmul& m) {
  Params p{};
  for (int j = 0; j < (m.gate >= 0 ? 2 : 1); ++j)
    p.w[j] = *m.w[j], p.bias[j] = m.bias[j], p.has_bias |= m.bias[j] != nullptr;
  p.x = static_cast<const half*>(m.x.data);
  p.x_stride = m.x.stride, p.x_rows = static_cast<int>(m.x.rows), p.n_rows = static_cast<int>(m.n_rows);
  p.ids = m.ids, p.weights = m.weights;
  p.accumulate = m.weights != nullptr, p.partial = m.partial;
  p.n_terms = m.n_terms;
  p.n_jobs = m.gate >= 0 ? 2 : 1;
  p.n_out[0] = static_cast<int>(m.w[0]->n_out);
  p.zero = m.w[0]->zero;
  p.n_in = static_cast<int>(m.x.cols);
  p.y = m.y.data, p.y_stride = m.y.stride, p.y_f32 = m.y.dtype == DType::kF32;
  p.act = m.gate;
  return p;
}

void dense_expert_rows(const ExpertMatmul& m, Device& device);  // experts/dense.cu

}  // namespace ingot::cuda::expert_rows_detail
