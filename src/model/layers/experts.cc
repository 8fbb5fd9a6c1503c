// Mixtures of experts, with or without a shared expert.
#include "backend/blocks/experts.h"

#include "base/error.h"
#include "model/config/shards.h"
#include "model/files/weights.h"
#include "model/layers/joins.h"

namespace ingot::experts_part {
namespace {

using B = ExpertsBlock;

int64_t expert_size(const Config& c) { return c.experts.ffn_dim; }
int64_t two_expert_sizes(const Config& c) { return 2 * int64_t{c.experts.ffn_dim}; }
int64_t expert_count(const Config& c) { return c.experts.n; }
int64_t one(const Config&) { return 1; }

constexpr Dim kRouted = {expert_count};
constexpr Dim kEachExpert = {
    .size = expert_count,
    .of_rank = [](const Config& rank) { return std::vector<Range>{{rank.experts.first, rank.experts.n}}; },
    .used = [](const Config& c) -> int64_t { return c.experts.n_used; }};
constexpr Dim kExpertFfn = {expert_size, [](const Config& rank) {
                              return std::vector<Range>{{rank.experts.first_column, rank.experts.ffn_dim}};
                            }};
constexpr Dim kSharedFfn = {[](const Config& c) -> int64_t { return c.experts.shared_dim; }, [](const Config& rank) {
                              return std::vector<Range>{{rank.experts.first_shared, rank.experts.shared_dim}};
                            }};

constexpr Dim kLatent = {[](const Config& c) -> int64_t { return c.experts.latent_dim; }};
constexpr Dim kExpertIn = {
    [](const Config& c) -> int64_t { return c.experts.latent_dim > 0 ? c.experts.latent_dim : c.dim; }};

int64_t shared_size(const Config& c) { return c.experts.shared_dim; }
int64_t two_shared_sizes(const Config& c) { return 2 * int64_t{c.experts.shared_dim}; }
constexpr Slice kSharedGateHalf = {two_shared_sizes}, kSharedUpHalf = {two_shared_sizes, shared_size};
constexpr Slice kGateHalf = {two_expert_sizes}, kUpHalf = {two_expert_sizes, expert_size};
constexpr Slice kEvenRows = {.total = two_expert_sizes, .step = 2},
                kOddRows = {.total = two_expert_sizes, .first = one, .step = 2};

bool are_interleaved(const Config& c, int) { return c.arch->interleaved_experts; }
bool are_transposed(const Config& c, int) { return c.arch->scales_expert_input; }  // Llama 4
bool are_apart(const Config& c, int layer) { return !are_interleaved(c, layer) && !are_transposed(c, layer); }
bool has_shared_expert(const Config& c, int) { return c.experts.shared_dim > 0; }
bool has_shared_gate(const Config& c, int) { return c.experts.shared_dim > 0 && c.arch->gated; }
bool are_gated(const Config& c, int layer) { return are_apart(c, layer) && c.arch->gated; }
bool have_latents(const Config& c, int) { return c.experts.latent_dim > 0; }

// Each expert has a tensor (qwen and deepseek; mixtral; LFM2), or MLX stacks them. The first Mixtral GGUF files have a
// tensor for each expert too ("blk.{0}.ffn_gate.{1}.weight").
#define EXPERT_NAMES(name, w)                                                                        \
  "model.layers.{0}.mlp.experts.{1}." name ".weight|model.layers.{0}.block_sparse_moe.experts.{1}." w \
  ".weight|model.layers.{0}.feed_forward.experts.{1}." w                                             \
  ".weight|model.layers.{0}.feed_forward.experts.{1}." name                                          \
  ".weight|model.layers.{}.mlp.switch_mlp." name ".weight|model.layers.{}.block_sparse_moe.switch_mlp." name \
  ".weight|model.layers.{}.feed_forward.switch_mlp." name                                            \
  ".weight|backbone.layers.{0}.mixer.experts.{1}." name ".weight"
#define GATE_UP_NAMES "model.layers.{}.mlp.experts.gate_up_proj|model.layers.{}.feed_forward.experts.gate_up_proj"
#define TRANSPOSED_NAMES "~model.layers.{}.feed_forward.experts.gate_up_proj"
#define INTERLEAVED_NAMES "model.layers.{}.mlp.experts.gate_up_proj.weight|~model.layers.{}.mlp.experts.gate_up_proj"
#define SHARED_NAMES(name)                                 \
  "model.layers.{}.mlp.shared_expert." name "_proj.weight|" \
  "model.layers.{}.mlp.shared_experts." name "_proj.weight|" \
  "model.layers.{}.feed_forward.shared_expert." name "_proj.weight|" \
  "backbone.layers.{}.mixer.shared_experts." name "_proj.weight|" \
  "model.layers.{}.block_sparse_moe.shared_experts." name "_proj.weight"

// Gate or up of all experts. Each may be stored in five ways.
constexpr MatrixRow of_experts(const char* gguf_name, const char* hf_name, Weight& (*member)(void*),
                               const Slice& hf_slice = {}, bool (*when)(const Config&, int) = nullptr) {
  return {.gguf_name = gguf_name, .hf_name = hf_name, .member = member, .n_out = kExpertFfn, .n_in = kExpertIn,
          .shard = Shard::kColumns, .optional = kOptional, .when = when, .hf_slice = hf_slice, .count = kEachExpert};
}

constexpr MatrixRow kMatrices[] = {
    {.gguf_name = "blk.{}.ffn_gate_inp.weight",
     .hf_name = "model.layers.{}.mlp.gate.weight|model.layers.{}.mlp.router.weight|"
                "model.layers.{}.block_sparse_moe.gate.weight|model.layers.{}.block_sparse_moe.router.layer.weight|"
                "model.layers.{}.feed_forward.gate.weight|model.layers.{}.feed_forward.router.weight|"
                "backbone.layers.{}.mixer.gate.weight",
     .member = at<&B::w_router>, .n_out = kRouted, .n_in = kModelDim},
    of_experts("blk.{}.ffn_gate_exps.weight|blk.{0}.ffn_gate.{1}.weight", EXPERT_NAMES("gate_proj", "w1"),
               at<&B::w_gate>, {}, are_gated),
    of_experts("blk.{}.ffn_up_exps.weight|blk.{0}.ffn_up.{1}.weight",
               EXPERT_NAMES("up_proj", "w3") "|backbone.layers.{}.mixer.switch_mlp.fc1.weight", at<&B::w_up>),
    of_experts("blk.{}.ffn_gate_exps.weight", "model.layers.{}.block_sparse_moe.input_linear.weight", at<&B::w_gate>,
               kGateHalf),
    of_experts("blk.{}.ffn_up_exps.weight", "model.layers.{}.block_sparse_moe.input_linear.weight", at<&B::w_up>,
               kUpHalf),
    of_experts("blk.{}.ffn_gate_exps.weight", GATE_UP_NAMES, at<&B::w_gate>, kGateHalf,
               are_apart),
    of_experts("blk.{}.ffn_up_exps.weight", GATE_UP_NAMES, at<&B::w_up>, kUpHalf,
               are_apart),
    of_experts("blk.{}.ffn_gate_exps.weight", TRANSPOSED_NAMES, at<&B::w_gate>, kGateHalf, are_transposed),
    of_experts("blk.{}.ffn_up_exps.weight", TRANSPOSED_NAMES, at<&B::w_up>, kUpHalf, are_transposed),
    of_experts("blk.{}.ffn_gate_exps.weight", INTERLEAVED_NAMES, at<&B::w_gate>, kEvenRows, are_interleaved),
    of_experts("blk.{}.ffn_up_exps.weight", INTERLEAVED_NAMES, at<&B::w_up>, kOddRows, are_interleaved),
    {.gguf_name = "blk.{}.ffn_down_exps.weight|blk.{0}.ffn_down.{1}.weight",
     .hf_name = EXPERT_NAMES("down_proj", "w2") "|model.layers.{}.block_sparse_moe.output_linear.weight|"
                                                "backbone.layers.{}.mixer.switch_mlp.fc2.weight|"
                                                "model.layers.{}.mlp.experts.down_proj|"
                                                "model.layers.{}.feed_forward.experts.down_proj",
     .member = at<&B::w_down>, .n_out = kExpertIn, .n_in = kExpertFfn, .shard = Shard::kRows,
     .when = are_apart, .count = kEachExpert},
    {.gguf_name = "blk.{}.ffn_down_exps.weight",
     .hf_name = EXPERT_NAMES("down_proj", "w2") "|~model.layers.{}.feed_forward.experts.down_proj",
     .member = at<&B::w_down>, .n_out = kModelDim, .n_in = kExpertFfn, .shard = Shard::kRows,
     .when = are_transposed, .count = kEachExpert},
    {.gguf_name = "blk.{}.ffn_down_exps.weight",
     .hf_name = "model.layers.{}.mlp.experts.down_proj.weight|~model.layers.{}.mlp.experts.down_proj",
     .member = at<&B::w_down>, .n_out = kModelDim, .n_in = kExpertFfn, .shard = Shard::kRows,
     .when = are_interleaved, .count = kEachExpert},
    {.gguf_name = "blk.{}.ffn_gate_inp_shexp.weight", .hf_name = "model.layers.{}.mlp.shared_expert_gate.weight",
     .member = at<&B::shared_router>, .n_out = kOne, .n_in = kModelDim,
     .optional = kOptional, .when = has_shared_expert},
    // Granite 4's directories have gate and up in one tensor, but its GGUF files have two.
    {.gguf_name = "blk.{}.ffn_gate_shexp.weight", .hf_name = "model.layers.{}.shared_mlp.input_linear.weight",
     .member = at<&B::shared_gate>, .n_out = kSharedFfn, .n_in = kModelDim, .shard = Shard::kColumns,
     .optional = kOptional, .when = has_shared_gate, .hf_slice = kSharedGateHalf},
    {.gguf_name = "blk.{}.ffn_up_shexp.weight", .hf_name = "model.layers.{}.shared_mlp.input_linear.weight",
     .member = at<&B::shared_up>, .n_out = kSharedFfn, .n_in = kModelDim, .shard = Shard::kColumns,
     .optional = kOptional, .when = has_shared_gate, .hf_slice = kSharedUpHalf},
    {.gguf_name = "blk.{}.ffn_gate_shexp.weight", .hf_name = SHARED_NAMES("gate"),
     .member = at<&B::shared_gate>, .n_out = kSharedFfn, .n_in = kModelDim, .shard = Shard::kColumns,
     .when = has_shared_gate},
    {.gguf_name = "blk.{}.ffn_up_shexp.weight", .hf_name = SHARED_NAMES("up"),
     .member = at<&B::shared_up>, .n_out = kSharedFfn, .n_in = kModelDim, .shard = Shard::kColumns,
     .when = has_shared_expert},
    {.gguf_name = "blk.{}.ffn_down_shexp.weight", .hf_name = SHARED_NAMES("down") "|model.layers.{}.shared_mlp.output_linear.weight",
     .member = at<&B::shared_down>, .n_out = kModelDim, .n_in = kSharedFfn, .shard = Shard::kRows,
     .when = has_shared_expert},
    {.gguf_name = "blk.{}.ffn_latent_down.weight", .hf_name = "backbone.layers.{}.mixer.fc1_latent_proj.weight",
     .member = at<&B::w_latent>, .n_out = kLatent, .n_in = kModelDim, .when = have_latents},
    {.gguf_name = "blk.{}.ffn_latent_up.weight", .hf_name = "backbone.layers.{}.mixer.fc2_latent_proj.weight",
     .member = at<&B::w_from_latent>, .n_out = kModelDim, .n_in = kLatent, .when = have_latents},
};

constexpr VectorRow kVectors[] = {
    feed_forward_norm(at<&B::norm, &NormArgs::weight>),
    feed_forward_norm_bias(at<&B::norm, &NormArgs::bias>),
    shared_norm(at<&B::norm, &NormArgs::weight>),
    {.gguf_name = "blk.{}.ffn_gate_inp.bias", .hf_name = "model.layers.{}.mlp.router.bias",
     .member = at<&B::b_router>, .n = kRouted, .optional = kOptional},
    {.gguf_name = "blk.{}.exp_probs_b.bias",
     .hf_name = "model.layers.{}.mlp.gate.e_score_correction_bias|"
                "model.layers.{}.block_sparse_moe.e_score_correction_bias|"
                "model.layers.{}.mlp.moe_statics.e_score_correction_bias|"
                "model.layers.{}.mlp.experts.e_score_correction_bias|model.layers.{}.feed_forward.expert_bias|"
                "backbone.layers.{}.mixer.gate.e_score_correction_bias|"
                "model.layers.{}.block_sparse_moe.gate.e_score_correction_bias",
     .member = at<&B::route, &RouteArgs::bias>, .n = kRouted, .optional = kOptional},
    {.gguf_name = "blk.{}.ffn_gate_exps.bias", .hf_name = "model.layers.{}.mlp.experts.gate_up_proj_bias",
     .member = at<&B::b_gate>, .n = kExpertFfn, .shard = Shard::kColumns, .optional = kOptional,
     .hf_slice = kEvenRows, .count = kEachExpert},
    {.gguf_name = "blk.{}.ffn_up_exps.bias", .hf_name = "model.layers.{}.mlp.experts.gate_up_proj_bias",
     .member = at<&B::b_up>, .n = kExpertFfn, .shard = Shard::kColumns, .optional = kOptional,
     .hf_slice = kOddRows, .count = kEachExpert},
    {.gguf_name = "blk.{}.ffn_down_exps.bias", .hf_name = "model.layers.{}.mlp.experts.down_proj_bias",
     .member = at<&B::b_down>, .n = kModelDim, .shard = Shard::kOnce, .optional = kOptional, .count = kEachExpert},
};

TensorRows rows() { return {kMatrices, kVectors}; }

Block make(const Config& c, int) {
  const ExpertConfig& e = c.experts;
  B b{.norm = norm_of(c)};
  b.route = {.n_used = e.n_used,
             .scoring = e.scoring,
             .normalize = e.normalize,
             .scale = e.scale * c.residual_scale,
             .n_groups = e.n_groups,
             .n_groups_used = e.n_groups_used};
  b.n_experts = e.n;
  if (c.share && e.n < c.share->model.experts.n) {
    b.n_experts = c.share->model.experts.n;
    b.route.first_own = static_cast<int>(e.first), b.route.n_own = e.n;
  }
  b.act = c.arch->activation;
  b.ffn_dim = e.ffn_dim, b.shared_dim = e.shared_dim, b.latent_dim = e.latent_dim;
  b.shared_scale = c.residual_scale * e.shared_scale;
  b.scales_input = c.arch->scales_expert_input;
  b.sums = c.share != nullptr;
  return b;
}

// Each of the rows of gate and up is optional, because there is a row for each way to store them.
void check(Block& block, const Config& c, int layer, const WeightSource& source) {
  const B& b = block.get<B>();
  if ((c.arch->gated && !b.w_gate) || !b.w_up)
    throw Error("{}: the experts' tensors of layer {} are missing, among them '{}'", source.name(), layer,
                source.dialect() == Dialect::kGguf
                    ? fmt::format("blk.{}.ffn_gate_exps.weight", layer)
                    : fmt::format("model.layers.{}.mlp.experts.0.gate_proj.weight", layer));
}

void divide(const Deal& deal, Config& rank) {
  const ExpertConfig& e = deal.model.experts;
  const char* advice = e.n >= deal.n_ranks ? ", but ranks can have whole experts: use ep" : "";
  const Range experts = deal.whole_experts ? deal.deal(e.n, 1, "experts") : Range{0, e.n};
  const Range columns = deal.whole_experts ? Range{0, e.ffn_dim}
                                           : deal.deal_columns(e.ffn_dim, "experts' feed-forward", advice);
  const Range shared = deal.deal_columns(e.shared_dim, "shared expert's feed-forward");
  rank.experts.first = experts.first, rank.experts.n = static_cast<int>(experts.n);
  rank.experts.first_column = columns.first, rank.experts.ffn_dim = static_cast<int>(columns.n);
  rank.experts.first_shared = shared.first, rank.experts.shared_dim = static_cast<int>(shared.n);
}

}  // namespace
}  // namespace ingot::experts_part

namespace ingot {

const PartKind kExpertsPart = {.name = "experts",
                               .is_mixer = false,
                               .is_plain = true,
                               .make = experts_part::make,
                               .rows = experts_part::rows,
                               .check = experts_part::check,
                               .hf_layer_type = "moe",
                               .divide = experts_part::divide};

}  // namespace ingot
