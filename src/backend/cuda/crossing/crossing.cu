#include "backend/cuda/crossing/crossing.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "backend/cuda/launch.cuh"
#include "base/check.h"
#include "base/spin.h"

namespace ingot::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kMaxBlocks = 32;  // enough to saturate the bus

// On the device. Both are zero at first.
struct Sender {
  uint32_t n_blocks;  // that have written their rows
  uint32_t n_sent;    // crossings
};

__device__ uint32_t load_acquire(const volatile uint32_t* at) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
__device__ void store_release(volatile uint32_t* at, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

__global__ void send_kernel(float* rows, const float* x, int64_t n, Sender* sender, volatile uint32_t* sent) {
  start_dependent();
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) rows[i] = x[i];
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0 || atomicAdd(&sender->n_blocks, 1u) != gridDim.x - 1) return;
  sender->n_blocks = 0;
  store_release(sent, ++sender->n_sent);
}

// Reads the rows past the caches, which may hold the rows of the previous crossing.
__global__ void receive_kernel(float* x, const float* rows, int64_t n, const Sender* sender,
                               const volatile uint32_t* returned) {
  start_dependent();
  if (threadIdx.x == 0)
    while (load_acquire(returned) != sender->n_sent) __nanosleep(100);
  __syncthreads();
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) x[i] = __ldcv(rows + i);
}

}  // namespace

float* Crossing::rows(int64_t n_floats) {
  const size_t bytes = static_cast<size_t>(n_floats) * sizeof(float);
  if (rows_.size() < bytes) {
    rows_ = Memory(bytes, Place::kPinned);
    std::memset(rows_.data(), 0, bytes);  // padding rows of a step are sent back unchanged
  }
  if (counts_.data() == nullptr) {
    counts_ = Memory(sizeof(Counts), Place::kPinned);
    std::memset(counts_.data(), 0, sizeof(Counts));
    on_device_ = Memory(sizeof(Sender));
    check(cudaMemset(on_device_.data(), 0, sizeof(Sender)), "cudaMemset");
  }
  return static_cast<float*>(rows_.data());
}

void Crossing::enqueue(const Tensor& x, Device& device) {
  const int64_t n = x.rows * x.cols;
  CHECK(x.contiguous());
  CHECK_LE(static_cast<size_t>(n) * sizeof(float), rows_.size());
  auto* sender = static_cast<Sender*>(on_device_.data());
  auto* counts = static_cast<Counts*>(counts_.data());
  auto* rows = static_cast<float*>(rows_.data());
  const auto n_blocks = static_cast<unsigned>(std::clamp<int64_t>(n / (4 * kThreads), 1, kMaxBlocks));
  launch(device, send_kernel, dim3(n_blocks), kThreads, 0, rows, static_cast<const float*>(x.f32()), n, sender,
         &counts->sent);
  launch(device, receive_kernel, dim3(n_blocks), kThreads, 0, x.f32(), static_cast<const float*>(rows), n,
         static_cast<const Sender*>(sender), static_cast<const volatile uint32_t*>(&counts->returned));
  check_launch("crossing");
}

// Asks the driver every 10 ms whether the GPU is lost, because then the rows never arrive.
void Crossing::await_rows(const Device& device) {
  const auto* counts = static_cast<const Counts*>(counts_.data());
  auto next_query = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
  for (int i = 1; counts->sent != n_served_ + 1; ++i) {
    spin_pause();
    if (i % 1024 != 0 || std::chrono::steady_clock::now() < next_query) continue;
    if (const cudaError_t status = cudaStreamQuery(device.stream()); status != cudaErrorNotReady)
      check(status, "cudaStreamQuery");
    next_query = std::chrono::steady_clock::now() + std::chrono::milliseconds(10);
  }
  std::atomic_thread_fence(std::memory_order_acquire);
}

void Crossing::give_back() {
  std::atomic_thread_fence(std::memory_order_release);
  static_cast<Counts*>(counts_.data())->returned = ++n_served_;
}

}  // namespace ingot::cuda
