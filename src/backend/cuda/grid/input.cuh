// The activations of a product. Warps do not share them. A warp uses the same columns in all its units, so it reads,
// converts and keeps these columns itself, and waits for no other warp. The norm's common factor is applied to the
// results instead.
//
// For codes, activations become 16-bit integers with a scale for each step. The tensor core multiplies the high and the
// low byte as two columns. Its 8 columns are those of the four units of 32 columns in a step. In the product of one
// unit, the columns of the other units are zeros, so one accumulator holds the sums of all units.
#pragma once
#include "backend/cuda/grid/stream.cuh"

namespace ingot::cuda::grid {

// One thread's view of its block.
template <class C>
struct Block {
  static constexpr Places kAt = places_of(C::kShape);
  const Params& p;
  char* const shared;
  const uint32_t* table;  // bytes of codebook entries
  float* squares;         // [kWarps]: sums of squares of the activations
  Choice* choice;         // the experts of the layer
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
  // Sums of a batch of units: [groups of units, gates, kWarps, 16].
  template <int kPhase>
  __device__ __forceinline__ float* sums(int turn) const {
    return reinterpret_cast<float*>(shared + kAt.sums + turn * sum_bytes(plan_of(C::kShape, kPhase), kPhase));
  }
  __device__ __forceinline__ void sync_grid() const {
    sync_grid([] {});
  }
  template <class Meanwhile>
  __device__ __forceinline__ void sync_grid(Meanwhile&& meanwhile) const {
    grid::sync_grid(p.barrier, C::kShape.n_blocks, meanwhile);
  }
};

// The order of a lane's 8 codes as bytes of two words. The digits of a word are its codes; a mask has codes 0 to 3. A
// mask of nibbles selects every other code (packed_weight.h).
struct ByteOrder {
  uint32_t first, second, first_mask, second_mask;
};
INGOT_HD constexpr ByteOrder byte_order(Layout layout) {
  return layout == Layout::kCodes4      ? ByteOrder{0x5140, 0x7362, 0x00FF00FF, 0x00FF00FF}
         : layout == Layout::kCodesE2M1 ? ByteOrder{0x6420, 0x7531, 0x0000FFFF, 0x0000FFFF}
                                        : ByteOrder{0x3210, 0x7654, 0xFFFFFFFF, 0};
}

// The activations of one step in shared memory, for codes.
struct CodesInput {
  uint2 bytes[32];  // of each lane: the high or low bytes of 8 columns
  int2 totals[4];   // of each unit: sums of its halves
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
template <int kFirst>
__device__ __forceinline__ float warp_max(float v) {
#pragma unroll
  for (int i = kFirst; i > 0; i /= 2) v = max_or_nan(v, __shfl_xor_sync(0xFFFFFFFFu, v, i));
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

__device__ __forceinline__ void put_codes(CodesInput& to, const float4 (&v)[2], const ByteOrder& order, int lane) {
  constexpr float kLargest = 127 * 256;
  const float most = warp_max<16>(max_or_nan(largest(v[0]), largest(v[1])));
  const float inverse = most > 0 ? __fdividef(kLargest, most) : 0.0f;
  const float a[8] = {v[0].x, v[0].y, v[0].z, v[0].w, v[1].x, v[1].y, v[1].z, v[1].w};
  uint32_t bytes[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int q = __float2int_rn(a[i] * inverse);
    bytes[i] = static_cast<uint32_t>(lane & 4 ? q : (q + 128) >> 8);  // q = 256 * high + low, where low is signed too
  }
  const auto pack = [&](int i) {
    return __byte_perm(__byte_perm(bytes[i], bytes[i + 1], 0x0040), __byte_perm(bytes[i + 2], bytes[i + 3], 0x0040),
                       0x5410);
  };
  const uint32_t low = pack(0), high = pack(4);
  int2 total = {__dp4a(static_cast<int>(low), 0x01010101, 0), __dp4a(static_cast<int>(high), 0x01010101, 0)};
  if ((lane & 4) == 0) total.x *= 256, total.y *= 256;
#pragma unroll
  for (int i = 1; i <= 4; i *= 2) {
    total.x += __shfl_xor_sync(0xFFFFFFFFu, total.x, i);
    total.y += __shfl_xor_sync(0xFFFFFFFFu, total.y, i);
  }
  to.bytes[lane] = make_uint2(__byte_perm(low, high, order.first), __byte_perm(low, high, order.second));
  if (lane % 8 == 0) to.totals[lane / 8] = total;
  if (lane == 0) to.scale = most * (1.0f / kLargest);
}

// The scale is a power of two, so only the range changes.
__device__ __forceinline__ void put_halves(Float8Input& to, const float4& v, int lane) {
  const float most = warp_max<16>(largest(v));
  const float scale = most > 0 ? __uint_as_float(__float_as_uint(most) & 0x7F800000u) : 1.0f, inverse = 1.0f / scale;
  *reinterpret_cast<uint2*>(to.x + 4 * lane) = {pair_of(v.x * inverse, v.y * inverse),
                                                pair_of(v.z * inverse, v.w * inverse)};
  if (lane == 0) to.scale = scale;
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
  template <class T>
  __device__ __forceinline__ void stage(const T* row) const {
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
          put_codes(*reinterpret_cast<CodesInput*>(at), v[i], byte_order(kKind.layout), b.lane);
        }
      }
    }
    if constexpr (kNorm) {
      squares = warp_sum(squares) * (kFloat8 ? 1.0f : 0.5f);  // with codes, two lanes read each column
      if (b.lane == 0) b.squares[b.warp] = squares;
    }
    __syncwarp();
  }
};

}  // namespace ingot::cuda::grid
