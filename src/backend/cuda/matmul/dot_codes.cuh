// The kernel of dot_codes.cu: the product of one row of activations with quantized weights of 4- or 8-bit codes. It
// multiplies integers by integers, so no code is decoded. The activations become 16-bit integers with a scale for each
// 128 columns (a step is 2^-15 of the largest: finer than the f16 input). dp2a multiplies two of them at once by codes
// in their stored order. A warp loads its next steps while it uses the current ones, and loads its first steps before
// the previous kernel ends. The warps of a block divide the columns of a tile of 16 rows, and add up their sums in
// shared memory.
#pragma once
#include "backend/cuda/matmul/matvec_tiles.cuh"

namespace ingot::cuda::dot_codes_kernel {

using namespace matvec_tiles;

template <bool kEightOf, bool kMinOf, bool kGroup16Of, int kGatesOf>
struct Kind {
  static constexpr bool kEight = kEightOf, kMin = kMinOf, kGroup16 = kGroup16Of;
  static constexpr int kGates = kGatesOf;
  static constexpr int kPieces = kEight ? 4 : 2;  // 16-byte pieces: a lane's codes of rows g and g + 8
  static constexpr int kScaleWords = 2 * (kMin ? 2 : 1) * (kGroup16 ? 2 : 1);  // of one row of a tile
  static constexpr int kTileBytes = 512 * kPieces, kScaleTileBytes = 16 * 4 * kScaleWords;
  static constexpr int kGroups = kGroup16 ? 2 : 1;
  static constexpr int kBatch = !kEight && kGates == 1 ? 2 : 1;  // steps loaded at once
};

// The activations in shared memory, by tiles of 128 columns.
template <class K>
struct Input {
  int4* x;        // [tile, 4 lanes, 4 units]: 8 16-bit integers, in the order in which dp2a uses their codes
  int* offsets;   // [tile, 4 lanes, 4 units, kGroups]: -zero * their sum; with minima the sum, as a float
  float* scales;  // [tile]
  uint2* halves;  // [tile, 32]

  static constexpr int kTile = 256 + 64 * K::kGroups + 4;  // bytes of a tile; the halves take 256 more
  static size_t bytes(int n_tiles) { return static_cast<size_t>(n_tiles) * (kTile + 256); }
  __device__ Input(char* shared, int n_tiles)
      : x(reinterpret_cast<int4*>(shared)),
        offsets(reinterpret_cast<int*>(shared + 512 * n_tiles)),
        scales(reinterpret_cast<float*>(shared + (512 + 64 * K::kGroups) * n_tiles)),
        halves(reinterpret_cast<uint2*>(shared + 256 * n_tiles)) {}
};

// Converts columns 4i to 4i + 3 from halves; a warp calls this function for a whole tile.
template <class K>
__device__ __forceinline__ void put_input(const Input<K>& input, int i, uint2 halves, int zero) {
  const int tile = i / 32, lane = i % 32, unit = lane / 8, h = lane / 4 % 2, t = lane % 4;
  const float2 first = __half22float2(half2_of(halves.x)), second = __half22float2(half2_of(halves.y));
  const float v[4] = {first.x, first.y, second.x, second.y};
  float largest = max_or_nan(max_or_nan(fabsf(v[0]), fabsf(v[1])), max_or_nan(fabsf(v[2]), fabsf(v[3])));
#pragma unroll
  for (int s = 16; s > 0; s /= 2) largest = max_or_nan(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, s));
  const float inverse = largest > 0 ? 32767.0f / largest : 0.0f;
  int q[4], sum = 0;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    q[j] = __float2int_rn(v[j] * inverse);
    sum += q[j];
  }
  uint2 words = make_uint2(__byte_perm(q[0], q[1], 0x5410), __byte_perm(q[2], q[3], 0x5410));
  if constexpr (!K::kEight) {  // the codes i of both halves of a unit are neighbours
    const uint32_t other0 = __shfl_xor_sync(0xFFFFFFFFu, words.x, 4), other1 = __shfl_xor_sync(0xFFFFFFFFu, words.y, 4);
    const uint32_t own = h ? other1 : words.x, other = h ? words.y : other0;
    words = make_uint2(__byte_perm(own, other, 0x5410), __byte_perm(own, other, 0x7632));
  }
  reinterpret_cast<uint2*>(input.x + tile * 16 + t * 4 + unit)[h] = words;
  if constexpr (!K::kGroup16) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 4);
  const int offset = K::kMin ? __float_as_int(static_cast<float>(sum)) : -zero * sum;
  if (K::kGroup16 || h == 0) input.offsets[((tile * 4 + t) * 4 + unit) * K::kGroups + (K::kGroup16 ? h : 0)] = offset;
  if (lane == 0) input.scales[tile] = largest / 32767.0f;
}

// First stores the activations as halves, then converts them tile by tile. So there is only one copy of the conversion
// code, because a short kernel waits for its instructions.
template <class K, Shape kShape>
__device__ __forceinline__ void stage(const Input<K>& input, const Params& p, float* reduce /* [33] */, bool real) {
  const Shape s = shape_of<kShape>(p);
  const int n = s.n_steps * kTileCols, n_threads = 32 * s.n_warps;
  if (s.has_norm) {
    norm_row(
        p.norm, s.n_in, n, reduce, real, [&](int i, uint2 v) { input.halves[i] = v; }, n_threads);
  } else {
#pragma unroll 4
    for (int i = threadIdx.x; 4 * i < n; i += n_threads)
      input.halves[i] = 4 * i < s.n_in ? __ldcg(reinterpret_cast<const uint2*>(p.x) + i) : uint2{};
  }
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x; 4 * i < n; i += n_threads) put_input(input, i, input.halves[i], s.zero);
}

// A lane's codes and scales of one step of one weight.
template <class K>
struct Step {
  uint4 codes[K::kPieces];
  uint32_t scales[2][K::kScaleWords];

  __device__ __forceinline__ void load(const char* codes_at, const char* scales_at) {
#pragma unroll
    for (int i = 0; i < K::kPieces; ++i) codes[i] = load_stream(codes_at + 512 * i);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const char* row = scales_at + 8 * r * (4 * K::kScaleWords);
      if constexpr (K::kScaleWords == 2) {
        const uint2 v = __ldg(reinterpret_cast<const uint2*>(row));
        scales[r][0] = v.x, scales[r][1] = v.y;
      } else {
#pragma unroll
        for (int i = 0; i < K::kScaleWords; i += 4) {
          const uint4 v = load_stream(row + 4 * i);
          scales[r][i] = v.x, scales[r][i + 1] = v.y, scales[r][i + 2] = v.z, scales[r][i + 3] = v.w;
        }
      }
    }
  }
  // The scale or the minimum of row g + 8r, unit u, group h. Must be called with constants.
  __device__ __forceinline__ float scale(int r, int u, int h, bool min) const {
    const int i = (u * K::kGroups + h) * (K::kMin ? 2 : 1) + min;
    const half2 pair = half2_of(scales[r][i / 2]);
    return i % 2 ? __high2float(pair) : __low2float(pair);
  }
};

__device__ __forceinline__ int dp2a_low(int x, uint32_t codes, int sum) {
  asm("dp2a.lo.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(x), "r"(codes));
  return sum;
}
__device__ __forceinline__ int dp2a_high(int x, uint32_t codes, int sum) {
  asm("dp2a.hi.s32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(x), "r"(codes));
  return sum;
}

// acc += rows g and g + 8 of the step times its activations.
template <class K>
__device__ __forceinline__ void use(float (&acc)[2], const Step<K>& step, const Input<K>& input, int tile, int t) {
  const int4* x = input.x + tile * 16 + t * 4;
  int offsets[4 * K::kGroups];
#pragma unroll
  for (int i = 0; i < K::kGroups; ++i) {
    const int4 v = reinterpret_cast<const int4*>(input.offsets + (tile * 4 + t) * 4 * K::kGroups)[i];
    offsets[4 * i] = v.x, offsets[4 * i + 1] = v.y, offsets[4 * i + 2] = v.z, offsets[4 * i + 3] = v.w;
  }
  float sums[2] = {0, 0};
#pragma unroll
  for (int u = 0; u < 4; ++u) {
    const int4 v = x[u];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      int products[2] = {K::kMin ? 0 : offsets[u * K::kGroups],
                         K::kMin || !K::kGroup16 ? 0 : offsets[u * K::kGroups + K::kGroups - 1]};
      int& second = products[K::kGroup16 ? 1 : 0];
      uint32_t low, high;
      if constexpr (K::kEight) {
        const uint4& piece = step.codes[u / 2 * 2 + r];
        low = word_of(piece, u % 2 * 2), high = word_of(piece, u % 2 * 2 + 1);
      } else {
        const uint32_t word = word_of(step.codes[r], u);
        low = word & 0x0F0F0F0Fu, high = word >> 4 & 0x0F0F0F0Fu;
      }
      products[0] = dp2a_high(v.y, low, dp2a_low(v.x, low, products[0]));
      second = dp2a_high(v.w, high, dp2a_low(v.z, high, second));
#pragma unroll
      for (int h = 0; h < K::kGroups; ++h) {
        sums[r] += step.scale(r, u, h, false) * static_cast<float>(products[h]);
        if constexpr (K::kMin) sums[r] += step.scale(r, u, h, true) * __int_as_float(offsets[u * K::kGroups + h]);
      }
    }
  }
  const float scale = input.scales[tile];
  acc[0] += scale * sums[0];
  acc[1] += scale * sums[1];
}

template <class K>
struct Batch {
  Step<K> steps[K::kBatch][K::kGates];
};

// Loads the steps of one warp in order, across the ends of tiles.
template <class K, Shape kShape>
struct Loader {
  const Params& p;
  const int lane, part, stride;
  int tile, step;
  const char *codes[K::kGates], *scales[K::kGates];

  __device__ Loader(const Params& params, int lane_of, int part_of, int first, int stride_of)
      : p(params), lane(lane_of), part(part_of), stride(stride_of), tile(first), step(part_of) {
    aim();
  }
  __device__ __forceinline__ void aim() {
    const Shape s = shape_of<kShape>(p);
    if (tile >= s.n_tiles) return;
    const int job = K::kGates == 1 ? job_of(s, tile) : 0;
    const int64_t first = int64_t{tile - pick(s.first_tile, job)} * s.n_steps;
#pragma unroll
    for (int j = 0; j < K::kGates; ++j) {
      const PackedWeight& w = p.jobs[job + j].w;
      codes[j] = static_cast<const char*>(w.data) + first * K::kTileBytes + 16 * lane;
      scales[j] = static_cast<const char*>(w.scales) + first * K::kScaleTileBytes + lane / 4 * (4 * K::kScaleWords);
    }
  }
  __device__ __forceinline__ void load(Batch<K>& batch) {
    const Shape s = shape_of<kShape>(p);
    if (tile >= s.n_tiles) return;
#pragma unroll
    for (int b = 0; b < K::kBatch; ++b) {
      const int64_t at = step + b * s.split;
      if (b > 0 && at >= s.n_steps) break;
#pragma unroll
      for (int j = 0; j < K::kGates; ++j)
        batch.steps[b][j].load(codes[j] + at * K::kTileBytes, scales[j] + at * K::kScaleTileBytes);
    }
    step += K::kBatch * s.split;
    if (step >= s.n_steps) {
      step = part;
      tile += stride;
      aim();
    }
  }
};

template <class K, Shape kShape>
__device__ __forceinline__ void run(const Params& p) {
  extern __shared__ __align__(16) char shared[];                             // the activations
  __shared__ float sums[2][kMaxWarps * K::kGates * kTileRows], reduce[33];   // sums: one half written, one read
  const Shape s = shape_of<kShape>(p);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int at_once = s.n_warps / s.split, local = warp / s.split, part = warp % s.split,
            stride = static_cast<int>(gridDim.x) * at_once;
  let_next_start();
  Loader<K, kShape> loader(p, lane, part, static_cast<int>(blockIdx.x) * at_once + local, stride);
  if (part == 0 && lane < K::kGates && loader.tile < s.n_tiles) {
    const int job = K::kGates == 1 ? job_of(s, loader.tile) : lane;
    prefetch_tile(p.jobs[job].w, loader.tile - pick(s.first_tile, job));
  }
  Batch<K> next;
  loader.load(next);
  const Input<K> input(shared, s.n_steps);
#pragma unroll 1
  for (int pass = s.warms_instruction_cache ? 0 : 1; pass < 2; ++pass) {
    const bool real = pass == 1;
    if (real) wait_for_previous();
    stage<K, kShape>(input, p, reduce, real);
    __syncthreads();
    int half_of_sums = 0;
    for (int first = static_cast<int>(blockIdx.x) * at_once; first < s.n_tiles; first += stride, half_of_sums ^= 1) {
      const int tile = first + local;
      float acc[K::kGates][2] = {};
      if (tile < s.n_tiles) {
        for (int step = part; step < s.n_steps; step += K::kBatch * s.split) {
          const Batch<K> batch = next;
          if (real) loader.load(next);
#pragma unroll
          for (int b = 0; b < K::kBatch; ++b) {
            if (b > 0 && step + b * s.split >= s.n_steps) break;
#pragma unroll
            for (int j = 0; j < K::kGates; ++j) use(acc[j], batch.steps[b][j], input, step + b * s.split, lane % 4);
          }
          if (!real) break;
        }
      }
#pragma unroll
      for (int j = 0; j < K::kGates; ++j) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          acc[j][r] += __shfl_xor_sync(0xFFFFFFFFu, acc[j][r], 1);
          acc[j][r] += __shfl_xor_sync(0xFFFFFFFFu, acc[j][r], 2);
          if (lane % 4 == 0) sums[half_of_sums][(warp * K::kGates + j) * kTileRows + lane / 4 + 8 * r] = acc[j][r];
        }
      }
      __syncthreads();
      if (tile < s.n_tiles) write_tile<K::kGates, kShape>(p, 1, sums[half_of_sums], local, tile, 1.0f, real);
      if (!real) break;
    }
  }
}

}  // namespace ingot::cuda::dot_codes_kernel
