#include "backend/cuda/memory.h"

#include <atomic>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/entry.h"
#include "base/device_lost.h"
#include "base/error.h"
#include "base/system.h"

namespace ingot::cuda {

namespace {

std::atomic<int> n_allocations_left{-1};  // allocations before one fails, for tests

bool allocation_fails() { return n_allocations_left >= 0 && n_allocations_left.fetch_sub(1) == 0; }

}  // namespace

void library::fail_allocation(int n) { n_allocations_left = n; }
int library::allocations_left() { return n_allocations_left; }

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error if possible
  size_t free = 0, total = 0;
  const bool lost = cudaMemGetInfo(&free, &total) != cudaSuccess;
  cudaGetLastError();
  const char *what = cudaGetErrorString(status), *name = cudaGetErrorName(status);
  if (lost)
    throw DeviceLost("CUDA: {} failed: {} ({}); this process can no longer use the GPU: start it again", call, what,
                     name);
  throw Error("CUDA: {} failed: {} ({})", call, what, name);
}

Memory::Memory(size_t bytes, Place place) : size_(bytes), place_(place) {
  if (bytes == 0) return;
  check(cudaGetDevice(&device_), "cudaGetDevice");
  const cudaError_t status = allocation_fails()        ? cudaErrorMemoryAllocation
                             : place == Place::kDevice ? cudaMalloc(&data_, bytes)
                                                       : cudaMallocHost(&data_, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    data_ = nullptr;
    size_t free = 0, total = 0;
    if (place == Place::kDevice) cudaMemGetInfo(&free, &total);
    if (total == 0)
      throw Error("the host cannot allocate {} of pinned memory: use a smaller batch", human_bytes(bytes));
    throw Error(
        "the GPU's memory is full: {} more are needed, but only {} of {} are free; use a smaller model, quantization, "
        "context or batch",
        human_bytes(bytes), human_bytes(free), human_bytes(total));
  }
  check(status, place == Place::kDevice ? "cudaMalloc" : "cudaMallocHost");
}

Memory& Memory::operator=(Memory&& other) noexcept {
  if (this == &other) return *this;
  release();
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  place_ = other.place_;
  device_ = other.device_;
  return *this;
}

void Memory::release() {
  if (data_ == nullptr) return;
  select_device(device_);
  if (place_ == Place::kDevice) {
    cudaFree(data_);
  } else {
    cudaFreeHost(data_);
  }
  data_ = nullptr;
}

}  // namespace ingot::cuda
