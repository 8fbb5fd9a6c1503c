// The verbs of decoder layers, held back until it is known whether they are just what run_cluster() does: norm, qkv, attention,
// matmul_add, norm, gate_up, matmul_add, each on the result of the one before. What lies between them is then never written.
#pragma once
#include <memory>
#include <vector>

#include "backend/cuda/cluster_layers.h"

namespace ingot::cuda {

struct LayerVerbs {
  DeferredNorm attention_norm, ffn_norm;
  QkvArgs qkv;
  Tensor attended, hidden;
  AttentionArgs attention;
  const Weight *out = nullptr, *gate = nullptr, *up = nullptr, *down = nullptr;
  Activation act = Activation::kSilu;
  int n = 0;  // verbs so far
  static constexpr int kAll = 7;
};

class LayerRecorder {
 public:
  // Whether the verb is the next of a layer; then it is held.
  bool norm(const DeferredNorm& norm);
  bool qkv(const QkvArgs& args);
  bool attention(const Tensor& y, const Tensor& q, const KvCache& kv, const AttentionArgs& args);
  bool matmul_add(const Tensor& residual, const Tensor& x, const Weight& w, const Tensor& bias);
  bool gate_up(const Tensor& y, const Tensor& x, const Weight& gate, const Weight& up, const Tensor& bias_gate, const Tensor& bias_up,
               Activation act);

  bool empty() const { return layers_.empty(); }
  std::vector<LayerVerbs> take();  // all of them whole but the last

 private:
  LayerVerbs* layer_with(int n_verbs);  // the last, if it has so many

  std::vector<LayerVerbs> layers_;
};

// What run_cluster() takes for whole layers. Null where they differ in more than weights, or are too many.
std::unique_ptr<ClusterStep> cluster_step(const std::vector<LayerVerbs>& layers, const DeviceKv& kv, const DeviceBatch& batch);

}  // namespace ingot::cuda
