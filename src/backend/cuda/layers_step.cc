#include "backend/cuda/layers_step.h"

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

// The part after attention.
struct Second {
  const NormArgs& norm;
  const Weight &gate, &up, &down;
  int64_t n_experts;
  ExpertRouter router;
};

Second second_of(const FeedForwardBlock& f) { return {f.norm, f.w_gate, f.w_up, f.w_down, 1, {}}; }
Second second_of(const ExpertsBlock& e) {
  return {e.norm, e.w_gate, e.w_up, e.w_down, e.n_experts,
          {packed(e.w_router).data, floats_of(e.b_router), floats_of(e.route.bias)}};
}

void set_second(LayersShape&, const FeedForwardBlock&) {}
void set_second(LayersShape& s, const ExpertsBlock& e) {
  s.n_experts = e.n_experts, s.n_used = e.route.n_used;
  s.sigmoid = e.route.scoring == Scoring::kSigmoid, s.normalize = e.route.normalize, s.route_scale = e.route.scale;
}

template <class Block>
LayersShape shape_of(const AttentionBlock& a, const Block& f) {
  LayersShape shape{.dim = static_cast<int>(a.x.cols),
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
  set_second(shape, f);
  return shape;
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
         a.is_fused() && a.query_scale.beta == 0 && !a.bo && a.join.is_plain() && !a.join.sum_norm.weight;
}

bool second_fits(const FeedForwardBlock& f, float eps) {
  return is_plain_norm(f.norm) && f.norm.eps == eps && f.w_gate && !f.b_gate && !f.b_up && !f.b_down &&
         f.join.is_plain() && !f.join.sum_norm.weight;
}

bool second_fits(const ExpertsBlock& e, float eps) {
  const PackedWeight& router = packed(e.w_router);
  return is_plain_norm(e.norm) && e.norm.eps == eps && !e.b_gate && !e.b_up && !e.b_down && e.shared_dim == 0 &&
         !e.sums && !e.route.expert_scale && !e.scales_input && e.route.scoring != Scoring::kSparseMixer &&
         e.route.n_groups_used >= e.route.n_groups && router.layout == Layout::kDense && !router.f32 &&
         reinterpret_cast<uintptr_t>(router.data) % 16 == 0;
}

// Copies the codebook to the step. Returns false if the weight cannot be a LayerProduct, or if the step has another
// codebook.
bool weight_fits(LayersStep& step, const Weight& weight, int64_t n_experts) {
  const PackedWeight& w = packed(weight);
  if (w.n_experts != n_experts || w.f32) return false;
  if (w.layout != Layout::kCodebook4) return true;
  if (step.codebook_low == 0 && step.codebook_high == 0)
    step.codebook_low = w.codebook_low, step.codebook_high = w.codebook_high;
  return step.codebook_low == w.codebook_low && step.codebook_high == w.codebook_high;
}

// Returns false if the layer does not fit.
template <class Block>
bool add_layer(LayersStep& step, const AttentionBlock& a, const Block& block) {
  if (!attention_fits(a) || !second_fits(block, a.norm.eps) || !(shape_of(a, block) == step.shape)) return false;
  const Second second = second_of(block);
  for (const Weight* w : {&a.wq, &a.wk, &a.wv, &a.wo})
    if (!weight_fits(step, *w, 1)) return false;
  for (const Weight* w : {&second.gate, &second.up, &second.down})
    if (!weight_fits(step, *w, second.n_experts)) return false;
  step.layers[step.n_layers++] = {
      .products = {product_of(a.wq, a.bq), product_of(a.wk, a.bk), product_of(a.wv, a.bv), product_of(a.wo, {}),
                   product_of(second.gate, {}), product_of(second.up, {}), product_of(second.down, {})},
      .attention_norm = a.norm.weight.f32(),
      .ffn_norm = second.norm.weight.f32(),
      .q_norm = floats_of(a.q_norm.weight),
      .k_norm = floats_of(a.k_norm.weight),
      .router = second.router,
      .kv_layer = a.attention.layer,
      .window = a.attention.window};
  return true;
}

}  // namespace

std::unique_ptr<LayersStep> layers_step(const PlainLayersBlock& block, const DeviceKv& kv, const DeviceBatch& batch,
                                      int n_tokens) {
  const AttentionBlock& first = block.attention(0);
  if (block.n_layers() > kMaxStepLayers || reinterpret_cast<uintptr_t>(first.x.data) % 16 != 0) return nullptr;
  auto step = std::make_unique<LayersStep>();
  block.with_second(0, [&](const auto& second) { step->shape = shape_of(first, second); });
  for (size_t i = 0; i < block.n_layers(); ++i) {
    bool fits = false;
    block.with_second(i, [&](const auto& second) {
      fits =
          block.attention(i).rope.angles.data == first.rope.angles.data && add_layer(*step, block.attention(i), second);
    });
    if (!fits) return nullptr;
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
