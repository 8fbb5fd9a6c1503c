// Thread block clusters in PTX (PTX ISA, "mapa", "st.async", "cp.async.bulk", "mbarrier"): blocks that run at the same
// time and write to each other's shared memory. A barrier in the receiving block counts the bytes that arrive.
#pragma once
#include <cstdint>

#include "backend/cuda/matmul/wgmma.cuh"

namespace ingot::cuda::cluster {

__device__ __forceinline__ int rank_of_block() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// A barrier for all threads of the cluster.
__device__ __forceinline__ void sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address of the same place in another block's shared memory.
__device__ __forceinline__ uint32_t place_in(uint32_t address, int rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// Sends 16 or 8 bytes to one block, whose barrier counts them.
__device__ __forceinline__ void send(uint32_t to, const uint4& v, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void send(uint32_t to, const uint2& v, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(to), "r"(v.x),
               "r"(v.y), "r"(barrier)
               : "memory");
}

// Copies global memory to this block's shared memory. `bytes` and both addresses are multiples of 16.
__device__ __forceinline__ void fetch(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

}  // namespace ingot::cuda::cluster
