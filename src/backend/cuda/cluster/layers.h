// The decoder layers of one token in one launch, on one thread block cluster of 16 blocks (Hopper). A layer of a small
// model spends more time on launches than on reading its bytes. Blocks of a cluster write to each other's shared
// memory, in a tenth of the time of a launch. Weights stream through rings in shared memory, up to a layer ahead of
// their use.
#pragma once
#include "backend/cuda/layers_step.h"

namespace ingot::cuda {

// Longest context for which a cluster is faster than kernels that use the whole GPU.
inline constexpr int kMaxClusterKv = 4096;

// Whether the kernel supports these layers and this step of one token, and the device can run a cluster of this size.
bool can_run_cluster(const LayersStep& step, Device& device);
void run_cluster(const LayersStep& step, Device& device);

}  // namespace ingot::cuda
