#include "backend/cuda/dense_step.h"

#include <algorithm>

#include "backend/cuda/cuda_backend.h"

namespace ingot::cuda {
namespace {

LayerProduct product_of(const Weight& weight, const Tensor& bias) {
  const PackedWeight& w = packed(weight);
  return {static_cast<const char*>(w.data),
          static_cast<const char*>(w.scales),
          bias ? bias.f32() : nullptr,
          w.factor,
          static_cast<int16_t>(w.zero),
          w.layout,
          w.has_min,
          w.group16};
}

const float* floats_of(const Tensor& t) { return t ? t.f32() : nullptr; }

DenseShape shape_of(const AttentionBlock& a, const FeedForwardBlock& f) {
  return {.dim = static_cast<int>(a.x.cols),
          .ffn = f.ffn_dim,
          .n_heads = a.attention.n_heads,
          .n_kv_heads = a.attention.n_kv_heads,
          .head_dim = a.attention.head_dim,
          .rot_dim = a.rope.angles ? static_cast<int>(a.rope.angles.cols) : 0,
          .half_split = a.rope.layout == RopeLayout::kHalfSplit,
          .eps = a.norm.eps,
          .head_eps = a.q_norm.weight ? a.q_norm.eps : a.k_norm.eps,
          .score_scale = a.attention.scale * 1.44269504f,
          .act = static_cast<int>(f.act)};
}

bool is_plain_norm(const NormArgs& n) { return n.weight && !n.bias && n.kind == NormKind::kRms; }

bool head_norms_fit(const AttentionBlock& a) {
  for (const NormArgs* norm : {&a.q_norm, &a.k_norm})
    if (norm->weight && (!is_plain_norm(*norm) || norm->weight.cols != a.attention.head_dim)) return false;
  return !a.q_norm.weight || !a.k_norm.weight || a.q_norm.eps == a.k_norm.eps;
}

bool attention_fits(const AttentionBlock& a) {
  const AttentionArgs& args = a.attention;
  return is_plain_norm(a.norm) && head_norms_fit(a) && args.softcap == 0 && args.causal && !args.sinks && !a.gate &&
         !a.bo && a.join.is_plain() && !a.join.sum_norm.weight;
}

bool feed_forward_fits(const FeedForwardBlock& f, float eps) {
  return is_plain_norm(f.norm) && f.norm.eps == eps && f.w_gate && !f.b_gate && !f.b_up && !f.b_down &&
         f.join.is_plain() && !f.join.sum_norm.weight;
}

// Takes over the codebook. Returns false if the weight cannot be a LayerProduct, or if the step has another codebook.
bool weight_fits(DenseStep& step, const Weight& weight) {
  const PackedWeight& w = packed(weight);
  if (w.n_experts != 1 || w.f32) return false;
  if (w.layout != Layout::kCodebook4) return true;
  if (step.codebook_low == 0 && step.codebook_high == 0)
    step.codebook_low = w.codebook_low, step.codebook_high = w.codebook_high;
  return step.codebook_low == w.codebook_low && step.codebook_high == w.codebook_high;
}

}  // namespace

std::unique_ptr<DenseStep> dense_step(const DenseLayersBlock& block, const DeviceKv& kv, const DeviceBatch& batch,
                                      int n_tokens) {
  const AttentionBlock& first = block.attention.front();
  if (block.attention.size() > kMaxDenseLayers || reinterpret_cast<uintptr_t>(first.x.data) % 16 != 0) return nullptr;
  auto step = std::make_unique<DenseStep>();
  step->shape = shape_of(first, block.feed_forward.front());
  for (size_t i = 0; i < block.attention.size(); ++i) {
    const AttentionBlock& a = block.attention[i];
    const FeedForwardBlock& f = block.feed_forward[i];
    if (!attention_fits(a) || !feed_forward_fits(f, a.norm.eps) || !(shape_of(a, f) == step->shape)) return nullptr;
    if (a.rope.angles.data != first.rope.angles.data) return nullptr;
    for (const Weight* w : {&a.wq, &a.wk, &a.wv, &a.wo, &f.w_gate, &f.w_up, &f.w_down})
      if (!weight_fits(*step, *w)) return nullptr;
    step->layers[step->n_layers++] = {
        .products = {product_of(a.wq, a.bq), product_of(a.wk, a.bk), product_of(a.wv, a.bv), product_of(a.wo, {}),
                     product_of(f.w_gate, {}), product_of(f.w_up, {}), product_of(f.w_down, {})},
        .attention_norm = a.norm.weight.f32(),
        .ffn_norm = f.norm.weight.f32(),
        .q_norm = floats_of(a.q_norm.weight),
        .k_norm = floats_of(a.k_norm.weight),
        .kv_layer = a.attention.layer,
        .window = a.attention.window};
  }
  step->n_tokens = n_tokens;
  step->x = first.x.f32();
  step->x_stride = first.x.stride;
  step->angles = floats_of(first.rope.angles);
  step->angle_stride = first.rope.angles ? first.rope.angles.stride : 0;
  step->kv = kv;
  step->batch = batch;
  return step;
}

}  // namespace ingot::cuda
