// The activations of a product. Warps do not share them. A warp uses the same columns in all its units, so it reads,
// converts and keeps these columns itself, and waits for no other warp. The norm's common factor is applied to the
// results instead.
//
// For codes, activations become 16-bit integers with a scale for each step. The tensor core multiplies the high and the
// low byte as two columns. Its 8 columns are those of the four units of 32 columns in a step. In the product of one
// unit, the columns of the other units are zeros, so one accumulator holds the sums of all units.
#pragma once
#include "backend/cuda/grid/stream.cuh"
#include "backend/cuda/matmul/code_bytes.cuh"
#include "backend/cuda/matmul/matvec_step.cuh"

namespace ingot::cuda::grid {

using code_bytes::byte_order, code_bytes::ByteOrder, code_bytes::bytes_of;
using matvec_step::Kind;

// One thread's view of its block.
template <class C>
struct Block {
  static constexpr Places kAt = places_of(C::kShape);
  const Params& p;
  char* const shared;
  const uint32_t* table;  // pairs of codebook entries: bytes, or with several rows halves
  // Sums of squares of the activations: [kWarps, max_rows]; if a product takes a row at a time, [kWarps] for even rows,
  // then for odd rows.
  float* squares;
  float* angles;         // [rot_dim]: of the row of the block's task of attention
  Choice* choice;        // [max_rows]: the experts of the layer
  float* fresh;          // with experts: the block's part of the residual stream (RouterShare)
  uint32_t kv_barriers;  // shared address of [kWarps, 2]: of the copies of keys and values of each warp
  const int warp, lane;

  // The data of a layer is in shared memory, because the first access to constant memory is slow.
  __device__ __forceinline__ Layer& layer(int i) const { return reinterpret_cast<Layer*>(shared + kAt.layers)[i % 2]; }
  __device__ __forceinline__ void copy_layer(int i) const {
    if (threadIdx.x < kLayerBytes / 8)
      reinterpret_cast<uint64_t*>(&layer(i))[threadIdx.x] =
          reinterpret_cast<const uint64_t*>(&p.layers[i])[threadIdx.x];
  }
  // The warp's activations: [n_chunks, input_bytes].
  template <int kPhase>
  __device__ __forceinline__ char* input() const {
    constexpr int kBytes = plan_of(C::kShape, kPhase).n_chunks * C::kShape.kinds[first_weight(kPhase)].input_bytes();
    return shared + kAt.input + warp * kBytes;
  }
  // Sums of a batch of units: [groups of units, gates, kWarps, 16 * max_rows].
  template <int kPhase>
  __device__ __forceinline__ float* sums(int turn) const {
    return reinterpret_cast<float*>(shared + kAt.sums + bytes_before_sums(C::kShape, kPhase) +
                                    turn * sum_bytes(C::kShape, plan_of(C::kShape, kPhase), kPhase));
  }
  __device__ __forceinline__ void sync_grid() const {
    sync_grid([] {});
  }
  template <class Meanwhile>
  __device__ __forceinline__ void sync_grid(Meanwhile&& meanwhile) const {
    grid::sync_grid(p.barrier, C::kShape.n_blocks, meanwhile);
  }
};

// Loads from shared memory at each call, so that no registers keep the values.
__device__ __forceinline__ uint4 load_again(uint32_t address) {
  uint4 v;
  asm volatile("ld.volatile.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address));
  return v;
}
// Returns v. The compiler cannot move computations from the result out of the loop over layers. It would keep their
// results for all phases, in more registers than there are.
__device__ __forceinline__ int recomputed(int v) {
  asm volatile("" : "+r"(v));
  return v;
}

// The activations of one step in shared memory, for codes.
struct CodesInput {
  uint2 bytes[32];  // of each lane: the high or low bytes of 8 columns
  int2 totals[4];   // of each unit: the sums of its halves, or their sum and 0; times -zero if weights have no minima
  float scale;
  int none[3];
};
// For 8-bit floats.
struct Float8Input {
  half x[kTileCols];
  float scale;
  int none[3];
};
static_assert(sizeof(CodesInput) == WeightKind{}.input_bytes() &&
              sizeof(Float8Input) == WeightKind{Layout::kFloat8}.input_bytes());

__device__ __forceinline__ uint32_t pair_of(float low, float high) {
  return bits_of(__halves2half2(__float2half_rn(low), __float2half_rn(high)));
}
__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xFF800000); }
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) v = max_or_nan(v, __shfl_xor_sync(0xFFFFFFFFu, v, i));
  return v;
}

// 4 columns of a row that other blocks have written.
__device__ __forceinline__ float4 load4(const float* row, int k) {
  return __ldcg(reinterpret_cast<const float4*>(row + k));
}
__device__ __forceinline__ float4 load4(const half* row, int k) {
  const uint2 v = __ldcg(reinterpret_cast<const uint2*>(row + k));
  const float2 low = __half22float2(half2_of(v.x)), high = __half22float2(half2_of(v.y));
  return {low.x, low.y, high.x, high.y};
}
__device__ __forceinline__ float dot(const float4& a, const float4& b) {
  return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
__device__ __forceinline__ float4 times(const float4& a, const float4& b) {
  return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}
__device__ __forceinline__ float largest(const float4& v) {
  return max_or_nan(max_or_nan(fabsf(v.x), fabsf(v.y)), max_or_nan(fabsf(v.z), fabsf(v.w)));
}

// The largest of numbers without a sign, or NaN: their bits have the same order.
__device__ __forceinline__ float warp_max_size(float v) {
  return __uint_as_float(__reduce_max_sync(0xFFFFFFFFu, __float_as_uint(v)));
}

template <class K>  // Kind
__device__ __forceinline__ void put_codes(CodesInput& to, const float4 (&v)[2], int zero, int lane) {
  const float amax = warp_max_size(max_or_nan(largest(v[0]), largest(v[1])));
  const code_bytes::LaneBytes bytes = code_bytes::bytes_of_columns<K::kLayout>(v, code_bytes::inverse_of(amax), lane);
  to.bytes[lane] = bytes.ordered;
  if constexpr (K::kMin || K::kZero) {
    const int2 totals = code_bytes::totals_of<K::kGroup16>(bytes.first, bytes.second);
    const int factor = K::kMin ? 1 : -zero;
    if (lane % 8 == 0) to.totals[lane / 8] = {factor * totals.x, factor * totals.y};
  }
  if (lane == 0) to.scale = amax * (1.0f / code_bytes::kLargest);
}

// The scale is a power of two, so only the range changes. Above 2^126, its inverse would not be a normal number.
__device__ __forceinline__ void put_halves(Float8Input& to, const float4& v, int lane) {
  const uint32_t amax = __float_as_uint(warp_max_size(largest(v))), scale = min(amax & 0x7F800000u, 0x7E800000u);
  const float inverse = __uint_as_float(0x7F000000u - scale);
  *reinterpret_cast<uint2*>(to.x + 4 * lane) = {pair_of(v.x * inverse, v.y * inverse),
                                                pair_of(v.z * inverse, v.w * inverse)};
  if (lane == 0) to.scale = __uint_as_float(scale);
}

// The columns of one warp: pieces of 4 columns of each chunk. The weights of the norm are loaded before the row is
// complete.
template <class C, int kPhase>
struct Input {
  static constexpr PhasePlan kPlan = plan_of(C::kShape, kPhase);
  static constexpr WeightKind kKind = C::kShape.kinds[first_weight(kPhase)];
  static constexpr bool kNorm = kPhase == kQkv || kPhase == kGateUp, kFloat8 = kKind.is_float8();
  static constexpr int kPieces = kFloat8 ? 1 : 2, kChunks = kPlan.n_chunks;
  const Block<C>& b;
  const int part;
  float4 w[kNorm ? kChunks : 1][kPieces];

  // With codes, the four lanes of a unit with the high bytes and the four with the low bytes read the same columns.
  __device__ __forceinline__ int column(int chunk, int piece) const {
    const int step = chunk * kPlan.parts + part;
    return kFloat8 ? step * kTileCols + 4 * b.lane : step * kTileCols + b.lane / 8 * 32 + b.lane % 4 * 4 + 16 * piece;
  }
  __device__ __forceinline__ bool has(int chunk, int piece) const { return column(chunk, piece) < kPlan.n_in; }
  __device__ __forceinline__ Input(const Block<C>& block, const float* weight)
      : b(block), part(block.warp % kPlan.parts) {
    if constexpr (kNorm) {
#pragma unroll
      for (int i = 0; i < kChunks; ++i)
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece)
          w[i][piece] = has(i, piece) ? __ldg(reinterpret_cast<const float4*>(weight + column(i, piece))) : float4{};
    }
  }
  // Writes the squares of the warp's columns to squares[warp].
  template <class T>
  __device__ __forceinline__ void stage(const T* row, float* squares_of_warps) const {
    char* const to = b.template input<kPhase>();
    float squares = 0;
    constexpr int kAtOnce = kChunks < 8 ? kChunks : 7;
#pragma unroll
    for (int first = 0; first < kChunks; first += kAtOnce) {
      float4 v[kAtOnce][kPieces];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece)
          v[i][piece] = first + i < kChunks && has(first + i, piece) ? load4(row, column(first + i, piece)) : float4{};
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= kChunks) break;
        if constexpr (kNorm) {
#pragma unroll
          for (int piece = 0; piece < kPieces; ++piece) {
            squares += dot(v[i][piece], v[i][piece]);
            v[i][piece] = times(v[i][piece], w[first + i][piece]);
          }
        }
        char* const at = to + (first + i) * kKind.input_bytes();
        if constexpr (kFloat8) {
          put_halves(*reinterpret_cast<Float8Input*>(at), v[i][0], b.lane);
        } else {
          put_codes<Kind<kKind.layout, kKind.has_min, kKind.group16>>(*reinterpret_cast<CodesInput*>(at), v[i],
                                                                      kKind.zero, b.lane);
        }
      }
    }
    if constexpr (kNorm) {
      squares = warp_sum(squares) * (kFloat8 ? 1.0f : 0.5f);  // with codes, two lanes read each column
      if (b.lane == 0) squares_of_warps[b.warp] = squares;
    }
    __syncwarp();
  }
};

}  // namespace ingot::cuda::grid
