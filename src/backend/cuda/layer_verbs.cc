#include "backend/cuda/layer_verbs.h"

#include <utility>

#include "backend/cuda/cuda_backend.h"

namespace ingot::cuda {

namespace {

bool is_one_f32_row(const Tensor& x) { return x.dtype == DType::kF32 && x.rows == 1 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0; }

// Products of one launch: their kernels must agree, too.
bool all_fit(std::initializer_list<const Weight*> weights) {
  for (const Weight* w : weights)
    if (w->packed == nullptr || w->n_experts != 1 || !can_cluster(packed(*w)) || !share_matvec(packed(**weights.begin()), packed(*w))) return false;
  return true;
}

LayerProduct product_of(const Weight& weight, const Tensor& bias) {
  const PackedWeight& w = packed(weight);
  return {static_cast<const char*>(w.data), static_cast<const char*>(w.scales), bias ? bias.f32() : nullptr, w.factor,
          static_cast<int16_t>(w.zero), w.layout == Layout::kCodes8, w.has_min};
}

const float* floats_of(const Tensor& t) { return t ? t.f32() : nullptr; }

ClusterShape shape_of(const LayerVerbs& l) {
  const QkvArgs& q = l.qkv;
  return {.dim = static_cast<int>(l.attention_norm.x.cols),
          .ffn = static_cast<int>(l.hidden.cols),
          .n_heads = q.n_heads,
          .n_kv_heads = q.n_kv_heads,
          .head_dim = q.head_dim,
          .rot_dim = q.rope.angles ? static_cast<int>(q.rope.angles.cols) : 0,
          .half_split = q.rope.layout == RopeLayout::kHalfSplit,
          .eps = l.attention_norm.args.eps,
          .head_eps = q.q_norm.weight ? q.q_norm.eps : q.k_norm.eps,
          .score_scale = l.attention.scale * 1.44269504f,
          .act = static_cast<int>(l.act)};
}

bool head_norms_fit(const QkvArgs& a) {
  for (const NormArgs* norm : {&a.q_norm, &a.k_norm})
    if (norm->weight && (norm->weight.cols != a.head_dim || norm->bias || norm->kind != NormKind::kRms)) return false;
  return !a.q_norm.weight || !a.k_norm.weight || a.q_norm.eps == a.k_norm.eps;
}

}  // namespace

LayerVerbs* LayerRecorder::layer_with(int n_verbs) {
  return layers_.empty() || layers_.back().n != n_verbs ? nullptr : &layers_.back();
}

bool LayerRecorder::norm(const DeferredNorm& norm) {
  if (!can_defer(norm) || !is_one_f32_row(norm.x)) return false;
  if (LayerVerbs* layer = layer_with(4)) {
    if (norm.x.data != layer->attention_norm.x.data || norm.args.eps != layer->attention_norm.args.eps) return false;
    layer->ffn_norm = norm;
    ++layer->n;
    return true;
  }
  if (!layers_.empty() && (!layer_with(LayerVerbs::kAll) || layers_.back().attention_norm.x.data != norm.x.data)) return false;
  layers_.emplace_back().attention_norm = norm;
  ++layers_.back().n;
  return true;
}

bool LayerRecorder::qkv(const QkvArgs& a) {
  LayerVerbs* layer = layer_with(1);
  if (layer == nullptr || a.x.data != layer->attention_norm.y.data || !all_fit({a.wq, a.wk, a.wv}) || !head_norms_fit(a)) return false;
  layer->qkv = a;
  ++layer->n;
  return true;
}

bool LayerRecorder::attention(const Tensor& y, const Tensor& q, const KvCache& kv, const AttentionArgs& a) {
  LayerVerbs* layer = layer_with(2);
  if (layer == nullptr) return false;
  const QkvArgs& made = layer->qkv;
  if (q.data != made.q.data || &kv != made.kv || a.layer != made.layer || a.n_heads != made.n_heads || a.n_kv_heads != made.n_kv_heads ||
      a.head_dim != made.head_dim || a.softcap > 0 || a.window > 0 || !a.causal || a.sinks)
    return false;
  layer->attended = y, layer->attention = a;
  ++layer->n;
  return true;
}

bool LayerRecorder::matmul_add(const Tensor& residual, const Tensor& x, const Weight& w, const Tensor& bias) {
  LayerVerbs* layer = layer_with(3) != nullptr ? layer_with(3) : layer_with(6);
  if (layer == nullptr || bias || residual.data != layer->attention_norm.x.data || !all_fit({&w})) return false;
  if (x.data != (layer->n == 3 ? layer->attended : layer->hidden).data) return false;
  (layer->n == 3 ? layer->out : layer->down) = &w;
  ++layer->n;
  return true;
}

bool LayerRecorder::gate_up(const Tensor& y, const Tensor& x, const Weight& gate, const Weight& up, const Tensor& bias_gate,
                            const Tensor& bias_up, Activation act) {
  LayerVerbs* layer = layer_with(5);
  if (layer == nullptr || x.data != layer->ffn_norm.y.data || bias_gate || bias_up || !all_fit({&gate, &up})) return false;
  layer->hidden = y, layer->gate = &gate, layer->up = &up, layer->act = act;
  ++layer->n;
  return true;
}

std::vector<LayerVerbs> LayerRecorder::take() { return std::exchange(layers_, {}); }

std::unique_ptr<ClusterStep> cluster_step(const std::vector<LayerVerbs>& layers, const DeviceKv& kv, const DeviceBatch& batch) {
  if (layers.empty() || layers.size() > kMostClusterLayers) return nullptr;
  auto step = std::make_unique<ClusterStep>();
  const LayerVerbs& first = layers.front();
  step->shape = shape_of(first);
  for (const LayerVerbs& l : layers) {
    const QkvArgs& a = l.qkv;
    if (!(shape_of(l) == step->shape) || a.kv != first.qkv.kv || a.rope.angles.data != first.qkv.rope.angles.data) return nullptr;
    step->layers[step->n_layers++] = {
        .products = {product_of(*a.wq, a.bq), product_of(*a.wk, a.bk), product_of(*a.wv, a.bv), product_of(*l.out, {}),
                     product_of(*l.gate, {}), product_of(*l.up, {}), product_of(*l.down, {})},
        .attention_norm = l.attention_norm.args.weight.f32(),
        .ffn_norm = l.ffn_norm.args.weight.f32(),
        .q_norm = floats_of(a.q_norm.weight),
        .k_norm = floats_of(a.k_norm.weight),
        .kv_layer = a.layer};
  }
  step->x = first.attention_norm.x.f32();
  step->angles = floats_of(first.qkv.rope.angles);
  step->kv = kv;
  step->batch = batch;
  return step;
}

}  // namespace ingot::cuda
