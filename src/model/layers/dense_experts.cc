// A feed-forward beside experts (backend/blocks/dense_experts.h).
#include "backend/blocks/dense_experts.h"

#include "base/error.h"
#include "model/config/shards.h"
#include "model/files/weights.h"
#include "model/layers/joins.h"

namespace ingot::dense_experts_part {
namespace {

using B = DenseExpertsBlock;
using Dense = FeedForwardBlock;
using Experts = ExpertsBlock;

int64_t expert_size(const Config& c) { return c.experts.ffn_dim; }
int64_t two_expert_sizes(const Config& c) { return 2 * int64_t{c.experts.ffn_dim}; }
int64_t expert_count(const Config& c) { return c.experts.n; }

constexpr Dim kFfn = {[](const Config& c) -> int64_t { return c.ffn_dim; },
                      [](const Config& rank) { return std::vector<Range>{rank.share->ffn}; }};
constexpr Dim kExpertFfn = {expert_size, [](const Config& rank) {
                              return std::vector<Range>{{rank.experts.first_column, rank.experts.ffn_dim}};
                            }};
constexpr Dim kRouted = {expert_count};
constexpr Dim kEachExpert = {
    .size = expert_count,
    .of_rank = [](const Config& rank) { return std::vector<Range>{{rank.experts.first, rank.experts.n}}; },
    .used = [](const Config& c) -> int64_t { return c.experts.n_used; }};
constexpr Slice kGateHalf = {two_expert_sizes}, kUpHalf = {two_expert_sizes, expert_size};

constexpr MatrixRow of_experts(const char* gguf_name, const char* hf_name, Weight& (*member)(void*),
                               const Slice& slice) {
  return {.gguf_name = gguf_name,
          .hf_name = hf_name,
          .member = member,
          .n_out = kExpertFfn,
          .n_in = kModelDim,
          .shard = Shard::kColumns,
          .optional = kOptional,
          .gguf_slice = slice,
          .hf_slice = slice,
          .count = kEachExpert};
}

constexpr VectorRow norm_row(const char* gguf_name, const char* hf_name, VectorMember member) {
  return {.gguf_name = gguf_name, .hf_name = hf_name, .member = member, .n = kModelDim,
          .hf_kept = VectorRow::kLessOne};
}

constexpr MatrixRow kMatrices[] = {
    {.gguf_name = "blk.{}.ffn_gate.weight", .hf_name = "model.layers.{}.mlp.gate_proj.weight",
     .member = at<&B::dense, &Dense::w_gate>, .n_out = kFfn, .n_in = kModelDim, .shard = Shard::kColumns},
    {.gguf_name = "blk.{}.ffn_up.weight", .hf_name = "model.layers.{}.mlp.up_proj.weight",
     .member = at<&B::dense, &Dense::w_up>, .n_out = kFfn, .n_in = kModelDim, .shard = Shard::kColumns},
    {.gguf_name = "blk.{}.ffn_down.weight", .hf_name = "model.layers.{}.mlp.down_proj.weight",
     .member = at<&B::dense, &Dense::w_down>, .n_out = kModelDim, .n_in = kFfn, .shard = Shard::kRows},
    {.gguf_name = "blk.{}.ffn_gate_inp.weight", .hf_name = "model.layers.{}.router.proj.weight",
     .member = at<&B::experts, &Experts::w_router>, .n_out = kRouted, .n_in = kModelDim},
    of_experts("blk.{}.ffn_gate_exps.weight", "model.layers.{}.experts.switch_glu.gate_proj.weight",
               at<&B::experts, &Experts::w_gate>, {}),
    of_experts("blk.{}.ffn_up_exps.weight", "model.layers.{}.experts.switch_glu.up_proj.weight",
               at<&B::experts, &Experts::w_up>, {}),
    of_experts("blk.{}.ffn_gate_up_exps.weight", "model.layers.{}.experts.gate_up_proj",
               at<&B::experts, &Experts::w_gate>, kGateHalf),
    of_experts("blk.{}.ffn_gate_up_exps.weight", "model.layers.{}.experts.gate_up_proj",
               at<&B::experts, &Experts::w_up>, kUpHalf),
    {.gguf_name = "blk.{}.ffn_down_exps.weight",
     .hf_name = "model.layers.{}.experts.down_proj|model.layers.{}.experts.switch_glu.down_proj.weight",
     .member = at<&B::experts, &Experts::w_down>, .n_out = kModelDim, .n_in = kExpertFfn, .shard = Shard::kRows,
     .count = kEachExpert},
};

constexpr VectorRow kVectors[] = {
    norm_row("blk.{}.ffn_norm.weight", "model.layers.{}.pre_feedforward_layernorm.weight",
             at<&B::dense, &Dense::norm, &NormArgs::weight>),
    norm_row("blk.{}.post_ffw_norm_1.weight", "model.layers.{}.post_feedforward_layernorm_1.weight",
             at<&B::dense_post_norm, &NormArgs::weight>),
    norm_row("blk.{}.pre_ffw_norm_2.weight", "model.layers.{}.pre_feedforward_layernorm_2.weight",
             at<&B::experts, &Experts::norm, &NormArgs::weight>),
    norm_row("blk.{}.post_ffw_norm_2.weight", "model.layers.{}.post_feedforward_layernorm_2.weight",
             at<&B::experts_post_norm, &NormArgs::weight>),
    norm_row("blk.{}.post_ffw_norm.weight", "model.layers.{}.post_feedforward_layernorm.weight",
             at<&B::join, &Join::post_norm, &NormArgs::weight>),
    // The router's input is also divided by the root of its size.
    {.gguf_name = "blk.{}.ffn_gate_inp.scale", .hf_name = "model.layers.{}.router.scale",
     .member = at<&B::router_norm, &NormArgs::weight>, .n = kModelDim,
     .factor = [](const Config& c) { return 1.0f / std::sqrt(static_cast<float>(c.dim)); }},
    {.gguf_name = "blk.{}.ffn_down_exps.scale", .hf_name = "model.layers.{}.router.per_expert_scale",
     .member = at<&B::experts, &Experts::route, &RouteArgs::expert_scale>, .n = kRouted, .optional = kOptional},
};

Block make(const Config& c, int) {
  const ExpertConfig& e = c.experts;
  B b;
  b.dense.norm = b.experts.norm = b.dense_post_norm = b.experts_post_norm = b.router_norm = norm_of(c);
  b.dense.act = b.experts.act = c.activation.value_or(c.arch->activation);
  b.dense.ffn_dim = c.ffn_dim;
  b.experts.ffn_dim = e.ffn_dim, b.experts.n_experts = e.n;
  b.experts.route = {.n_used = e.n_used,
                     .scoring = e.scoring,
                     .normalize = e.normalize,
                     .scale = e.scale,
                     .n_groups = e.n_groups,
                     .n_groups_used = e.n_groups_used};
  if (c.share && e.n < c.share->model.experts.n) {
    b.experts.n_experts = c.share->model.experts.n;
    b.experts.route.first_own = static_cast<int>(e.first), b.experts.route.n_own = e.n;
  }
  b.join = {.post_norm = norm_of(c), .has_post_norm = c.arch->post_norms, .sums = c.share != nullptr};
  return b;
}

// Gate and up of the experts are optional, because there is a row for each way to store them.
void check(Block& block, const Config&, int layer, const WeightSource& source) {
  const B& b = block.get<B>();
  if (!b.experts.w_gate || !b.experts.w_up)
    throw Error("{}: the experts' tensors of layer {} are missing, among them '{}'", source.name(), layer,
                source.dialect() == Dialect::kGguf ? fmt::format("blk.{}.ffn_gate_up_exps.weight", layer)
                                                   : fmt::format("model.layers.{}.experts.gate_up_proj", layer));
}

void divide(const Deal& deal, Config& rank) {
  kFeedForwardPart.divide(deal, rank);
  kExpertsPart.divide(deal, rank);
}

}  // namespace
}  // namespace ingot::dense_experts_part

namespace ingot {

const PartKind kDenseExpertsPart = {
    .name = "dense_experts",
    .is_mixer = false,
    .make = dense_experts_part::make,
    .rows = [] { return TensorRows{dense_experts_part::kMatrices, dense_experts_part::kVectors}; },
    .check = dense_experts_part::check,
    .divide = dense_experts_part::divide};

}  // namespace ingot
