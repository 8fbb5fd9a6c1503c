// The decoder layers of one to eight tokens in one launch on the whole GPU (Hopper). Between two kernels the memory is
// idle for some microseconds, while the last blocks end and the next kernel starts and reads its input. Here one block
// runs on each multiprocessor for the whole step, and a barrier for all blocks separates the phases of a layer. No
// phase writes weights, so one warp of each block prefetches them to shared memory, across barriers and layers.
//
// The kernel is compiled for the sizes of the model (specialised.h), because a general kernel spends most of its time
// on addresses. One token has a kernel of its own, with other products (products.cuh) than several tokens (rows.cuh).
// Read the files in this order: shape.h, layers.cuh, plan.cuh, stream.cuh, input.cuh, products.cuh, rows.cuh,
// attention.cuh, router.cuh.
#pragma once
#include <string>

#include "backend/cuda/layers_step.h"

namespace ingot::cuda {

inline constexpr int kMaxGridTokens = 8;  // of a step, of one sequence or of several

// The source of the kernel for these layers. Empty if the kernel does not support them, or the device cannot run it.
std::string grid_source(const LayersStep& step, const DeviceLimits& device);
// The longest context, in tokens, with which the grid is faster than single kernels; 0: it never is. Single kernels
// read keys and values faster, at 3.8 TB/s instead of 3.0 TB/s, but each layer begins and ends several of them.
int longest_on_grid(const LayersStep& step);
// Bytes of scratch that are enough for any step; must be zero before the first step. width: the most columns of a
// tensor.
size_t grid_scratch_bytes(int width, int head_dim, const DeviceLimits& device);
void run_grid(const void* kernel, const LayersStep& step, void* scratch, Device& device);

}  // namespace ingot::cuda
