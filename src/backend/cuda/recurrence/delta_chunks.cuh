// Shared by the two kernels of the chunked delta rule. delta_chunks.cu explains both kernels, and where the first
// kernel stores its results for the second kernel, delta_walk.cu.
#pragma once
#include "backend/cuda/launch.cuh"
#include "backend/cuda/recurrence/recurrence.cuh"

namespace ingot::cuda::recurrence {

inline constexpr int kTokens = 64, kDim = 128;  // tokens in a chunk; key and value dimension
inline constexpr int kChunkWarps = 8, kChunkThreads = 32 * kChunkWarps;
inline constexpr int kRow = kDim + 8, kSquare = kTokens + 8;  // row strides in halves, against bank conflicts

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

// The i-th value head of a key head, and the addresses of its data.
__device__ __forceinline__ int value_head(const Delta& p, int key_head, int i) {
  return p.tiled ? i * p.n_key_heads + key_head : key_head * (p.n_heads / p.n_key_heads) + i;
}
struct Places {
  float *q, *k, *v;  // rows of token 0
  half* p;

  __device__ Places(const Delta& d, int key_head, int i)
      : q(d.qkv + key_head * kDim),
        k(q + d.n_key_heads * kDim),
        v(d.qkv + 2 * d.n_key_heads * kDim + value_head(d, key_head, i) * kDim),
        p(reinterpret_cast<half*>(i < 2 ? q : k) + kDim + i % 2 * kTokens) {}
};

// delta_walk.cu
size_t walk_bytes();  // of shared memory
void walk_chunks(const Delta& p, int n_seqs, Device& device);

}  // namespace ingot::cuda::recurrence
