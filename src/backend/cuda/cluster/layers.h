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
  bool eight, has_min;  // as in PackedWeight
};

struct ClusterLayer {
  LayerProduct products[kLayerWeights];
  const float *attention_norm, *ffn_norm;
  const float *q_norm, *k_norm;  // of each head, or null
  int64_t kv_layer;
};

// What all layers have in common.
struct ClusterShape {
  int dim = 0, ffn = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, rot_dim = 0;
  bool half_split = false;  // RopeLayout
  float eps = 0, head_eps = 0, score_scale = 0;
  int act = 0;
  bool operator==(const ClusterShape&) const = default;
};

inline constexpr int kMaxClusterLayers = 64;

struct ClusterStep {
  ClusterLayer layers[kMaxClusterLayers];
  int n_layers;
  ClusterShape shape;
  float* x;             // [dim]: the residual stream, input and output
  const float* angles;  // [rot_dim]
  DeviceKv kv;
  DeviceBatch batch;
};

// Longest context for which a cluster is faster than a graph of kernels that use the whole GPU.
inline constexpr int kMaxClusterKv = 4096;

// The arguments of run_cluster() for these layers. Null if the layers differ in more than their weights, are too many,
// or are of another kind.
std::unique_ptr<ClusterStep> cluster_step(const DenseLayersBlock& block, const DeviceKv& kv, const DeviceBatch& batch);

// Whether the cluster kernel supports products with this weight.
bool can_cluster(const PackedWeight& w);
// Whether these layers fit and the device can run a cluster of this size.
bool can_run_cluster(const ClusterStep& step, Device& device);
void run_cluster(const ClusterStep& step, Device& device);

}  // namespace ingot::cuda
