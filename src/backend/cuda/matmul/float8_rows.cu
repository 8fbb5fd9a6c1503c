// Products of a few rows of activations (up to 8, f16) with weights of 8-bit floats, at memory speed. All warps of a
// block share a tile of 16 rows of weights: a warp multiplies every 16th group of 128 columns on the tensor cores. It
// loads some groups ahead, also across the ends of tiles, and the first groups before the previous kernel ends. (Two
// blocks of 8 warps per multiprocessor were slower. Tiles of 8 rows with one warp or a few for each were slower, too.)
//
// A sum may add its columns in any order. So a lane loads 16 neighbouring numbers of a row, and uses them as columns
// 2t, 2t + 1, 2t + 8 and 2t + 9 of four products.
#include <algorithm>

#include "backend/cuda/matmul/float8.h"
#include "backend/cuda/matmul/launch.cuh"

namespace ingot::cuda {

using namespace matvec_tiles;

namespace {

constexpr int kWarps = 16, kMaxRows = 8;
constexpr int kPad = 8;  // halves after a row of activations in shared memory, against bank conflicts

__device__ __forceinline__ uint32_t low_halves(uint32_t numbers) {
  return halves_of(static_cast<__nv_fp8x2_storage_t>(numbers));
}
__device__ __forceinline__ uint32_t high_halves(uint32_t numbers) { return low_halves(numbers >> 16); }

// A lane's numbers of one group of columns: rows g and g + 8, two halves of 64 columns.
template <int kGates>
struct Group {
  uint4 numbers[kGates][2][2];
  float scales[kGates][2];
};

// Loads the groups of one warp in order.
template <int kGates>
struct Loader {
  const Params& p;
  const int n_groups, g, t;
  int tile, group;
  const uint8_t* numbers[kGates];  // of row g
  const float* scales[kGates];
  int lower[kGates], scale_stride[kGates];  // lower: rows from row g to row g + 8

  __device__ Loader(const Params& params, int warp, int lane)
      : p(params),
        n_groups(params.n_in / kScaleCols),
        g(lane / 4),
        t(lane % 4),
        tile(static_cast<int>(blockIdx.x)),
        group(warp) {
    aim();
  }
  __device__ __forceinline__ void aim() {
    if (tile >= p.n_tiles) return;
    const int job = kGates == 1 ? job_of(p, tile) : 0;
#pragma unroll
    for (int j = 0; j < kGates; ++j) {
      const PackedWeight& w = p.jobs[job + j].w;
      scale_stride[j] = static_cast<int>(column_scales(w.n_out));
      // The last tile may have fewer rows. Its last row is then computed in their place, but not written.
      const int first = (tile - pick(p.first_tile, job)) * kTileRows + g, last = static_cast<int>(w.n_out) - 1,
                row = min(first, last);
      lower[j] = min(first + 8, last) - row;
      numbers[j] = static_cast<const uint8_t*>(w.data) + int64_t{row} * p.n_in + 16 * t;
      scales[j] = static_cast<const float*>(w.scales) + row;
    }
  }
  __device__ __forceinline__ void load(Group<kGates>& to) {
    const bool in = tile < p.n_tiles && group < n_groups;
#pragma unroll
    for (int j = 0; j < kGates; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int half = 0; half < 2; ++half)
          to.numbers[j][r][half] =
              in ? load_stream(numbers[j] + r * lower[j] * p.n_in + group * kScaleCols + 64 * half) : uint4{};
        to.scales[j][r] = in ? __ldg(scales[j] + r * lower[j] + int64_t{group} * scale_stride[j]) : 0.0f;
      }
    group += kWarps;
    if (group - static_cast<int>(threadIdx.x) / 32 >= n_groups) {
      group = static_cast<int>(threadIdx.x) / 32;
      tile += static_cast<int>(gridDim.x);
      aim();
    }
  }
};

// total += a group of weights times its columns of the activations.
template <int kGates>
__device__ __forceinline__ void multiply(float (&total)[kGates][4], const Group<kGates>& w,
                                         const half* x /* at token g, column 16 t of the group; null: zeros */) {
  float part[kGates][4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const auto* from = reinterpret_cast<const uint4*>(x + 64 * half);
    const uint4 low = x == nullptr ? uint4{} : from[0], high = x == nullptr ? uint4{} : from[1];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint4& v = i < 2 ? low : high;
      const uint32_t b0 = i % 2 ? v.z : v.x, b1 = i % 2 ? v.w : v.y;
#pragma unroll
      for (int j = 0; j < kGates; ++j) {
        const uint32_t upper = word_of(w.numbers[j][0][half], i), lower = word_of(w.numbers[j][1][half], i);
        const uint32_t a0 = low_halves(upper), a1 = low_halves(lower), a2 = high_halves(upper), a3 = high_halves(lower);
        half == 0 && i == 0 ? mma_new(part[j], a0, a1, a2, a3, b0, b1) : mma(part[j], a0, a1, a2, a3, b0, b1);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kGates; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) total[j][i] += w.scales[j][i / 2] * part[j][i];
}

// Shared memory: [n, n_in + kPad] activations, then twice [kWarps, kGates, n, 16] sums: one half written, one read.
template <int kGates>
__global__ void __launch_bounds__(kWarps * 32, 1) float8_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(16) half shared[];
  __shared__ float reduce[33];
  constexpr int kAhead = kGates == 1 ? 3 : 2;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, n = p.n;
  const int stride = p.n_in + kPad, n_sums = kWarps * kGates * kTileRows * n;
  auto* sums = reinterpret_cast<float*>(shared + n * stride);
  let_next_start();
  Loader<kGates> loader(p, warp, lane);
  Group<kGates> ring[kAhead];
#pragma unroll
  for (auto& group : ring) loader.load(group);
  wait_for_previous();
  if (p.has_norm) {
    norm_row(p.norm, p.n_in, p.n_in, reduce, true,
             [&](int i, uint2 v) { *reinterpret_cast<uint2*>(shared + 4 * i) = v; });
  } else {
    for (int token = 0; token < n; ++token)
#pragma unroll 4
      for (int i = static_cast<int>(threadIdx.x) * 8; i < p.n_in; i += kWarps * 32 * 8)
        *reinterpret_cast<uint4*>(shared + token * stride + i) =
            __ldcg(reinterpret_cast<const uint4*>(p.x + token * p.x_stride + i));
  }
  __syncthreads();
  const int per_tile = (p.n_in / kScaleCols + kWarps - 1) / kWarps;
  int tile = static_cast<int>(blockIdx.x), step = 0, half_of_sums = 0;
  float total[kGates][4] = {};
  while (tile < p.n_tiles) {
#pragma unroll
    for (int slot = 0; slot < kAhead; ++slot) {
      if (tile >= p.n_tiles) break;
      const int column = (warp + step * kWarps) * kScaleCols;
      if (column < p.n_in)
        multiply<kGates>(total, ring[slot], g < n ? shared + g * stride + column + 16 * t : nullptr);
      loader.load(ring[slot]);
      if (++step < per_tile) continue;
      float* to = sums + half_of_sums * n_sums;
#pragma unroll
      for (int j = 0; j < kGates; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (const int token = 2 * t + i % 2; token < n)
            to[((warp * kGates + j) * n + token) * kTileRows + g + i / 2 * 8] = total[j][i];
          total[j][i] = 0;
        }
      __syncthreads();
      write_tile<kGates>(p, n, to, 0, tile, 1.0f);
      half_of_sums ^= 1, step = 0, tile += static_cast<int>(gridDim.x);
    }
  }
}

size_t shared_bytes(int64_t n, int64_t n_in, int gates) {
  return static_cast<size_t>(n * ((n_in + kPad) * 2 + int64_t{2} * kWarps * gates * kTileRows * 4));
}

}  // namespace

int most_float8_rows(const DeviceLimits& device, int64_t n_in) {
  constexpr size_t kStatic = 1024;  // for the kernel's static memory and the driver's
  return static_cast<int>(
      std::min<size_t>(kMaxRows, (device.most_shared - kStatic) / shared_bytes(1, n_in, 2)));
}

void float8_rows(const Matvec& m, Device& device) {
  Params p = params_of(m);
  p.split = p.n_warps = kWarps;
  const auto n_blocks = static_cast<unsigned>(std::min(p.n_tiles, device.n_multiprocessors()));
  const bool gated = m.gate >= 0;
  launch(device, gated ? float8_kernel<2> : float8_kernel<1>, dim3(n_blocks), kWarps * 32,
         shared_bytes(p.n, p.n_in, gated ? 2 : 1), p);
}

}  // namespace ingot::cuda
