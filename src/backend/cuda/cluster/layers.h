// The decoder layers of a few tokens in one launch: each token has its own thread block cluster (Hopper). A layer of a
// small model spends more time on launches than on reading its bytes. Blocks of a cluster write to each other's shared
// memory, in a tenth of the time of a launch. Weights stream through rings in shared memory, up to a layer ahead of
// their use. The clusters read the same weights at about the same time, so most reads are from the L2 cache.
//
// A cluster has 16 blocks, or 8 or 4 if a step has more tokens than the device can run such clusters at once. If there
// are more tokens than clusters of any size run at once, the others follow in rounds.
//
// A token of the same sequence as an earlier token of the step needs that token's keys and values of each layer. So its
// cluster waits in each layer until the earlier token's cluster has written them. Clusters take their tokens in the
// order in which they start, so none waits for a cluster that has not started.
#pragma once
#include "backend/cuda/layers_step.h"

namespace ingot::cuda {

// Longest context for which a cluster is faster than kernels that use the whole GPU.
inline constexpr int kMaxClusterKv = 4096;

inline constexpr int kMaxClusterTokens = 64;  // of a step

// What clusters of one launch tell each other. All numbers are zero between launches.
struct ClusterTurns {
  uint32_t n_started, n_done;                             // clusters
  uint32_t n_written[kMaxClusterTokens * kMaxStepLayers];  // [token, layer]: heads of keys and values in the cache
};

// Whether clusters can run these layers, and are faster than single kernels. is_recorded: the step is replayed. If the
// step is not replayed, the launches of single kernels take longer.
bool runs_on_clusters(const LayersStep& step, bool is_recorded, Device& device);
// longest: the most tokens of one sequence. turns: on the device; used if longest is above 1.
void run_cluster(const LayersStep& step, int longest, ClusterTurns* turns, Device& device);

}  // namespace ingot::cuda
