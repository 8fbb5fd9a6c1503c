// Copies to shared memory that do not wait.
#pragma once
#include "backend/cuda/launch.cuh"

namespace ingot::cuda::recurrence {

// Copies a float, or zero if `in` is false.
__device__ __forceinline__ void copy_float(float* to, const float* from, bool in) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(in ? 4 : 0)
               : "memory");
}

// Copies 16 bytes, or zeros if `in` is false.
__device__ __forceinline__ void copy16(void* to, const void* from, bool in) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(in ? 16 : 0)
               : "memory");
}

// Ends a group of copies.
__device__ __forceinline__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits for all groups but the last n.
template <int n>
__device__ __forceinline__ void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
}

}  // namespace ingot::cuda::recurrence
