#include <algorithm>

#include "backend/cuda/device.cuh"
#include "backend/cuda/ranks/one_shot.h"

namespace ingot::cuda {
namespace {

__device__ __forceinline__ uint64_t half_line(float v, uint32_t turn) {
  return uint64_t{turn} << 32 | __float_as_uint(v);
}
__device__ __forceinline__ void send(OneShotLine* to, float a, float b, uint32_t turn) {
  asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(half_line(a, turn)), "l"(half_line(b, turn))
               : "memory");
}
// Waits for a line of this turn. Ends the wait if a rank has failed; the numbers are wrong then.
__device__ __forceinline__ float2 receive(const OneShotLine* from, uint32_t turn, const int* stop) {
  uint64_t a, b;
  for (int i = 1;; ++i) {
    asm volatile("ld.volatile.global.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(from) : "memory");
    if (a >> 32 == turn && b >> 32 == turn) break;
    if (i % 4096 == 0 && *reinterpret_cast<const volatile int*>(stop) != 0) break;
  }
  return make_float2(__uint_as_float(static_cast<uint32_t>(a)), __uint_as_float(static_cast<uint32_t>(b)));
}

// A block sums `slice` floats, a multiple of four.
//
// A rank writes to a place again two turns later. By then the reader has read it: the reader's kernel of the turn
// between, whose numbers the rank has received, began after the end of the reader's kernel of the first turn.
__global__ void __launch_bounds__(kOneShotThreads) one_shot_kernel(OneShotPeers peers, float* x, int64_t x_stride,
                                                                   const float* y, int64_t cols, int64_t n, int slice) {
  start_dependent();
  const int block = static_cast<int>(blockIdx.x);
  const uint32_t turn = peers.turns[block] + 1;
  const int64_t begin = int64_t{block} * slice, end = min(begin + slice, n), own = begin + threadIdx.x * 4;
  const int64_t place = (int64_t{block} * kOneShotTurns + turn % kOneShotTurns) * peers.n_ranks;
  for (int64_t i = own; i < end; i += kOneShotPass) {
    const float4 v = *reinterpret_cast<const float4*>(y + i);
    for (int r = 0; r < peers.n_ranks; ++r) {
      if (r == peers.rank) continue;
      OneShotLine* to = peers.lines[r] + (place + peers.rank) * peers.lines_each + (i - begin) / 2;
      send(to, v.x, v.y, turn);
      send(to + 1, v.z, v.w, turn);
    }
  }
  for (int64_t i = own; i < end; i += kOneShotPass) {
    float4 sum = make_float4(0, 0, 0, 0);
    for (int r = 0; r < peers.n_ranks; ++r) {
      float4 part = *reinterpret_cast<const float4*>(y + i);
      if (r != peers.rank) {
        const OneShotLine* from = peers.lines[peers.rank] + (place + r) * peers.lines_each + (i - begin) / 2;
        const float2 low = receive(from, turn, peers.stop), high = receive(from + 1, turn, peers.stop);
        part = make_float4(low.x, low.y, high.x, high.y);
      }
      sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
    float4* to = reinterpret_cast<float4*>(x + i / cols * x_stride + i % cols);
    float4 old = *to;
    old.x += sum.x, old.y += sum.y, old.z += sum.z, old.w += sum.w;
    *to = old;
  }
  __syncthreads();  // all threads have read the turn
  if (threadIdx.x == 0) peers.turns[block] = turn;
}

}  // namespace

void one_shot(const OneShotPeers& peers, const Tensor& x, const Tensor& y, Device& device) {
  const int64_t n = y.rows * y.cols;
  const int64_t passes =
      std::max<int64_t>(1, (n + kOneShotPass * kOneShotBlocks - 1) / (kOneShotPass * kOneShotBlocks));
  const int64_t slice = passes * kOneShotPass;
  CHECK_LE(slice, 2 * peers.lines_each);
  launch(device, one_shot_kernel, blocks_for(n, static_cast<int>(slice)), kOneShotThreads, 0, peers, x.f32(), x.stride,
         static_cast<const float*>(y.f32()), y.cols, n, static_cast<int>(slice));
}

}  // namespace ingot::cuda
