// Crossing: sends rows from a recorded step to other devices and back (RemoteBlock). Host nodes of a graph must not
// call CUDA, so counts in pinned memory synchronise kernels and host. One kernel writes the rows to pinned memory and
// counts. The host waits for this count, computes in place, and counts too. A second kernel waits for the host's count
// and reads the rows. No driver call is in between, so a crossing adds only some microseconds.
//
// StepRecorder serves the crossings of a step in order, right after the launch of the graph. The waiting kernel
// occupies few blocks, and ends only when the host has counted. So the host counts even if its work fails.
#pragma once
#include <cstdint>

#include "backend/cuda/cuda_device.h"
#include "backend/cuda/memory.h"
#include "backend/tensor.h"

namespace ingot::cuda {

class Crossing {
 public:
  // Returns pinned rows for at least n_floats. Recorded kernels hold the address, so the first call must ask for the
  // largest number.
  float* rows(int64_t n_floats);
  // Enqueues both kernels for the rows of x, [n, dim] f32.
  void enqueue(const Tensor& x, Device& device);

  // For each crossing of a launched graph: await_rows() waits for the rows, and give_back() lets the GPU continue.
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
