#include "backend/cuda/cuda_device.h"
#include "backend/cuda/matmul/wgmma.cuh"
#include "backend/cuda/memory.h"

namespace ingot::cuda {
namespace {

constexpr int kThreadsWithWgmma = 64;

// Never launched. Its launch bound shows whether the code that the driver chose has wgmma.
__global__ void __launch_bounds__(INGOT_WGMMA ? kThreadsWithWgmma : 32) bounds_of_code() {}

}  // namespace

bool finds_hopper_code() {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, bounds_of_code), "cudaFuncGetAttributes");
  return attributes.maxThreadsPerBlock == kThreadsWithWgmma;
}

}  // namespace ingot::cuda
