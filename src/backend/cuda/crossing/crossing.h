// Crossing: how rows go from a recorded step to other devices and back (RemoteBlock). A graph cannot call the host.
// So one kernel writes the rows to pinned memory and counts; the host, which waits for the count, computes in place and
// counts too; a second kernel waits for the host's count and reads the rows. No call of the driver is in between: a
// crossing costs some microseconds more than the kernels and the host's work.
//
// CudaBackend::run serves the crossings of a step in order, right after it has launched the graph. The kernel that
// waits occupies few blocks, and ends only when the host has counted, so the host counts even if its work fails.
#pragma once
#include <cstdint>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/memory.h"
#include "backend/tensor.h"

namespace ingot::cuda {

class Crossing {
 public:
  // Pinned rows for at least n_floats. Rows that recorded kernels know must not move, so the first call names the most.
  float* rows(int64_t n_floats);
  // Enqueues both kernels for the rows of x, [n, dim] f32.
  void enqueue(const Tensor& x, Device& device);

  // For each crossing of a launched graph: waits for the rows; then lets the GPU go on.
  void await_rows(const Device& device);
  void give_back();

 private:
  struct Counts {
    volatile uint32_t sent, returned;  // by the GPU, by the host
  };
  Memory rows_, counts_;  // pinned
  Memory on_device_;      // Sender of crossing.cu
  uint32_t n_served_ = 0;
};

}  // namespace ingot::cuda
