// Feed-forwards of two or three matrices.
#include "backend/blocks/feed_forward.h"

#include <cmath>

#include "io/huggingface/config.h"
#include "model/config/gguf_reader.h"
#include "model/config/shards.h"
#include "model/files/weights.h"
#include "model/config/altup.h"
#include "model/config/multipliers.h"
#include "model/layers/joins.h"

namespace ingot::feed_forward_part {
namespace {

using B = FeedForwardBlock;

int64_t ffn_size(const Config& c) { return c.ffn_dim; }
int64_t two_ffn_sizes(const Config& c) { return 2 * int64_t{c.ffn_dim}; }
constexpr Dim kFfn = {ffn_size, [](const Config& rank) { return std::vector<Range>{rank.share->ffn}; }};
constexpr Slice kGateOfTwo = {two_ffn_sizes}, kUpOfTwo = {two_ffn_sizes, ffn_size};

bool is_fused(const Config& c, int) { return c.arch->fused || c.arch->fused_ffn; }
bool is_apart(const Config& c, int layer) { return !is_fused(c, layer); }
bool has_own_gate(const Config& c, int layer) { return !is_fused(c, layer) && c.arch->gated; }
bool has_xielu(const Config& c, int) { return !c.xielu.empty(); }

constexpr VectorRow xielu_row(const char* hf_name, float& (*number)(void*)) {
  return {.hf_name = hf_name, .scalar = number, .n = kOne, .optional = kOptional, .when = has_xielu};
}

// Names in decoders; Llama 4; StarCoder 2; BERT; Nomic's files; ModernBERT; LFM2; Nemotron-H; Granite 4. `kind`: weight
// or bias.
#define GATE_NAMES(kind)                                                              \
  "model.layers.{}.mlp.gate_proj." kind "|model.layers.{}.feed_forward.gate_proj." kind \
  "|model.encoder.layers.{}.mlp.fc12." kind "|model.layers.{}.feed_forward.w1." kind \
  "|model.layers.{}.block_sparse_moe.gate_proj." kind "|model.layers.{}.mlp_block.gate_proj." kind
#define UP_NAMES(kind)                                                                            \
  "model.layers.{}.mlp.up_proj." kind "|model.layers.{}.feed_forward.up_proj." kind                 \
  "|model.layers.{}.mlp.c_fc." kind "|model.encoder.layer.{}.intermediate.dense." kind              \
  "|model.encoder.layers.{}.mlp.fc11." kind "|model.layers.{}.feed_forward.w3." kind                \
  "|backbone.layers.{}.mixer.up_proj." kind "|model.layers.{}.block_sparse_moe.up_proj." kind \
  "|model.layers.{}.mlp_block.up_proj." kind
#define DOWN_NAMES(kind)                                                              \
  "model.layers.{}.mlp.down_proj." kind "|model.layers.{}.feed_forward.down_proj." kind \
  "|model.layers.{}.mlp.c_proj." kind "|model.encoder.layer.{}.output.dense." kind \
  "|model.encoder.layers.{}.mlp.fc2." kind "|model.layers.{}.mlp.Wo." kind \
  "|model.layers.{}.feed_forward.w2." kind "|backbone.layers.{}.mixer.down_proj." kind \
  "|model.layers.{}.shared_mlp.output_linear." kind "|model.layers.{}.block_sparse_moe.down_proj." kind \
  "|model.layers.{}.mlp_block.down_proj." kind
#define FUSED_NAMES "model.layers.{}.mlp.gate_up_proj.weight|model.layers.{}.mlp.Wi.weight"
#define FFN_SUM_NAMES(kind, old)                                                                  \
  "model.encoder.layer.{}.output.LayerNorm." kind "|model.encoder.layer.{}.output.LayerNorm." old \
  "|model.layers.{}.post_mlp_layernorm." kind "|model.encoder.layers.{}.norm2." kind

float gate_factor(const Config& c, int64_t) { return c.part<Multipliers>().gate; }
float down_factor(const Config& c, int64_t) { return c.part<Multipliers>().down; }

constexpr MatrixRow kMatrices[] = {
    // Granite 4's directories have gate and up in one tensor, but its GGUF files have two.
    {.gguf_name = "blk.{}.ffn_gate.weight", .hf_name = "model.layers.{}.shared_mlp.input_linear.weight",
     .member = at<&B::w_gate>, .n_out = kFfn, .n_in = kModelDim, .shard = Shard::kColumns, .optional = kOptional,
     .when = has_own_gate, .hf_slice = kGateOfTwo, .gguf_factor = gate_factor},
    {.gguf_name = "blk.{}.ffn_up.weight", .hf_name = "model.layers.{}.shared_mlp.input_linear.weight",
     .member = at<&B::w_up>, .n_out = kFfn, .n_in = kModelDim, .shard = Shard::kColumns, .optional = kOptional,
     .when = has_own_gate, .hf_slice = kUpOfTwo},
    {.gguf_name = "blk.{}.ffn_gate.weight", .hf_name = GATE_NAMES("weight"),
     .member = at<&B::w_gate>, .n_out = kFfn, .n_in = kModelDim, .shard = Shard::kColumns, .when = has_own_gate,
     .gguf_factor = gate_factor},
    {.gguf_name = "blk.{}.ffn_up.weight", .hf_name = UP_NAMES("weight"),
     .member = at<&B::w_up>, .n_out = kFfn, .n_in = kModelDim, .shard = Shard::kColumns, .when = is_apart},
    {.gguf_name = "blk.{}.ffn_up.weight", .hf_name = FUSED_NAMES,
     .member = at<&B::w_gate>, .n_out = kFfn, .n_in = kModelDim, .shard = Shard::kColumns,
     .when = is_fused, .gguf_slice = kGateOfTwo, .hf_slice = kGateOfTwo},
    {.gguf_name = "blk.{}.ffn_up.weight", .hf_name = FUSED_NAMES,
     .member = at<&B::w_up>, .n_out = kFfn, .n_in = kModelDim, .shard = Shard::kColumns,
     .when = is_fused, .gguf_slice = kUpOfTwo, .hf_slice = kUpOfTwo},
    {.gguf_name = "blk.{}.ffn_down.weight", .hf_name = DOWN_NAMES("weight"),
     .member = at<&B::w_down>, .n_out = kModelDim, .n_in = kFfn, .shard = Shard::kRows, .gguf_factor = down_factor},
};

constexpr VectorRow kVectors[] = {
    feed_forward_norm(at<&B::norm, &NormArgs::weight>),
    feed_forward_norm_bias(at<&B::norm, &NormArgs::bias>),
    shared_norm(at<&B::norm, &NormArgs::weight>),
    {.gguf_name = "blk.{}.layer_output_norm.weight", .hf_name = FFN_SUM_NAMES("weight", "gamma"),
     .member = at<&B::join, &Join::sum_norm, &NormArgs::weight>, .n = kModelDim, .when = has_sum_norms},
    {.gguf_name = "blk.{}.layer_output_norm.bias", .hf_name = FFN_SUM_NAMES("bias", "beta"),
     .member = at<&B::join, &Join::sum_norm, &NormArgs::bias>, .n = kModelDim,
     .optional = kOptional, .when = has_sum_norms},
    {.gguf_name = "blk.{}.ffn_gate.bias", .hf_name = GATE_NAMES("bias"),
     .member = at<&B::b_gate>, .n = kFfn, .shard = Shard::kColumns, .optional = kOptional, .when = has_own_gate},
    {.gguf_name = "blk.{}.ffn_up.bias", .hf_name = UP_NAMES("bias"),
     .member = at<&B::b_up>, .n = kFfn, .shard = Shard::kColumns, .optional = kOptional, .when = is_apart},
    {.gguf_name = "blk.{}.ffn_up.bias", .hf_name = "model.layers.{}.mlp.Wi.bias",
     .member = at<&B::b_gate>, .n = kFfn, .shard = Shard::kColumns,
     .optional = kOptional, .when = is_fused, .gguf_slice = kGateOfTwo, .hf_slice = kGateOfTwo},
    {.gguf_name = "blk.{}.ffn_up.bias", .hf_name = "model.layers.{}.mlp.Wi.bias",
     .member = at<&B::b_up>, .n = kFfn, .shard = Shard::kColumns,
     .optional = kOptional, .when = is_fused, .gguf_slice = kUpOfTwo, .hf_slice = kUpOfTwo},
    {.gguf_name = "blk.{}.ffn_down.bias", .hf_name = DOWN_NAMES("bias"),
     .member = at<&B::b_down>, .n = kModelDim, .shard = Shard::kOnce, .optional = kOptional},
    {.gguf_name = "blk.{}.post_ffw_norm.weight",
     .hf_name = "model.layers.{}.post_feedforward_layernorm.weight|model.layers.{}.post_mlp_layernorm.weight|"
     "model.layers.{}.post_ffn_norm.weight",
     .member = at<&B::join, &Join::post_norm, &NormArgs::weight>, .n = kModelDim,
     .when = has_post_norms, .hf_kept = VectorRow::kLessOne},
    xielu_row("model.layers.{}.mlp.act_fn.alpha_p", at<&B::xielu, &Xielu::plus>),
    xielu_row("model.layers.{}.mlp.act_fn.alpha_n", at<&B::xielu, &Xielu::minus>),
    xielu_row("model.layers.{}.mlp.act_fn.beta", at<&B::xielu, &Xielu::beta>),
    xielu_row("model.layers.{}.mlp.act_fn.eps", at<&B::xielu, &Xielu::eps>),
};

TensorRows rows() { return {kMatrices, kVectors}; }

Block make(const Config& c, int layer) {
  B b{.norm = norm_of(c), .act = c.activation.value_or(c.arch->activation), .ffn_dim = c.ffn_dim,
      .join = join_of(c, layer)};
  b.has_xielu = !c.xielu.empty();
  b.gate_scale = c.part<Multipliers>().gate;
  b.join.scale *= c.part<Multipliers>().down;
  if (b.has_xielu) b.xielu = c.xielu[static_cast<size_t>(layer)];
  if (const auto& all = c.part<AltUpConfig>().deviations; !all.empty()) {
    b.join.sums = false;  // all ranks compute all of it
    if (std::isfinite(all[static_cast<size_t>(layer)])) b.deviations = all[static_cast<size_t>(layer)];
  }
  return b;
}

// Files have the numbers of xIELU before softplus.
void check(Block& block, const Config&, int, const WeightSource&) {
  B& b = block.get<B>();
  if (!b.has_xielu) return;
  const auto softplus = [](float v) { return std::log1p(std::exp(v)); };
  b.xielu.plus = softplus(b.xielu.plus), b.xielu.minus = b.xielu.beta + softplus(b.xielu.minus);
}

void read_gguf(const GgufKeys& keys, Config& c) {
  if (!keys.metadata().contains("xielu.alpha_p")) return;
  c.xielu.resize(static_cast<size_t>(c.n_layers));
  const auto read = [&](const std::string& key, float Xielu::*number) {
    const auto all = keys.metadata().find_f32_per_layer(key, c.xielu.size());
    if (!all) throw keys.metadata().error(key, "is missing");
    for (size_t i = 0; i < all->size(); ++i) c.xielu[i].*number = (*all)[i];
  };
  read("xielu.alpha_p", &Xielu::plus), read("xielu.alpha_n", &Xielu::minus);
  read("xielu.beta", &Xielu::beta), read("xielu.eps", &Xielu::eps);
}

void read_hf(const HfConfig& file, Config& c) {
  if (file.hidden_act == "xielu") c.xielu.resize(static_cast<size_t>(c.n_layers));
}

// A sparse gate depends on the mean of its whole row, so ranks do not divide the feed-forwards of such models.
void divide(const Deal& deal, Config& rank) {
  if (!deal.model.part<AltUpConfig>().deviations.empty()) return void(deal.share.ffn = {0, deal.model.ffn_dim});
  deal.share.ffn = deal.deal_columns(deal.model.ffn_dim, "feed-forward");
  rank.ffn_dim = static_cast<int>(deal.share.ffn.n);
}

}  // namespace
}  // namespace ingot::feed_forward_part

namespace ingot {

const PartKind kFeedForwardPart = {.name = "feed_forward",
                                   .is_mixer = false,
                                   .is_plain = true,
                                   .make = feed_forward_part::make,
                                   .rows = feed_forward_part::rows,
                                   .check = feed_forward_part::check,
                                   .read_gguf = feed_forward_part::read_gguf,
                                   .read_hf = feed_forward_part::read_hf,
                                   .hf_layer_type = "mlp",
                                   .divide = feed_forward_part::divide};

}  // namespace ingot
