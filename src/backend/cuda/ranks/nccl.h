// Sums over GPUs with NCCL, in the GPUs' own memory. The library is loaded when ranks first need it, so ingot builds
// and runs without it.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <future>
#include <memory>

#include "backend/communicator.h"
#include "backend/tensor.h"

namespace ingot::cuda {

class Nccl {
 public:
  // All ranks call the constructor at the same time, each with its own GPU as the thread's current GPU. The constructor
  // does not keep `ranks`. Throws Error if there is no library, or if the GPUs cannot reach each other.
  explicit Nccl(Communicator& ranks);
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  // Each enqueues the work of this rank. The tensors are contiguous.
  void all_reduce(const Tensor& x, cudaStream_t stream);
  void all_gather(const Tensor& y, const Tensor& x, cudaStream_t stream);
  void broadcast(void* data, size_t bytes, cudaStream_t stream);  // from rank 0
  void check_peers();  // throws DeviceLost if NCCL reports that a rank has failed
  // Begins to end the kernels that wait for other ranks. NCCL waits until the graphs with its kernels are destroyed.
  // The destructor waits for the end, but at most for some seconds, because another rank may hang.
  void abort();

 private:
  void* comm_ = nullptr;
  std::future<void> aborted_;
};

}  // namespace ingot::cuda
