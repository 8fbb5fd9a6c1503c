// The decoder layers of one token in one launch on the whole GPU (Hopper and newer). Between two kernels the memory
// is idle for some microseconds: the last blocks end, the next kernel starts, and reads its input. Here one block runs
// on each multiprocessor for the whole step, and a barrier for all blocks separates the phases of a layer. Weights are
// not written by any phase, so one warp of each block copies them ahead to shared memory, across barriers and layers.
#pragma once
#include "backend/cuda/dense_step.h"

namespace ingot::cuda {

// Whether the kernel supports these layers, and the device can run it.
bool can_run_grid(const DenseStep& step, Device& device);
// Bytes of scratch that are enough for any step; zeros before the first step. width: the most columns of a tensor.
size_t grid_scratch_bytes(int width, int head_dim, const DeviceLimits& device);
void run_grid(const DenseStep& step, void* scratch, Device& device);

}  // namespace ingot::cuda
