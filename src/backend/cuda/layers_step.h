// LayersStep: the decoder layers of a step as data, for kernels that run all layers in one launch. cluster/layers.h
// runs the layers of small models on one thread block cluster; grid/layers.h uses the whole GPU.
#pragma once
#include <memory>

#include "backend/blocks/plain_layers.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/layer_weight.h"

namespace ingot::cuda {

struct LayerProduct {
  const char *codes, *scales;  // PackedWeight's data and scales
  const float* bias;           // [n_out] or null; only of q, k and v
  float factor;
  int16_t zero;
  Layout layout;
  bool has_min : 1, group16 : 1;
};

// How a layer chooses the experts of a token.
struct ExpertRouter {
  const void* w = nullptr;             // [n_experts, dim] f16
  const float* bias = nullptr;         // [n_experts] or null: added to the products
  const float* choice_bias = nullptr;  // [n_experts] or null: added to the scores only for the choice
};

struct StepLayer {
  LayerProduct products[kLayerWeights];
  const float *attention_norm, *ffn_norm;  // [dim]
  const float *q_norm, *k_norm;            // [head_dim], for each head, or null
  ExpertRouter router;                     // only with experts; gate, up and down then hold all experts
  int64_t kv_layer;
  int window;  // 0: none
};

// What all layers have in common.
struct LayersShape {
  int dim = 0, ffn = 0, n_heads = 0, n_kv_heads = 0, head_dim = 0, rot_dim = 0;
  bool half_split = false;                       // RopeLayout
  float eps = 0, head_eps = 0, score_scale = 0;  // score_scale includes the factor log2(e)
  int act = 0;
  int n_experts = 0, n_used = 0;  // 0: no experts; `ffn` is the width of one expert
  bool sigmoid = false, normalize = false;
  float route_scale = 1;
  bool operator==(const LayersShape&) const = default;
};

inline constexpr int kMaxStepLayers = 80;

struct LayersStep {
  StepLayer layers[kMaxStepLayers];
  int n_layers, n_tokens;
  LayersShape shape;
  uint64_t codebook_low, codebook_high;  // of all weights with Layout::kCodebook4
  float* x;                              // [n_tokens, x_stride]: the residual stream, input and output
  int64_t x_stride;
  const float* angles;  // [n_tokens, angle_stride]
  int64_t angle_stride;
  DeviceKv kv;
  DeviceBatch batch;
};

// Returns null if the layers are too many, if they differ in more than their weights, or if they use more than plain
// attention with a plain gated feed-forward network, or with experts without groups and without a shared expert.
std::unique_ptr<LayersStep> layers_step(const PlainLayersBlock& block, const DeviceKv& kv, const DeviceBatch& batch,
                                      int n_tokens);

}  // namespace ingot::cuda
