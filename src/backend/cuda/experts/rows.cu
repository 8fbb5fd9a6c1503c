// Products of few rows of activations with the matrices of their experts, for the decode of one sequence or of a few.
// The kernel for quantized weights is in experts/codes.cuh. Every row reads its weights separately. If many rows share
// an expert, experts/tiles.cu is used instead.
#include <algorithm>

#include "backend/cuda/experts/codes.cuh"
#include "backend/cuda/experts/rows_launch.cuh"
#include "backend/cuda/matmul/launch.cuh"
#include "backend/cuda/memory.h"
#include "backend/cuda/specialised.h"

namespace ingot::cuda {

using namespace expert_codes_kernel;
using expert_rows_detail::kMaxInput;
using expert_rows_detail::kMaxTerms;

namespace {

constexpr size_t kStaticShared = 4096;  // more than the kernel declares

// The fewest blocks that need no more rounds than one large block, or two small blocks, per multiprocessor.
dim3 grid_of(const Device& device, const Params& p, int n_groups, int n_warps) {
  const int n_tasks = p.n_sums * p.n_tiles,
            max_blocks = std::max(1, kMaxWarps / n_warps * device.n_multiprocessors() / n_groups);
  const int rounds = (n_tasks + max_blocks - 1) / max_blocks;
  return dim3(blocks_for(n_tasks, rounds), static_cast<unsigned>(n_groups));
}

template <class K, int kGates>
__global__ void __launch_bounds__(32 * kMaxWarps, 2) any_kernel(const __grid_constant__ Params p) {
  run<K, kGates, Shape{}>(p);
}

template <class K, int kGates>
void start(Params p, SpecialisedKernels* specialised, Device& device) {
  constexpr size_t kRing = K::kSlots * K::kSlotBytes;
  const size_t input = Input<K>::bytes(p.n_inputs, p.n_steps);
  for (int j = 0; j < kGates; ++j)
    CHECK_EQ(p.w[j].expert_bytes, int64_t{p.n_tiles} * p.n_steps * (512 * K::kPieces));  // no gaps between experts
  p.n_warps = kMaxWarps * kRing + input + kStaticShared <= device.most_shared() ? kMaxWarps : kFewestWarps;
  const SpecialisedKernel kind{SpecialisedKernel::kExpertCodes, K::kLayout, K::kMin, K::kGroup16, kGates, p};
  launch(device, kernel_or(any_kernel<K, kGates>, specialised, kind),
         grid_of(device, p, p.n_rows / (p.n_sums * p.n_terms), p.n_warps), 32 * p.n_warps,
         static_cast<size_t>(p.n_warps) * kRing + input, p);
}

// Rows that share their activations form a group, unless they are summed up.
Params code_params_of(const ExpertMatmul& m) {
  Params p{expert_rows_detail::params_of(m)};
  const int sharing = p.n_rows / p.x_rows;
  p.n_sums = m.n_terms == 1 && sharing <= kMaxTerms ? sharing : 1;
  p.n_inputs = sharing == 1 ? m.n_terms : 1;
  p.input_step = p.n_inputs * p.x_stride;
  p.n_steps = (p.n_in + kTileCols - 1) / kTileCols;
  p.n_tiles = static_cast<int>((p.w[0].n_out + kTileRows - 1) / kTileRows);
  p.knows_experts = m.knows_experts;
  return p;
}

}  // namespace

bool can_expert_matmul(const PackedWeight& w) {
  return !w.f32 && w.layout != Layout::kFloat8 && (w.layout != Layout::kDense || w.n_in % 8 == 0);
}

bool can_expert_rows(const ExpertMatmul& m) {
  const auto columns = static_cast<size_t>((m.x.cols + kTileCols - 1) / kTileCols * kTileCols);
  const size_t bytes = static_cast<size_t>(m.n_terms) * columns * (sizeof(half) + sizeof(float) / 16);
  const int64_t sharing = m.n_rows / m.x.rows;  // x has a row for each term, or for each sum
  return m.n_terms <= kMaxTerms && bytes <= kMaxInput && m.n_rows / m.n_terms <= 65535 && m.n_rows % m.x.rows == 0 &&
         (sharing == 1 || (m.n_terms == 1 && sharing <= kMaxTerms));
}

void expert_rows(const ExpertMatmul& m, Device& device) {
  CHECK(m.x.dtype == DType::kF16 && m.x.stride % 8 == 0 && reinterpret_cast<uintptr_t>(m.x.data) % 16 == 0);
  CHECK(m.weights == nullptr || m.y.dtype == DType::kF32);
  if (m.w[0]->layout == Layout::kDense) return expert_rows_detail::dense_expert_rows(m, device);
  const Params p = code_params_of(m);
  with_codes(*m.w[0], [&](auto kind) {
    using K = decltype(kind);
    p.act >= 0 ? start<K, 2>(p, m.specialised, device) : start<K, 1>(p, m.specialised, device);
  });
}

}  // namespace ingot::cuda
