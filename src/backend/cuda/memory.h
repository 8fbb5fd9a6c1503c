// Device and pinned memory that is freed automatically, and the check of every CUDA call.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

namespace ingot::cuda {

// Throws Error, which names the call, unless status is cudaSuccess. Throws DeviceLost if every later call will fail
// too, as after an illegal memory access of a kernel.
void check(cudaError_t status, const char* call);
inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

enum class Place { kDevice, kPinned };

// Memory of the thread's current device, or host memory that the device can access. Any thread may free it.
class Memory {
 public:
  Memory() = default;
  Memory(size_t bytes, Place place = Place::kDevice);  // throws Error with the size and the free memory
  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept;
  ~Memory() { release(); }

  void* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void release();

  void* data_ = nullptr;
  size_t size_ = 0;
  Place place_ = Place::kDevice;
  int device_ = 0;
};

}  // namespace ingot::cuda
