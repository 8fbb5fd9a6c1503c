// Device code that all kernels share: elements of both activation types, reductions, and the tensor core's 16 x 8 x 16
// product. NVRTC (specialised.h) compiles it too, with its own cuda_fp16.h (rtc_half.h). launch.cuh has the rest.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/matmul/packed_weight.h"

namespace ingot::cuda {

// The architecture that this pass of the compiler makes code for: 900 for Hopper; 0 in the host's pass.
#ifdef __CUDA_ARCH__
inline constexpr int kArch = __CUDA_ARCH__;
#else
inline constexpr int kArch = 0;
#endif

__device__ __forceinline__ float to_float(float v) { return v; }
__device__ __forceinline__ float to_float(half v) { return __half2float(v); }

template <class T>
__device__ __forceinline__ T from_float(float v);
template <>
__device__ __forceinline__ float from_float<float>(float v) {
  return v;
}
// Saturates: an activation beyond f16's range stays finite. NaN stays NaN.
template <>
__device__ __forceinline__ half from_float<half>(float v) {
  return __float2half_rn(v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v);
}

__device__ __forceinline__ uint32_t bits_of(half2 v) { return *reinterpret_cast<uint32_t*>(&v); }
__device__ __forceinline__ half2 half2_of(uint32_t bits) { return *reinterpret_cast<half2*>(&bits); }
__device__ __forceinline__ uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Four E4M3 numbers as halves. NaN stays NaN, but becomes 480 before Ada, which has no instruction for this.
__device__ __forceinline__ uint2 halves_of_float8(uint32_t four) {
  uint2 v;
  if constexpr (kArch >= 890) {
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}"
        : "=r"(v.x), "=r"(v.y)
        : "r"(four));
  } else {
    const auto two = [&](uint32_t bytes) {  // where an f16 has sign, exponent and mantissa, they are the number * 2^-8
      return bits_of(__hmul2(half2_of((bytes & 0x80008000u) | (bytes >> 1 & 0x3F803F80u)), __float2half2_rn(256.0f)));
    };
    v.x = two(__byte_perm(four, 0, 0x1404)), v.y = two(__byte_perm(four, 0, 0x3424));
  }
  return v;
}

__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int i = 16; i > 0; i /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, i);
  return v;
}

// The sum over a block of whole warps; every thread gets the result. `shared` holds 33 floats.
__device__ __forceinline__ float block_sum(float v, float* shared, int n_warps) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  v = warp_sum(v);
  if (lane == 0) shared[warp] = v;
  __syncthreads();
  if (warp == 0) {
    v = warp_sum(lane < n_warps ? shared[lane] : 0.0f);
    if (lane == 0) shared[32] = v;
  }
  __syncthreads();
  v = shared[32];
  __syncthreads();
  return v;
}
__device__ __forceinline__ float block_sum(float v, float* shared) {
  return block_sum(v, shared, static_cast<int>(blockDim.x) / 32);
}

// Computes the RMS norm of one row of n elements with all n_threads of the block. Calls put(i, v) with elements 4i to
// 4i + 3, and with zeros up to n_put. Neighbouring threads put neighbouring elements. If `writes`, block 0 also writes
// norm.y.
struct RowNorm {
  const float* x;  // null: no norm
  const float* weight;
  half* y;
  float eps;
};

template <class Put>
__device__ __forceinline__ void norm_row(const RowNorm& norm, int n, int n_put, float* shared /* [33] */, bool writes,
                                         Put&& put, int n_threads) {
  const float4 *x = reinterpret_cast<const float4*>(norm.x), *weight = reinterpret_cast<const float4*>(norm.weight);
  const auto square = [](const float4& v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; };
  const auto inverse_of = [&](float squares) {
    return 1.0f / sqrtf(block_sum(squares, shared, n_threads / 32) / static_cast<float>(n) + norm.eps);
  };
  const auto write = [&](int i, const float4& v, const float4& w, float inverse) {
    const half2 low = __halves2half2(from_float<half>(v.x * inverse * w.x), from_float<half>(v.y * inverse * w.y));
    const half2 high = __halves2half2(from_float<half>(v.z * inverse * w.z), from_float<half>(v.w * inverse * w.w));
    const uint2 packed = make_uint2(bits_of(low), bits_of(high));
    put(i, packed);
    if (writes && blockIdx.x == 0 && 4 * i < n) reinterpret_cast<uint2*>(norm.y)[i] = packed;
  };
  const int first = static_cast<int>(threadIdx.x), step = n_threads;
  if (n_put <= 4 * step) {  // short code: for short rows, even the instruction fetch takes time
    const bool in = 4 * first < n;
    const float4 v = in ? __ldcg(x + first) : float4{}, w = in ? weight[first] : float4{};
    const float inverse = inverse_of(square(v));
    if (4 * first < n_put) write(first, v, w, inverse);
    return;
  }
  if (n_put <= 16 * step) {  // the whole row at once
    float4 v[4], w[4];
    float squares = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int i = first + j * step;
      const bool in = 4 * i < n;
      v[j] = in ? __ldcg(x + i) : float4{}, w[j] = in ? weight[i] : float4{};
      squares += square(v[j]);
    }
    const float inverse = inverse_of(squares);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (4 * (first + j * step) < n_put) write(first + j * step, v[j], w[j], inverse);
    return;
  }
  float squares = 0;
#pragma unroll 4
  for (int i = first; 4 * i < n; i += step) squares += square(__ldcg(x + i));
  const float inverse = inverse_of(squares);
#pragma unroll 4
  for (int i = first; 4 * i < n_put; i += step) {
    const bool in = 4 * i < n;
    write(i, in ? __ldcg(x + i) : float4{}, in ? weight[i] : float4{}, inverse);
  }
}
template <class Put>
__device__ __forceinline__ void norm_row(const RowNorm& norm, int n, int n_put, float* shared, bool writes, Put&& put) {
  norm_row(norm, n, n_put, shared, writes, put, static_cast<int>(blockDim.x));
}

// act: numbered as in Activation. The quotient is within 2 ulp; an exact one took most of the time in which a product
// of many rows writes its outputs.
__device__ __forceinline__ float activate(float x, int act) {
  if (act == 4) return x > 0 ? x * x : 0.0f;
  if (act == 5) return __fdividef(1.0f, 1.0f + __expf(-x));
  if (act == 0) return __fdividef(x, 1.0f + __expf(-x));
  if (act == 2) return 0.5f * x * (1.0f + erff(x * 0.70710678f));
  return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}

// The activation of a feed-forward layer's gate, times `up`.
__device__ __forceinline__ float act_mul(float gate, float up, int act) {
  if (act != 3) return activate(gate, act) * up;
  const float g = fminf(gate, 7.0f), u = fminf(fmaxf(up, -7.0f), 7.0f);
  return __fdividef(g, 1.0f + __expf(-1.702f * g)) * (u + 1.0f);
}

// c [16 x 8] += a [16 x 16] b [16 x 8]. With g = lane / 4 and t = lane % 4, a lane holds:
// a: rows g, g + 8, g, g + 8; columns 2t and 2t + 1, plus 8 in a2 and a3.
// b: column g; rows 2t and 2t + 1, plus 8 in b1.
// c: row g, columns 2t and 2t + 1; then row g + 8, the same columns.
__device__ __forceinline__ void mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                    uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// d = c + the product of a and b.
__device__ __forceinline__ void mma_add(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                        uint32_t b1, const float (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
// d = the product of a and b.
__device__ __forceinline__ void mma_new(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                        uint32_t b1) {
  mma_add(d, a0, a1, a2, a3, b0, b1, {0, 0, 0, 0});
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Load two or four 8 x 8 matrices of halves from shared memory, as stored or transposed. Lanes 8i to 8i + 7 have the
// addresses of the rows of matrix i.
__device__ __forceinline__ void load_matrices(uint32_t (&v)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(address));
}
__device__ __forceinline__ void load_matrices(uint32_t (&v)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : "r"(address));
}
__device__ __forceinline__ void load_transposed(uint32_t (&v)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(address));
}
__device__ __forceinline__ void load_transposed(uint32_t (&v)[2], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(v[0]), "=r"(v[1]) : "r"(address));
}

// Returns sum + the dot product of 8 halves with 8 halves.
__device__ __forceinline__ float dot8(const uint4& a, const uint4& b, float sum) {
  const uint32_t x[4] = {a.x, a.y, a.z, a.w}, y[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 u = __half22float2(half2_of(x[i])), v = __half22float2(half2_of(y[i]));
    sum = fmaf(u.x, v.x, sum);
    sum = fmaf(u.y, v.y, sum);
  }
  return sum;
}

// Loads 16 bytes that are read only once.
__device__ __forceinline__ uint4 load_stream(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// Overlapping launches (programmatic dependent launch, on Hopper and newer): a kernel started by launch() may begin
// while the previous kernel still runs. It first calls start_dependent(), or it calls let_next_start() and later
// wait_for_previous(). Before the wait it may read only what no kernel of the step writes: weights (except unpack.cu:
// Matvec::decoded), the batch, and cached keys and values of earlier steps. A step begins with the upload of its batch,
// which waits for all kernels before it. Every kernel waits for the end of the previous kernel, so the order also holds
// for longer chains.
__device__ __forceinline__ void let_next_start() {
  if constexpr (kArch >= 900) asm volatile("griddepcontrol.launch_dependents;");
}
__device__ __forceinline__ void wait_for_previous() {
  if constexpr (kArch >= 900) asm volatile("griddepcontrol.wait;" ::: "memory");
}
__device__ __forceinline__ void start_dependent() {
  let_next_start();
  wait_for_previous();
}

__device__ __forceinline__ float max_or_nan(float a, float b) {
  float c;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
  return c;
}

// c [8 x 8] += a [8 x 16] b [16 x 8]: mma() with zeros in the lower rows.
__device__ __forceinline__ void mma_upper(float (&c)[2], uint32_t a0, uint32_t a2, uint32_t b0, uint32_t b1) {
  asm volatile(
      "{\n.reg .f32 none<2>;\n"
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,none0,none1}, {%2,%3,%4,%3}, {%5,%6}, {%0,%1,%7,%7};\n}"
      : "+f"(c[0]), "+f"(c[1])
      : "r"(a0), "r"(0), "r"(a2), "r"(b0), "r"(b1), "f"(0.0f));
}

// c [16 x 8] += a [16 x 32] of bytes b [32 x 8] of signed bytes. Lane t of four has columns 4t to 4t + 3 of a, the same
// rows of b, and these plus 16.
template <bool kSigned>
__device__ __forceinline__ void mma_bytes(int (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                          uint32_t b1) {
  if constexpr (kSigned) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  } else {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
  }
}

// A barrier for all threads of a cluster that have not ended.
__device__ __forceinline__ void cluster_barrier() {
  if constexpr (kArch >= 900)
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// Reads four floats from the shared memory of the cluster's block with this rank. `address` is the same place in this
// block.
__device__ __forceinline__ float4 load_of_block(uint32_t address, int rank) {
  float4 v{};
  if constexpr (kArch >= 900) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(there));
  }
  return v;
}

// A short kernel spends most of its time fetching its own instructions. So kernels of a decode step make a warm-up
// pass: before the wait, they run their code once on whatever is in memory, and write nothing. The second pass, after
// the wait, finds the instructions in the cache. The loop over the passes, `for (int pass = warms_instruction_cache ? 0
// : 1; pass < 2; ++pass)`, must not be unrolled. Data that both passes read must bypass the L1 cache (__ldcg). Only
// kernels with few blocks do this, so that the blocks of the next kernel have room and time next to them.

}  // namespace ingot::cuda
