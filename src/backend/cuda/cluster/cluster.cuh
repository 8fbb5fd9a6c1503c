// Thread block clusters, as PTX has them (PTX ISA, "mapa", "st.async", "cp.async.bulk", "mbarrier"): blocks that run
// side by side, write into each other's shared memory, and hear of what was written by bytes that a barrier of their
// own counts.
#pragma once
#include <cstdint>

#include "backend/cuda/matmul/wgmma.cuh"

namespace ingot::cuda::cluster {

__device__ __forceinline__ int rank_of_block() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// All threads of all blocks.
__device__ __forceinline__ void sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same place in the shared memory of another block.
__device__ __forceinline__ uint32_t place_in(uint32_t address, int rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}

// 16 or 8 bytes to places of one block, whose barrier counts them.
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

// Bytes of global memory, a multiple of 16 on 16, to this block's shared memory.
__device__ __forceinline__ void fetch(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
}

}  // namespace ingot::cuda::cluster
