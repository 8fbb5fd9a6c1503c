// Products of tiles in shared memory on the tensor cores, for the recurrences that process many tokens at once.
#pragma once
#include "backend/cuda/recurrence/copies.cuh"

namespace ingot::cuda::recurrence {

// Loads four 8 x 8 matrices of halves; the second function transposes them.
__device__ __forceinline__ void load_matrices(uint32_t (&v)[4], const half* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(shared_address(at)));
}
__device__ __forceinline__ void load_transposed(uint32_t (&v)[4], const half* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "r"(shared_address(at)));
}

// The address that a lane passes to ldmatrix for an operand of mma(), at a row and column of a matrix in shared memory.
// a is 16 x 16: place_of_a for a matrix stored as a; place_of_transposed_a for its transpose [columns of a, rows]. b
// is 16 deep and 16 wide, two operands: place_of_b for [depth, width], place_of_transposed_b for [width, depth].
__device__ __forceinline__ const half* place_of_a(const half* m, int stride, int row, int column, int lane) {
  return m + (row + lane % 16) * stride + column + lane / 16 * 8;
}
__device__ __forceinline__ const half* place_of_transposed_a(const half* m, int stride, int row, int column, int lane) {
  return m + (column + lane % 8 + lane / 16 * 8) * stride + row + lane / 8 % 2 * 8;
}
__device__ __forceinline__ const half* place_of_b(const half* m, int stride, int depth, int width, int lane) {
  return m + (depth + lane % 16) * stride + width + lane / 16 * 8;
}
__device__ __forceinline__ const half* place_of_transposed_b(const half* m, int stride, int depth, int width,
                                                             int lane) {
  return m + (width + lane % 8 + lane / 16 * 8) * stride + depth + lane / 8 % 2 * 8;
}

__device__ __forceinline__ void multiply(float (&low)[4], float (&high)[4], const uint32_t (&a)[4],
                                         const uint32_t (&b)[4]) {
  mma(low, a[0], a[1], a[2], a[3], b[0], b[1]);
  mma(high, a[0], a[1], a[2], a[3], b[2], b[3]);
}

__device__ __forceinline__ uint32_t pair_of(float a, float b) {
  return bits_of(__halves2half2(from_float<half>(a), from_float<half>(b)));
}

__device__ __forceinline__ uint2 halves_of(const float4& v) { return make_uint2(pair_of(v.x, v.y), pair_of(v.z, v.w)); }

}  // namespace ingot::cuda::recurrence
