// The decoder layers of one token in one launch, on one thread block cluster of 16 blocks (Hopper). A layer
// of a small model costs more in launches than in bytes. Blocks of a cluster pass data by writing into each other's
// shared memory, which takes a tenth of a launch. Weights stream through rings in shared
// memory, up to a layer ahead of their use.
#pragma once
#include <memory>

#include "backend/block.h"
#include "backend/cuda/kernels.h"

namespace ingot::cuda {

enum LayerWeight { kWeightQ, kWeightK, kWeightV, kWeightOut, kWeightGate, kWeightUp, kWeightDown, kLayerWeights };

struct LayerProduct {
  const char *codes, *scales;
  const float* bias;  // [n_out] or null; only of q, k and v
  float factor;
  int16_t zero;
  bool eight, has_min;  // as PackedWeight has them
};

struct ClusterLayer {
  LayerProduct products[kLayerWeights];
  const float *attention_norm, *ffn_norm;
  const float *q_norm, *k_norm;  // of each head, or null
  int64_t kv_layer;
};

// What the layers have in common.
struct ClusterShape {
  int dim = 0, ffn = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, rot_dim = 0;
  bool half_split = false;  // RopeLayout
  float eps = 0, head_eps = 0, score_scale = 0;
  int act = 0;
  bool operator==(const ClusterShape&) const = default;
};

inline constexpr int kMostClusterLayers = 64;

struct ClusterStep {
  ClusterLayer layers[kMostClusterLayers];
  int n_layers;
  ClusterShape shape;
  float* x;             // [dim]: the residual stream, in and out
  const float* angles;  // [rot_dim]
  DeviceKv kv;
  DeviceBatch batch;
};

// Contexts up to which a cluster is faster than a graph of kernels that take all of the GPU.
inline constexpr int kMostClusterKv = 4096;

// What run_cluster() takes for these layers. Null where they differ in more than weights, are too many, or are of
// another kind.
std::unique_ptr<ClusterStep> cluster_step(const DenseLayersBlock& block, const DeviceKv& kv, const DeviceBatch& batch);

// Whether a product may be one of a cluster's.
bool can_cluster(const PackedWeight& w);
// Whether these layers fit and the device can run such a cluster.
bool can_run_cluster(const ClusterStep& step, Device& device);
void run_cluster(const ClusterStep& step, Device& device);

}  // namespace ingot::cuda
