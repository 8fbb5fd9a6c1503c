// Gated delta nets (backend/blocks/delta_net.h) whose projections and short convolutions are separate tensors, as
// flash-linear-attention has them. Every rank computes all of it.
#include <algorithm>

#include "backend/blocks/delta_net.h"
#include "model/layers/delta_net.h"
#include "model/layers/joins.h"
#include "model/layers/listed_layers.h"

namespace ingot {
extern const PartKind kGatedDeltaPart;
}
namespace ingot::gated_delta_part {
namespace {

using B = DeltaBlock;

const DeltaConfig& delta(const Config& c) { return c.part<DeltaConfig>(); }

constexpr Dim kKeys = {[](const Config& c) -> int64_t { return delta(c).all_keys(); }};
constexpr Dim kValues = {[](const Config& c) -> int64_t { return delta(c).all_values(); }};
constexpr Dim kHeads = {[](const Config& c) -> int64_t { return delta(c).n_value_heads; }};
constexpr Dim kValue = {[](const Config& c) -> int64_t { return delta(c).value_dim; }};
constexpr Dim kConvWidth = {[](const Config& c) -> int64_t { return delta(c).conv_width; }};

constexpr MatrixRow matrix(const char* gguf_name, const char* hf_name, Weight& (*member)(void*), const Dim& n_out,
                           const Dim& n_in = kModelDim) {
  return {.gguf_name = gguf_name, .hf_name = hf_name, .member = member, .n_out = n_out, .n_in = n_in};
}

#define DELTA(name) "model.layers.{}.linear_attn." name
constexpr MatrixRow kMatrices[] = {
    matrix("blk.{}.attn_q.weight", DELTA("q_proj.weight"), at<&B::wq>, kKeys),
    matrix("blk.{}.attn_k.weight", DELTA("k_proj.weight"), at<&B::wk>, kKeys),
    matrix("blk.{}.attn_v.weight", DELTA("v_proj.weight"), at<&B::wv>, kValues),
    matrix("blk.{}.attn_gate.weight", DELTA("g_proj.weight"), at<&B::gate>, kValues),
    matrix("blk.{}.ssm_beta.weight", DELTA("b_proj.weight"), at<&B::w_beta>, kHeads),
    matrix("blk.{}.ssm_alpha.weight", DELTA("a_proj.weight"), at<&B::w_alpha>, kHeads),
    matrix("blk.{}.ssm_out.weight", DELTA("o_proj.weight"), at<&B::wo>, kModelDim, kValues),
};

constexpr VectorRow conv_row(const char* gguf_name, const char* hf_name, VectorMember member, const Dim& channels) {
  return {.gguf_name = gguf_name, .hf_name = hf_name, .member = member, .n = kConvWidth, .count = channels};
}

constexpr VectorRow kVectors[] = {
    mixer_norm(at<&B::norm, &NormArgs::weight>),
    conv_row("blk.{}.ssm_conv1d_q.weight", DELTA("q_conv1d.weight"), at<&B::conv>, kKeys),
    conv_row("blk.{}.ssm_conv1d_k.weight", DELTA("k_conv1d.weight"), at<&B::conv_k>, kKeys),
    conv_row("blk.{}.ssm_conv1d_v.weight", DELTA("v_conv1d.weight"), at<&B::conv_v>, kValues),
    {.gguf_name = "blk.{}.ssm_a", .hf_name = DELTA("A_log"), .member = at<&B::decay>, .n = kHeads,
     .hf_kept = VectorRow::kLog},
    {.gguf_name = "blk.{}.ssm_dt.bias", .hf_name = DELTA("dt_bias"), .member = at<&B::dt>, .n = kHeads},
    {.gguf_name = "blk.{}.ssm_norm.weight", .hf_name = DELTA("o_norm.weight"),
     .member = at<&B::value_norm, &NormArgs::weight>, .n = kValue},
    mixer_post_norm(at<&B::join, &Join::post_norm, &NormArgs::weight>),
};
#undef DELTA

TensorRows rows() { return {kMatrices, kVectors}; }

constexpr float kValueNormEps = 1e-5f;  // whatever the model's norms have

void read_gguf(const GgufKeys& keys, Config& c) {
  DeltaConfig d = read_delta_sizes(keys);
  d.share = keys.positive_or("ssm.beta_scale", 1);
  c.parts.set(d);
  mark_layers_without_kv_heads(keys, c, kGatedDeltaPart);
}

// The last of every four layers has attention, and in shorter models the last layer, if the file does not list them.
void read_hf(const HfConfig& file, Config& c) {
  const int n_keys = file.integer_or("linear_num_key_heads", c.n_heads, 1, 4096);
  DeltaConfig usual{.n_key_heads = n_keys, .n_value_heads = c.n_heads, .key_dim = 3 * c.dim / 4 / n_keys};
  usual.value_dim = 2 * file.integer_or("linear_key_head_dim", usual.key_dim, 1, 1024);
  DeltaConfig d = read_delta_sizes(file, usual);
  d.share = file.flag_or("linear_allow_neg_eigval", true) ? 2 : 1;
  c.parts.set(d);
  if (file.layer_types.empty() && c.n_layers < 4) set_mixer(c.layers.back(), *kv_mixer(*c.arch));
}

void write_gguf(const Config& c, const GgufKeyWriter& keys) {
  write_delta_sizes(delta(c), keys);
  keys.set("ssm.beta_scale", delta(c).share);
}

// The inputs of the short convolutions but the token's own, and each head's matrix.
std::vector<StateBuffer> states(const Config& c) {
  const DeltaConfig& d = delta(c);
  const StateBuffer keys{.name = "inputs", .rows = d.conv_width - 1, .cols = d.all_keys()},
      values{.name = "inputs", .rows = d.conv_width - 1, .cols = d.all_values()};
  return {keys, keys, values,
          {.name = "matrices", .count = d.n_value_heads, .rows = d.key_dim, .cols = d.value_dim, .by_column = true}};
}

Block make(const Config& c, int layer) {
  const DeltaConfig& d = delta(c);
  B b{.norm = norm_of(c)};
  b.value_norm.eps = kValueNormEps;
  b.n_key_heads = d.n_key_heads, b.n_heads = d.n_value_heads, b.key_dim = d.key_dim, b.value_dim = d.value_dim;
  b.has_three_convs = true, b.share = d.share;
  b.join = join_of(c, layer);
  b.join.sums = false;
  return b;
}

}  // namespace
}  // namespace ingot::gated_delta_part

namespace ingot {

const PartKind kGatedDeltaPart = {.name = "gated_delta",
                                  .make = gated_delta_part::make,
                                  .rows = gated_delta_part::rows,
                                  .read_gguf = gated_delta_part::read_gguf,
                                  .read_hf = gated_delta_part::read_hf,
                                  .write_gguf = gated_delta_part::write_gguf,
                                  .hf_layer_type = "linear_attention",
                                  .states = gated_delta_part::states};

}  // namespace ingot
