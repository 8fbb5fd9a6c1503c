// Products with few rows of activations, up to 16. The kernel for quantized weights is in matvec.cuh; the kernels for a
// single row are in dot_codes.cu and dot_rows.cu.
#include "backend/cuda/matmul/float8.h"
#include "backend/cuda/matmul/launch.cuh"
#include "backend/cuda/matmul/matvec.cuh"
#include "backend/cuda/memory.h"
#include "backend/cuda/specialised.h"

namespace ingot::cuda {

using namespace matvec_kernel;

namespace {

constexpr int kMaxStaged = 56 << 10;    // bytes of activations in shared memory
constexpr size_t kStaticShared = 2048;  // more than the kernel declares

__global__ void arrange_kernel(half* to, const __grid_constant__ Params p) {
  start_dependent();
  arrange<Shape{}>(to, p, static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x),
                   static_cast<int>(gridDim.x * blockDim.x));
}

template <class K, int kTokenTiles, int kGates>
__global__ void __launch_bounds__(32 * kMaxWarps, 1) any_kernel(const __grid_constant__ Params p) {
  run<K, kTokenTiles, kGates, Shape{}>(p);
}

template <class K, int kTokenTiles, int kGates>
void start(Params p, half* arranged, SpecialisedKernels* specialised, Device& device) {
  constexpr int kPerWarp = K::kSlots * K::kSlotBytes;
  const size_t sums = size_t{2} * kGates * kTileRows * static_cast<size_t>(p.n) * sizeof(float);  // of one warp
  const size_t input = static_cast<size_t>(p.n) * static_cast<size_t>(arranged_stride(p.n_in)) * sizeof(half);
  p.n_steps = (p.n_in + K::kCols - 1) / K::kCols;
  // One wave of tiles: more warps share a tile if there are fewer tiles than multiprocessors.
  const bool few = p.n_tiles <= device.n_multiprocessors() && p.n_steps >= 2 * kMaxWarps && kTokenTiles == 1;
  const bool wide = few && kMaxWarps * (kPerWarp + sums) + input + kStaticShared <= device.most_shared();
  const int n_warps = wide ? kMaxWarps : kMaxWarps / 2;
  const size_t rings = static_cast<size_t>(n_warps) * (kPerWarp + sums);
  p.staged = input <= kMaxStaged && rings + input + kStaticShared <= device.most_shared();
  CHECK(p.staged || p.norm.x == nullptr);
  if (!p.staged) {
    launch(device, arrange_kernel, dim3(blocks_for(p.n * whole_steps(p.n_in) / 4, 256)), 256, 0, arranged, p);
    p.x = arranged;
  }
  const int n_blocks = divide(device, p, n_warps);
  const size_t shared = rings + (p.staged ? input : 0);
  p.n_tokens = p.n;
  const SpecialisedKernel kind{SpecialisedKernel::kMatvec, K::kLayout, K::kMin, K::kGroup16, kTokenTiles, p};
  launch(device, kernel_or(any_kernel<K, kTokenTiles, kGates>, specialised, kind),
         dim3(static_cast<unsigned>(n_blocks)), n_warps * 32, shared, p);
}

template <class K>
void start(const Params& p, bool gated, half* arranged, SpecialisedKernels* specialised, Device& device) {
  if (gated) {
    p.n <= 8 ? start<K, 1, 2>(p, arranged, specialised, device) : start<K, 2, 2>(p, arranged, specialised, device);
  } else {
    p.n <= 8 ? start<K, 1, 1>(p, arranged, specialised, device) : start<K, 2, 1>(p, arranged, specialised, device);
  }
}

}  // namespace

bool can_matvec(const PackedWeight& w) {
  return !w.f32 && (w.layout != Layout::kDense ||
                    (w.n_in % 8 == 0 && w.n_in <= kMaxDotColumns && reinterpret_cast<uintptr_t>(w.data) % 16 == 0));
}

bool share_matvec(const PackedWeight& a, const PackedWeight& b) {
  return a.layout == b.layout && a.codebook_low == b.codebook_low && a.codebook_high == b.codebook_high &&
         a.has_min == b.has_min && a.group16 == b.group16 && a.zero == b.zero && a.n_in == b.n_in;
}

size_t matvec_scratch(const Tensor& x) {
  return static_cast<size_t>(x.rows) * static_cast<size_t>(arranged_stride(static_cast<int>(x.cols))) * sizeof(half);
}

void matvec(const Matvec& m, Device& device) {
  CHECK_LE(m.x.rows, kMatvecRows);
  if (m.x.rows == 0) return;
  const bool gated = m.gate >= 0;
  const PackedWeight& w = *m.jobs[0].w;
  if (w.layout == Layout::kDense) return dot_rows(m, device);
  if (w.layout == Layout::kFloat8) return float8_rows(m, device);
  const Params p = params_of(m);
  if (p.n == 1 && can_dot_codes(w)) return dot_codes(p, gated, m.specialised, device);
  half* arranged = static_cast<half*>(m.arranged);
  with_codes(w, [&](auto kind) { start<decltype(kind)>(p, gated, arranged, m.specialised, device); });
}

}  // namespace ingot::cuda
