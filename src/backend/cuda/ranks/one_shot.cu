#include <algorithm>

#include "backend/cuda/device.cuh"
#include "backend/cuda/ranks/one_shot.h"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ void tell(uint32_t* flag, uint32_t turn) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(turn) : "memory");
}
__device__ __forceinline__ uint32_t told(const uint32_t* flag) {
  uint32_t turn;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(turn) : "l"(flag) : "memory");
  return turn;
}

// A block sums `slice` floats, a multiple of four.
__global__ void __launch_bounds__(kThreads) one_shot_kernel(OneShotPeers peers, float* x, int64_t x_stride,
                                                            const float* y, int64_t cols, int64_t n, int slice) {
  const int block = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const uint32_t turn = peers.turns[block] + 1;
  const int64_t first = int64_t{block} * slice, end = min(first + slice, n);
  const int64_t place = (int64_t{block} * kOneShotTurns + turn % kOneShotTurns) * kOneShotFloats;
  float* own = peers.places[peers.rank] + place;
  for (int64_t i = first + thread * 4; i < end; i += kThreads * 4)
    *reinterpret_cast<float4*>(own + (i - first)) = *reinterpret_cast<const float4*>(y + i);
  __syncthreads();
  if (thread < peers.n_ranks && thread != peers.rank) {
    __threadfence_system();
    tell(peers.flags[thread] + block * kMaxPeers + peers.rank, turn);
    const uint32_t* flag = peers.flags[peers.rank] + block * kMaxPeers + thread;
    for (int i = 1; static_cast<int32_t>(told(flag) - turn) < 0; ++i)  // the other rank may already be in its next turn
      if (i % 4096 == 0 && *reinterpret_cast<const volatile int*>(peers.stop) != 0) break;
  }
  __syncthreads();
  for (int64_t i = first + thread * 4; i < end; i += kThreads * 4) {
    float4 sum = *reinterpret_cast<const float4*>(peers.places[0] + place + (i - first));
    for (int r = 1; r < peers.n_ranks; ++r) {
      const float4 part = *reinterpret_cast<const float4*>(peers.places[r] + place + (i - first));
      sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
    float* to = x + i / cols * x_stride + i % cols;
    float4 old = *reinterpret_cast<float4*>(to);
    old.x += sum.x, old.y += sum.y, old.z += sum.z, old.w += sum.w;
    *reinterpret_cast<float4*>(to) = old;
  }
  if (thread == 0) peers.turns[block] = turn;
}

}  // namespace

void one_shot(const OneShotPeers& peers, const Tensor& x, const Tensor& y, Device& device) {
  const int64_t n = y.rows * y.cols, at_once = kThreads * 4;
  const int64_t passes = std::max<int64_t>(1, (n + at_once * kOneShotBlocks - 1) / (at_once * kOneShotBlocks));
  const int64_t slice = passes * at_once;
  CHECK_LE(slice, kOneShotFloats);
  one_shot_kernel<<<static_cast<unsigned>((n + slice - 1) / slice), kThreads, 0, device.stream()>>>(
      peers, x.f32(), x.stride, y.f32(), y.cols, n, static_cast<int>(slice));
}

}  // namespace ingot::cuda
