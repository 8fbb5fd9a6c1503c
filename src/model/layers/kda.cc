// Kimi's delta attention (backend/blocks/kda.h). Every rank computes all of it.
#include "model/layers/kda.h"

#include <algorithm>

#include "backend/blocks/kda.h"
#include "base/error.h"
#include "io/huggingface/config.h"
#include "model/config/gguf_reader.h"
#include "model/config/gguf_writer.h"
#include "model/layers/joins.h"
#include "model/layers/listed_layers.h"
#include "model/layers/short_conv.h"

namespace ingot {
extern const PartKind kKdaPart;
}
namespace ingot::kda_part {
namespace {

using B = KdaBlock;

constexpr int kMaxKdaHeads = 4096, kMaxKdaHeadDim = 256;

const KdaConfig& kda(const Config& c) { return c.part<KdaConfig>(); }

constexpr Dim kKeys = {[](const Config& c) -> int64_t { return int64_t{kda(c).n_heads} * kda(c).head_dim; }};
constexpr Dim kRank = {[](const Config& c) -> int64_t { return kda(c).head_dim; }};
constexpr Dim kHeads = {[](const Config& c) -> int64_t { return kda(c).n_heads; }};
constexpr Dim kConvWidth = {[](const Config& c) -> int64_t { return kda(c).conv_width; }};

constexpr MatrixRow matrix(const char* gguf_name, const char* hf_name, Weight& (*member)(void*), const Dim& n_out,
                           const Dim& n_in) {
  return {.gguf_name = gguf_name, .hf_name = hf_name, .member = member, .n_out = n_out, .n_in = n_in};
}

#define ATTN(name) "model.layers.{}.self_attn." name ".weight"
constexpr MatrixRow kMatrices[] = {
    matrix("blk.{}.attn_q.weight", ATTN("q_proj"), at<&B::wq>, kKeys, kModelDim),
    matrix("blk.{}.attn_k.weight", ATTN("k_proj"), at<&B::wk>, kKeys, kModelDim),
    matrix("blk.{}.attn_v.weight", ATTN("v_proj"), at<&B::wv>, kKeys, kModelDim),
    matrix("blk.{}.ssm_beta.weight", ATTN("b_proj"), at<&B::w_beta>, kHeads, kModelDim),
    matrix("blk.{}.ssm_f_a.weight", ATTN("f_a_proj"), at<&B::rates, &LowRank::down>, kRank, kModelDim),
    matrix("blk.{}.ssm_f_b.weight", ATTN("f_b_proj"), at<&B::rates, &LowRank::up>, kKeys, kRank),
    matrix("blk.{}.ssm_g_a.weight", ATTN("g_a_proj"), at<&B::gate, &LowRank::down>, kRank, kModelDim),
    matrix("blk.{}.ssm_g_b.weight", ATTN("g_b_proj"), at<&B::gate, &LowRank::up>, kKeys, kRank),
    matrix("blk.{}.attn_output.weight", ATTN("o_proj"), at<&B::wo>, kModelDim, kKeys),
};

constexpr VectorRow conv_row(const char* gguf_name, const char* hf_name, VectorMember member) {
  return {.gguf_name = gguf_name, .hf_name = hf_name, .member = member, .n = kConvWidth, .count = kKeys,
          .gguf_ones = 1};
}

constexpr VectorRow kVectors[] = {
    mixer_norm(at<&B::norm, &NormArgs::weight>),
    conv_row("blk.{}.ssm_conv1d_q.weight", ATTN("q_conv1d"), at<&B::conv_q>),
    conv_row("blk.{}.ssm_conv1d_k.weight", ATTN("k_conv1d"), at<&B::conv_k>),
    conv_row("blk.{}.ssm_conv1d_v.weight", ATTN("v_conv1d"), at<&B::conv_v>),
    {.gguf_name = "blk.{}.ssm_a", .hf_name = "model.layers.{}.self_attn.A_log",
     .member = at<&B::decay>, .n = kOne, .hf_kept = VectorRow::kLog, .count = kHeads},
    {.gguf_name = "blk.{}.ssm_dt.bias", .hf_name = "model.layers.{}.self_attn.dt_bias", .member = at<&B::dt>,
     .n = kKeys},
    {.gguf_name = "blk.{}.ssm_norm.weight", .hf_name = ATTN("o_norm"),
     .member = at<&B::value_norm, &NormArgs::weight>, .n = kRank},
    mixer_post_norm(at<&B::join, &Join::post_norm, &NormArgs::weight>),
};
#undef ATTN

TensorRows rows() { return {kMatrices, kVectors}; }

void read_gguf(const GgufKeys& keys, Config& c) {
  c.parts.set(KdaConfig{.n_heads = keys.integer("attention.head_count", 1, kMaxKdaHeads),
                        .head_dim = keys.integer("kda.head_dim", 1, kMaxKdaHeadDim),
                        .conv_width = keys.integer("ssm.conv_kernel", 2, kMaxConvWidth)});
  mark_layers_without_kv_heads(keys, c, kKdaPart);
}

void read_hf(const HfConfig& file, Config& c) {
  // Published files have the sizes in an object, newer files of transformers in keys of their own.
  const auto needed = [&](const char* inner, const char* key, int64_t low, int64_t high) {
    const int value = file.integer_in("linear_attn_config", inner, file.integer_or(key, 0, low, high), low, high);
    if (value == 0) throw file.error(key, "is missing");
    return value;
  };
  c.parts.set(KdaConfig{.n_heads = needed("num_heads", "linear_num_heads", 1, kMaxKdaHeads),
                        .head_dim = needed("head_dim", "linear_head_dim", 1, kMaxKdaHeadDim),
                        .conv_width = needed("short_conv_kernel_size", "linear_conv_kernel_dim", 2, kMaxConvWidth)});
  if (!file.layer_types.empty()) return;
  for (int i = 0; i < c.n_layers; ++i)  // as transformers does if the file lists no layers
    set_mixer(c.layers[i], i > 0 && i % 4 == 0 ? *kv_mixer(*c.arch) : kKdaPart);
}

void write_gguf(const Config& c, const GgufKeyWriter& keys) {
  if (kda(c).n_heads != c.n_heads)
    throw Error("GGUF cannot store {} heads of delta attention beside {} heads of attention: run the directory without "
                "converting it", kda(c).n_heads, c.n_heads);
  keys.count("ssm.conv_kernel", kda(c).conv_width);
  keys.count("kda.head_dim", kda(c).head_dim);
}

// The inputs of the short convolutions but the token's own, and each head's matrix.
std::vector<StateBuffer> states(const Config& c) {
  const KdaConfig& d = kda(c);
  const StateBuffer inputs{.name = "inputs", .rows = d.conv_width - 1, .cols = int64_t{d.n_heads} * d.head_dim};
  return {inputs, inputs, inputs,
          {.name = "matrices", .count = d.n_heads, .rows = d.head_dim, .cols = d.head_dim, .by_column = true}};
}

Block make(const Config& c, int layer) {
  const KdaConfig& d = kda(c);
  B b{.norm = norm_of(c), .n_heads = d.n_heads, .head_dim = d.head_dim, .rank = d.head_dim, .join = join_of(c, layer)};
  b.value_norm.eps = c.norm_eps;
  b.join.sums = false;
  return b;
}

}  // namespace
}  // namespace ingot::kda_part

namespace ingot {

const PartKind kKdaPart = {.name = "kda",
                           .make = kda_part::make,
                           .rows = kda_part::rows,
                           .read_gguf = kda_part::read_gguf,
                           .read_hf = kda_part::read_hf,
                           .write_gguf = kda_part::write_gguf,
                           .hf_layer_type = "linear_attention",
                           .states = kda_part::states};

}  // namespace ingot
