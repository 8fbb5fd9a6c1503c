// RWKV-7's mixer (backend/blocks/rwkv7.h) and its feed-forward (backend/blocks/channel_mix.h). Every rank computes all
// of both. Directories have the names and keys of the package fla.
#include "model/layers/rwkv7.h"

#include <cmath>

#include "backend/blocks/channel_mix.h"
#include "backend/blocks/rwkv7.h"
#include "base/error.h"
#include "io/huggingface/config.h"
#include "model/config/gguf_reader.h"
#include "model/config/gguf_writer.h"
#include "model/layers/joins.h"

namespace ingot::rwkv7_part {
namespace {

using B = Rwkv7Block;
using F = ChannelMixBlock;

constexpr int kMaxWkvHeadDim = 256, kMaxLowRank = 1 << 16, kMixesOfToken = 6;
constexpr float kUsualHeadEps = 64e-5f;  // of all GGUF files

const Rwkv7Config& sizes(const Config& c) { return c.part<Rwkv7Config>(); }

constexpr Dim kDecayRank = {[](const Config& c) -> int64_t { return sizes(c).decay_rank; }};
constexpr Dim kRateRank = {[](const Config& c) -> int64_t { return sizes(c).rate_rank; }};
constexpr Dim kValueRank = {[](const Config& c) -> int64_t { return sizes(c).value_rank; }};
constexpr Dim kGateRank = {[](const Config& c) -> int64_t { return sizes(c).gate_rank; }};
constexpr Dim kMixes = {[](const Config&) -> int64_t { return kMixesOfToken; }};
constexpr Dim kWidth = {[](const Config& c) -> int64_t { return c.ffn_dim; }};

bool is_first_layer(const Config&, int layer) { return layer == 0; }
bool is_later_layer(const Config&, int layer) { return layer > 0; }

constexpr MatrixRow matrix(const char* gguf_name, const char* hf_name, Weight& (*member)(void*), const Dim& n_out,
                           const Dim& n_in) {
  return {.gguf_name = gguf_name, .hf_name = hf_name, .member = member, .n_out = n_out, .n_in = n_in};
}
// The first layer does not use the matrices of its values, but llama.cpp needs their tensors. Its converter writes the
// rate's in place of them.
constexpr MatrixRow value_matrix(const char* gguf_name, const char* hf_name, Weight& (*member)(void*), const Dim& n_out,
                                 const Dim& n_in, bool is_first) {
  MatrixRow row = matrix(gguf_name, hf_name, member, n_out, n_in);
  row.when = is_first ? is_first_layer : is_later_layer;
  row.optional = is_first ? +kOptional : nullptr;
  return row;
}

#define ATTN(name) "model.layers.{}.attn." name
constexpr MatrixRow kMatrices[] = {
    matrix("blk.{}.time_mix_receptance.weight", ATTN("r_proj.weight"), at<&B::wr>, kModelDim, kModelDim),
    matrix("blk.{}.time_mix_key.weight", ATTN("k_proj.weight"), at<&B::wk>, kModelDim, kModelDim),
    matrix("blk.{}.time_mix_value.weight", ATTN("v_proj.weight"), at<&B::wv>, kModelDim, kModelDim),
    matrix("blk.{}.time_mix_w1.weight", ATTN("w_lora.lora.0.weight"), at<&B::decay, &LowRank::down>, kDecayRank,
           kModelDim),
    matrix("blk.{}.time_mix_w2.weight", ATTN("w_lora.lora.2.weight"), at<&B::decay, &LowRank::up>, kModelDim,
           kDecayRank),
    matrix("blk.{}.time_mix_a1.weight", ATTN("a_lora.lora.0.weight"), at<&B::rate, &LowRank::down>, kRateRank,
           kModelDim),
    matrix("blk.{}.time_mix_a2.weight", ATTN("a_lora.lora.2.weight"), at<&B::rate, &LowRank::up>, kModelDim, kRateRank),
    value_matrix("blk.{}.time_mix_v1.weight", ATTN("a_lora.lora.0.weight"), at<&B::value, &LowRank::down>, kRateRank,
                 kModelDim, true),
    value_matrix("blk.{}.time_mix_v2.weight", ATTN("a_lora.lora.2.weight"), at<&B::value, &LowRank::up>, kModelDim,
                 kRateRank, true),
    value_matrix("blk.{}.time_mix_v1.weight", ATTN("v_lora.lora.0.weight"), at<&B::value, &LowRank::down>, kValueRank,
                 kModelDim, false),
    value_matrix("blk.{}.time_mix_v2.weight", ATTN("v_lora.lora.2.weight"), at<&B::value, &LowRank::up>, kModelDim,
                 kValueRank, false),
    matrix("blk.{}.time_mix_g1.weight", ATTN("g_lora.lora.0.weight"), at<&B::gate, &LowRank::down>, kGateRank,
           kModelDim),
    matrix("blk.{}.time_mix_g2.weight", ATTN("g_lora.lora.2.weight"), at<&B::gate, &LowRank::up>, kModelDim, kGateRank),
    matrix("blk.{}.time_mix_output.weight", ATTN("o_proj.weight"), at<&B::wo>, kModelDim, kModelDim),
};

constexpr VectorRow vector(const char* gguf_name, const char* hf_name, VectorMember member) {
  return {.gguf_name = gguf_name, .hf_name = hf_name, .member = member, .n = kModelDim};
}
constexpr VectorRow value_bias(const char* hf_name, bool is_first) {
  VectorRow row = vector("blk.{}.time_mix_v0.weight", hf_name, at<&B::value, &LowRank::bias>);
  row.when = is_first ? is_first_layer : is_later_layer;
  row.optional = is_first ? +kOptional : nullptr;
  return row;
}

constexpr VectorRow kVectors[] = {
    mixer_norm(at<&B::norm, &NormArgs::weight>),
    mixer_norm_bias(at<&B::norm, &NormArgs::bias>),
    {.gguf_name = "blk.{}.time_mix_lerp_fused.weight",
     .hf_name = ATTN("x_r") "&" ATTN("x_w") "&" ATTN("x_k") "&" ATTN("x_v") "&" ATTN("x_a") "&" ATTN("x_g")
                "|" ATTN("x_x"),
     .member = at<&B::mix>, .n = kModelDim, .count = kMixes, .gguf_ones = 2},
    vector("blk.{}.time_mix_w0.weight", ATTN("w_lora.lora.2.bias"), at<&B::decay, &LowRank::bias>),
    vector("blk.{}.time_mix_a0.weight", ATTN("a_lora.lora.2.bias"), at<&B::rate, &LowRank::bias>),
    value_bias(ATTN("a_lora.lora.2.bias"), true),
    value_bias(ATTN("v_lora.lora.2.bias"), false),
    vector("blk.{}.time_mix_k_k.weight", ATTN("k_k"), at<&B::k_k>),
    vector("blk.{}.time_mix_k_a.weight", ATTN("k_a"), at<&B::k_a>),
    vector("blk.{}.time_mix_r_k.weight", ATTN("r_k"), at<&B::r_k>),
    vector("blk.{}.time_mix_ln.weight", ATTN("g_norm.weight"), at<&B::head_norm, &NormArgs::weight>),
    vector("blk.{}.time_mix_ln.bias", ATTN("g_norm.bias"), at<&B::head_norm, &NormArgs::bias>),
};
#undef ATTN

constexpr MatrixRow kMixMatrices[] = {
    matrix("blk.{}.channel_mix_key.weight", "model.layers.{}.ffn.key.weight", at<&F::w_up>, kWidth, kModelDim),
    matrix("blk.{}.channel_mix_value.weight", "model.layers.{}.ffn.value.weight", at<&F::w_down>, kModelDim, kWidth),
};
constexpr VectorRow kMixVectors[] = {
    vector("blk.{}.attn_norm_2.weight", "model.layers.{}.ffn_norm.weight", at<&F::norm, &NormArgs::weight>),
    {.gguf_name = "blk.{}.attn_norm_2.bias", .hf_name = "model.layers.{}.ffn_norm.bias",
     .member = at<&F::norm, &NormArgs::bias>, .n = kModelDim, .optional = kOptional},
    vector("blk.{}.channel_mix_lerp_k.weight", "model.layers.{}.ffn.x_k", at<&F::mix>),
};

void check_head_dim(const Config& c, const Error& wrong) {
  if (c.dim % sizes(c).head_dim != 0) throw wrong;
}

void read_gguf(const GgufKeys& keys, Config& c) {
  const auto rank = [&](const char* key) { return keys.integer(key, 1, kMaxLowRank); };
  c.parts.set(Rwkv7Config{.head_dim = keys.integer("wkv.head_size", 1, kMaxWkvHeadDim),
                          .decay_rank = rank("attention.decay_lora_rank"),
                          .rate_rank = rank("attention.iclr_lora_rank"),
                          .value_rank = rank("attention.value_residual_mix_lora_rank"),
                          .gate_rank = rank("attention.gate_lora_rank"),
                          .head_eps = kUsualHeadEps});
  check_head_dim(c, keys.error("wkv.head_size", "{} does not divide embedding_length {}", sizes(c).head_dim, c.dim));
}

// What a file may say that the layers do not do.
void refuse_variants(const HfConfig& file, const Config& c) {
  if (file.has("attn")) throw file.error("attn", "lists layers with attention, which are not supported");
  if (!file.flag_or("norm_first", true)) throw file.error("norm_first", "is false, which is not supported");
  for (const float width : file.numbers("value_dim"))
    if (width != static_cast<float>(c.dim))
      throw file.error("value_dim", "{} differs from hidden_size {}: not supported", width, c.dim);
}

void read_hf(const HfConfig& file, Config& c) {
  refuse_variants(file, c);
  const auto rank = [&](const char* key) {
    const int value = file.integer_or(key, 0, 1, kMaxLowRank);
    if (value == 0) throw file.error(key, "is missing");
    return value;
  };
  const int head_dim = file.integer_or("head_dim", 64, 1, kMaxWkvHeadDim);
  c.parts.set(Rwkv7Config{.head_dim = head_dim,
                          .decay_rank = rank("decay_low_rank_dim"),
                          .rate_rank = rank("a_low_rank_dim"),
                          .value_rank = rank("v_low_rank_dim"),
                          .gate_rank = rank("gate_low_rank_dim"),
                          .head_eps = static_cast<float>(head_dim) * c.norm_eps});
  check_head_dim(c, file.error("head_dim", "{} does not divide hidden_size {}", head_dim, c.dim));
  c.n_ctx_train = 1 << 20;  // as in GGUF files: the length of a text has no limit
}

void write_gguf(const Config& c, const GgufKeyWriter& keys) {
  const Rwkv7Config& r = sizes(c);
  if (std::abs(r.head_eps - kUsualHeadEps) > 1e-7f)
    throw Error(
        "GGUF cannot store the eps of the heads' norms, {}, but only {}: run the directory without converting it",
        r.head_eps, kUsualHeadEps);
  keys.count("wkv.head_size", r.head_dim);
  keys.count("attention.decay_lora_rank", r.decay_rank);
  keys.count("attention.iclr_lora_rank", r.rate_rank);
  keys.count("attention.value_residual_mix_lora_rank", r.value_rank);
  keys.count("attention.gate_lora_rank", r.gate_rank);
}

StateBuffer last_token(const Config& c) { return {.name = "last token", .cols = c.dim}; }

std::vector<StateBuffer> states(const Config& c) {
  const int head_dim = sizes(c).head_dim;
  return {last_token(c),
          {.name = "matrices", .count = c.dim / head_dim, .rows = head_dim, .cols = head_dim, .by_column = true}};
}

Block make(const Config& c, int layer) {
  const Rwkv7Config& r = sizes(c);
  B b{.norm = norm_of(c),
      .n_heads = c.dim / r.head_dim,
      .head_dim = r.head_dim,
      .ranks = r.decay_rank + r.rate_rank + r.value_rank + r.gate_rank,
      .is_first = layer == 0,
      .join = join_of(c, layer)};
  b.head_norm.eps = r.head_eps;
  b.join.sums = false;
  return b;
}

void read_mix_gguf(const GgufKeys& keys, Config& c) { c.ffn_dim = keys.integer("feed_forward_length", 1, 1 << 24); }
void write_mix_gguf(const Config& c, const GgufKeyWriter& keys) { keys.count("feed_forward_length", c.ffn_dim); }
std::vector<StateBuffer> mix_states(const Config& c) { return {last_token(c)}; }

Block make_mix(const Config& c, int layer) {
  F b{.norm = norm_of(c), .act = c.arch->activation, .ffn_dim = c.ffn_dim, .join = join_of(c, layer)};
  b.join.sums = false;
  return b;
}

}  // namespace
}  // namespace ingot::rwkv7_part

namespace ingot {

extern const PartKind kRwkv7Part, kChannelMixPart;
const PartKind kRwkv7Part = {.name = "rwkv7",
                             .make = rwkv7_part::make,
                             .rows = [] { return TensorRows{rwkv7_part::kMatrices, rwkv7_part::kVectors}; },
                             .read_gguf = rwkv7_part::read_gguf,
                             .read_hf = rwkv7_part::read_hf,
                             .write_gguf = rwkv7_part::write_gguf,
                             .states = rwkv7_part::states};
const PartKind kChannelMixPart = {.name = "channel_mix",
                                  .is_mixer = false,
                                  .make = rwkv7_part::make_mix,
                                  .rows = [] { return TensorRows{rwkv7_part::kMixMatrices, rwkv7_part::kMixVectors}; },
                                  .read_gguf = rwkv7_part::read_mix_gguf,
                                  .write_gguf = rwkv7_part::write_mix_gguf,
                                  .states = rwkv7_part::mix_states};

}  // namespace ingot
