// Products of quantized weights with few rows of activations, up to 16: tensor-core tiles with the weights as the 16-row operand. Every weight is read
// once, and reading is all that counts, so the kernel is a stream: each warp copies ahead into a ring of its own in shared memory,
// across the ends of tiles, and starts before the kernel in front of it has ended.
//
// Warps of a block divide the columns of a tile and add up in shared memory; what they do with a step is in matvec_step.cuh.
#include <algorithm>
#include <type_traits>

#include "backend/cuda/device.cuh"
#include "backend/cuda/kernels.h"
#include "backend/cuda/matvec_step.cuh"
#include "backend/cuda/matvec_tiles.cuh"
#include "backend/cuda/memory.h"

namespace ingot::cuda {

using namespace matvec_step;
using namespace matvec_tiles;

namespace {

constexpr int kMostStaged = 56 << 10;   // bytes of activations in shared memory
constexpr size_t kStaticShared = 2048;  // more than what the kernel declares

// Activations as the lanes take them: of each 32 columns lane t's 8 lie together, and each row ends in zeros up to whole steps. A few
// more make tokens lie in different banks.
__host__ __device__ __forceinline__ int whole_steps(int n_in) { return (n_in + kTileCols - 1) / kTileCols * kTileCols; }
__host__ __device__ __forceinline__ int arranged_stride(int n_in) { return whole_steps(n_in) + 8; }

// Where 4 columns from k go.
template <class K>
__device__ __forceinline__ int arranged_place(int k) {
  return k / 32 * 32 + k % 16 * 2 + k % 32 / 16 * 4;
}

template <class K>
__device__ __forceinline__ void arrange(half* to, const Params& p, int first, int step) {
  const int stride = arranged_stride(p.n_in), per_token = whole_steps(p.n_in) / 4, n = p.n * per_token;
  constexpr int kAtOnce = 8;  // loads on their way
  for (int begin = first; begin < n; begin += kAtOnce * step) {
    uint2 v[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = begin + j * step, token = p.n == 1 ? 0 : i / per_token, k = 4 * (i - token * per_token);
      v[j] = i < n && k < p.n_in ? *reinterpret_cast<const uint2*>(p.x + token * p.x_stride + k) : uint2{};
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int i = begin + j * step, token = p.n == 1 ? 0 : i / per_token, k = 4 * (i - token * per_token);
      if (i < n) *reinterpret_cast<uint2*>(to + token * stride + arranged_place<K>(k)) = v[j];
    }
  }
}

template <class K>
__global__ void arrange_kernel(half* to, const __grid_constant__ Params p) {
  start_dependent();
  arrange<K>(to, p, static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x), static_cast<int>(gridDim.x * blockDim.x));
}

template <class K>
__device__ const half* stage_input(const Params& p, half* shared, float* reduce /* [33] */) {
  if (!p.staged) return p.x;
  if (p.norm.x == nullptr) {
    arrange<K>(shared, p, threadIdx.x, blockDim.x);
  } else {
    norm_row(p.norm, p.n_in, p.n_in, reduce, true,
             [&](int i, uint2 v) { *reinterpret_cast<uint2*>(shared + arranged_place<K>(4 * i)) = v; });
    for (int k = p.n_in + 4 * static_cast<int>(threadIdx.x); k < whole_steps(p.n_in);
         k += 4 * static_cast<int>(blockDim.x))
      *reinterpret_cast<uint2*>(shared + arranged_place<K>(k)) = uint2{};
  }
  return shared;
}

// The stream of one warp: copies run ahead of their use by all but one of the ring's slots. Steps of the gates take turns.
template <class K, int kGates>
struct Stream {
  const Params& p;
  const int lane, part, stride, n_mine;  // stride: from one tile of the warp to its next; n_mine: steps of a tile
  uint32_t slot;
  const uint32_t end;
  int tile, left = 0;
  From from[kGates];

  __device__ Stream(const Params& params, const char* ring, int lane_of, int part_of, int first_tile, int stride_of)
      : p(params),
        lane(lane_of),
        part(part_of),
        stride(stride_of),
        n_mine((params.n_steps - part_of + params.split - 1) / params.split),
        slot(shared_address(ring)),
        end(slot + K::kSlots * K::kSlotBytes),
        tile(first_tile) {
    aim();
  }
  __device__ void aim() {
    left = tile < p.n_tiles ? n_mine : 0;
    if (left == 0) return;
    const int job = kGates == 1 ? job_of(p, tile) : 0;
#pragma unroll
    for (int j = 0; j < kGates; ++j) {
      from[j] = from_of<K>(p.jobs[job + j].w, tile - p.first_tile[job], lane);
      from[j].codes += int64_t{part} * kStepBytes;
      from[j].scales += int64_t{part} * (32 * K::kScaleBytes);
    }
  }
  template <int kGate>
  __device__ __forceinline__ void copy_next() {
    if (left > 0) {
      copy_step<K>(slot, from[kGate], lane);
      from[kGate].codes += p.split * kStepBytes;
      from[kGate].scales += p.split * (32 * K::kScaleBytes);
      if (kGate == kGates - 1 && --left == 0) {
        tile += stride;
        aim();
      }
    }
    end_copies();
    slot = slot + K::kSlotBytes == end ? end - K::kSlots * K::kSlotBytes : slot + K::kSlotBytes;
  }

 private:
  static constexpr int kStepBytes = 512 * K::kPieces;  // from one step to the next
};

template <class K, int kTokenTiles, int kGates>
__global__ void __launch_bounds__(32 * kMostWarps, 1) matvec_kernel(const __grid_constant__ Params p) {
  // The rings of the warps; [2, warps, kGates, n, 16] sums, one while the other is read; the staged activations.
  extern __shared__ __align__(16) char shared[];
  __shared__ float reduce[33];
  __shared__ uint32_t table[K::kLayout == Layout::kCodebook4 ? 256 : 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4,
            n_warps = static_cast<int>(blockDim.x) / 32;
  const int at_once = n_warps / p.split, local = warp / p.split, part = warp % p.split,
            stride = static_cast<int>(gridDim.x) * at_once;
  const char* ring = shared + warp * (K::kSlots * K::kSlotBytes);
  const int n_sums = kTileRows * p.n, buffer_size = n_warps * kGates * n_sums;
  float* sums = reinterpret_cast<float*>(shared + n_warps * K::kSlots * K::kSlotBytes);
  let_next_start();
  Stream<K, kGates> stream(p, ring, lane, part, static_cast<int>(blockIdx.x) * at_once + local, stride);
  if (part == 0 && lane < kGates && stream.tile < p.n_tiles) {
    const int job = kGates == 1 ? job_of(p, stream.tile) : lane;
    prefetch_tile(p.jobs[job].w, stream.tile - p.first_tile[job]);
  }
  stream.template copy_next<0>();
  stream.template copy_next<1 % kGates>();
  if constexpr (K::kSlots == 4) stream.template copy_next<0>();
  if constexpr (K::kLayout == Layout::kCodebook4) fill_table(table, p.jobs[0].w);
  wait_for_previous();
  const half* input = stage_input<K>(p, reinterpret_cast<half*>(sums + 2 * buffer_size), reduce);
  __syncthreads();

  const uint32_t constant = (K::kMin ? 1u : 0x8000u | static_cast<uint32_t>(p.jobs[0].w.zero)) * 0x10001u;
  int slot = 0, buffer = 0;
  const auto use_step = [&](auto& sums_of, const auto& x, auto gate_ahead) {
    await_copies<K::kSlots - 2>();
    __syncwarp();  // scales are copied by other lanes than use them
    stream.template copy_next<decltype(gate_ahead)::value>();
    multiply<K, kTokenTiles>(sums_of, ring + slot, x, lane, constant, table);
    slot = slot + K::kSlotBytes == K::kSlots * K::kSlotBytes ? 0 : slot + K::kSlotBytes;
  };
  for (int first = static_cast<int>(blockIdx.x) * at_once; first < p.n_tiles; first += stride) {
    const int tile = first + local;
    float acc[kGates][kTokenTiles][4] = {};
    if (tile < p.n_tiles) {
      const half* x[kTokenTiles];  // tokens past the last are as the last, and not written
#pragma unroll
      for (int i = 0; i < kTokenTiles; ++i)
        x[i] = input + min(8 * i + g, p.n - 1) * arranged_stride(p.n_in) + 8 * t + part * K::kCols;
      for (int left = stream.n_mine; left > 0; --left) {
        use_step(acc[0], x, std::integral_constant<int, (K::kSlots - 1) % kGates>());
        if constexpr (kGates == 2) use_step(acc[1], x, std::integral_constant<int, K::kSlots % kGates>());
#pragma unroll
        for (int i = 0; i < kTokenTiles; ++i) x[i] += p.split * K::kCols;
      }
    }
    float* out = sums + buffer * buffer_size + warp * kGates * n_sums;
#pragma unroll
    for (int j = 0; j < kGates; ++j) {
#pragma unroll
      for (int i = 0; i < kTokenTiles; ++i) {
        const int token = 8 * i + 2 * t;
        float* at = out + j * n_sums + token * kTileRows + g;
        if (token < p.n) at[0] = acc[j][i][0], at[8] = acc[j][i][2];
        if (token + 1 < p.n) at[kTileRows] = acc[j][i][1], at[kTileRows + 8] = acc[j][i][3];
      }
    }
    __syncthreads();
    if (tile < p.n_tiles) write_tile<kGates>(p, p.n, sums + buffer * buffer_size, local, tile, 0x1p24f);
    buffer ^= 1;
  }
}

template <class K, int kTokenTiles, int kGates>
void start(Params p, half* arranged, cudaStream_t stream) {
  constexpr int kPerWarp = K::kSlots * K::kSlotBytes;
  const size_t sums = size_t{2} * kGates * kTileRows * static_cast<size_t>(p.n) * sizeof(float);  // of a warp
  const size_t input = static_cast<size_t>(p.n) * static_cast<size_t>(arranged_stride(p.n_in)) * sizeof(half);
  p.n_steps = (p.n_in + K::kCols - 1) / K::kCols;
  // A wave of tiles: more warps to a tile where there are fewer tiles than multiprocessors.
  const bool few = p.n_tiles <= n_multiprocessors() && p.n_steps >= 2 * kMostWarps && kTokenTiles == 1;
  const bool wide = few && kMostWarps * (kPerWarp + sums) + input + kStaticShared <= most_shared();
  const int n_warps = wide ? kMostWarps : kMostWarps / 2;
  const size_t rings = static_cast<size_t>(n_warps) * (kPerWarp + sums);
  p.staged = input <= kMostStaged && rings + input + kStaticShared <= most_shared();
  CHECK(p.staged || p.norm.x == nullptr);
  if (!p.staged) {
    launch(arrange_kernel<K>, dim3(blocks_for(p.n * whole_steps(p.n_in) / 4, 256)), 256, 0, stream, arranged, p);
    p.x = arranged;
  }
  const int n_blocks = divide(p, n_warps);
  const size_t shared = rings + (p.staged ? input : 0);
  static const cudaError_t set =
      cudaFuncSetAttribute(matvec_kernel<K, kTokenTiles, kGates>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           static_cast<int>(most_shared() - kStaticShared));
  check(set, "cudaFuncSetAttribute");
  launch(matvec_kernel<K, kTokenTiles, kGates>, dim3(static_cast<unsigned>(n_blocks)), n_warps * 32, shared, stream, p);
}

template <class K>
void start(const Params& p, bool gated, half* arranged, cudaStream_t stream) {
  if (gated) {
    p.n <= 8 ? start<K, 1, 2>(p, arranged, stream) : start<K, 2, 2>(p, arranged, stream);
  } else {
    p.n <= 8 ? start<K, 1, 1>(p, arranged, stream) : start<K, 2, 1>(p, arranged, stream);
  }
}

template <Layout kLayout>
void start_codes(const Params& p, const PackedWeight& w, bool gated, half* arranged, cudaStream_t stream) {
  if (w.has_min && w.group16) return start<Kind<kLayout, true, true>>(p, gated, arranged, stream);
  if (w.has_min) return start<Kind<kLayout, true, false>>(p, gated, arranged, stream);
  if (w.group16) return start<Kind<kLayout, false, true>>(p, gated, arranged, stream);
  start<Kind<kLayout, false, false>>(p, gated, arranged, stream);
}

}  // namespace

bool can_matvec(const PackedWeight& w) {
  return !w.f32 && (w.layout != Layout::kDense ||
                    (w.n_in % 8 == 0 && w.n_in <= kMostDotColumns && reinterpret_cast<uintptr_t>(w.data) % 16 == 0));
}

bool share_matvec(const PackedWeight& a, const PackedWeight& b) {
  return a.layout == b.layout && a.codebook_low == b.codebook_low && a.has_min == b.has_min && a.group16 == b.group16 &&
         a.zero == b.zero && a.n_in == b.n_in;
}

size_t matvec_scratch(const Tensor& x) {
  return static_cast<size_t>(x.rows) * static_cast<size_t>(arranged_stride(static_cast<int>(x.cols))) * sizeof(half);
}

void matvec(const Matvec& m, cudaStream_t stream) {
  CHECK_LE(m.x.rows, kMatvecRows);
  if (m.x.rows == 0) return;
  const bool gated = m.gate >= 0;
  const PackedWeight& w = *m.jobs[0].w;
  if (w.layout == Layout::kDense) return dot_rows(m, stream);
  const Params p = params_of(m);
  if (p.n == 1 && can_dot_codes(w)) return dot_codes(p, gated, m.specialised, stream);
  half* arranged = static_cast<half*>(m.arranged);
  switch (w.layout) {
    case Layout::kDense: return;  // is dot_rows's
    case Layout::kCodebook4:
      CHECK(!w.has_min);
      if (w.group16) return start<Kind<Layout::kCodebook4, false, true>>(p, gated, arranged, stream);
      return start<Kind<Layout::kCodebook4, false, false>>(p, gated, arranged, stream);
    case Layout::kCodes4: return start_codes<Layout::kCodes4>(p, w, gated, arranged, stream);
    case Layout::kCodes8: return start_codes<Layout::kCodes8>(p, w, gated, arranged, stream);
  }
}

}  // namespace ingot::cuda
