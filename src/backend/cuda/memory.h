// Device and pinned memory that frees itself, and the check of every CUDA call.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

namespace ingot::cuda {

// Throws Error naming the call unless status is cudaSuccess; DeviceLost if every later call will fail too, as after a
// kernel's bad access.
void check(cudaError_t status, const char* call);
inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

enum class Place { kDevice, kPinned };

// Memory of the thread's current device, or of the host where that device can reach it. Any thread may free it.
class Memory {
 public:
  Memory() = default;
  Memory(size_t bytes, Place place = Place::kDevice);  // throws Error with the size, and what was free
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
