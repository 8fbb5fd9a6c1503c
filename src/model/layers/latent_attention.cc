// Attention over latents (backend/blocks/latent_attention.h).
#include "model/layers/latent_attention.h"

#include "backend/blocks/latent_attention.h"
#include "base/error.h"
#include "io/huggingface/config.h"
#include "model/config/gguf_reader.h"
#include "model/config/gguf_writer.h"
#include "model/config/shards.h"
#include "model/files/weights.h"
#include "model/layers/joins.h"

namespace ingot::latent_attention_part {
namespace {

using B = LatentAttentionBlock;
constexpr float kLatentEps = 1e-6f;  // of the latents' norms; other norms of the model may have another eps

const LatentConfig& latents(const Config& c) { return c.part<LatentConfig>(); }
int64_t nope_size(const Config& c) { return latents(c).nope_dim; }
int64_t nope_and_value_size(const Config& c) { return latents(c).nope_dim + latents(c).value_dim; }
int64_t query_size(const Config& c) { return latents(c).nope_dim + latents(c).rope_dim; }
std::vector<Range> own_latent_heads(const Config& rank) { return {rank.share->heads}; }

constexpr Dim kQueries = {[](const Config& c) { return c.n_heads * query_size(c); },
                          [](const Config& rank) { return scaled(rank.share->heads, query_size(rank)); }};
constexpr Dim kValues = {[](const Config& c) -> int64_t { return int64_t{c.n_heads} * latents(c).value_dim; },
                         [](const Config& rank) { return scaled(rank.share->heads, latents(rank).value_dim); }};
constexpr Dim kQRank = {[](const Config& c) -> int64_t { return latents(c).q_rank; }};
constexpr Dim kKvRank = {[](const Config& c) -> int64_t { return latents(c).kv_rank; }};
constexpr Dim kLatent = {[](const Config& c) -> int64_t { return c.head_dim; }};
constexpr Dim kNope = {nope_size};
constexpr Dim kValue = {[](const Config& c) -> int64_t { return latents(c).value_dim; }};
constexpr Dim kEachHead = {[](const Config& c) -> int64_t { return c.n_heads; }, own_latent_heads};

std::vector<int32_t> rotated_queries(const Config& c, int64_t n) {
  return rope_order(c, n, static_cast<int>(query_size(c)), latents(c).nope_dim);
}
std::vector<int32_t> rotated_latents(const Config& c, int64_t n) {
  return rope_order(c, n, c.head_dim, c.head_dim - latents(c).rope_dim);
}

bool has_query_latent(const Config& c, int) { return latents(c).q_rank > 0; }
bool has_plain_queries(const Config& c, int) { return latents(c).q_rank == 0; }

constexpr Slice kKeyRows = {.total = nope_and_value_size, .transposed = true},
                kValueRows = {.total = nope_and_value_size, .first = nope_size};

constexpr MatrixRow kMatrices[] = {
    {.gguf_name = "blk.{}.attn_q.weight", .hf_name = "model.layers.{}.self_attn.q_proj.weight",
     .member = at<&B::wq>, .n_out = kQueries, .n_in = kModelDim, .shard = Shard::kColumns, .when = has_plain_queries,
     .gguf_rows = rotated_queries},
    {.gguf_name = "blk.{}.attn_q_a.weight", .hf_name = "model.layers.{}.self_attn.q_a_proj.weight",
     .member = at<&B::wq_a>, .n_out = kQRank, .n_in = kModelDim, .when = has_query_latent},
    {.gguf_name = "blk.{}.attn_q_b.weight", .hf_name = "model.layers.{}.self_attn.q_b_proj.weight",
     .member = at<&B::wq>, .n_out = kQueries, .n_in = kQRank, .shard = Shard::kColumns, .when = has_query_latent,
     .gguf_rows = rotated_queries},
    {.gguf_name = "blk.{}.attn_kv_a_mqa.weight", .hf_name = "model.layers.{}.self_attn.kv_a_proj_with_mqa.weight",
     .member = at<&B::wkv_a>, .n_out = kLatent, .n_in = kModelDim, .gguf_rows = rotated_latents},
    {.gguf_name = "blk.{}.attn_k_b.weight", .hf_name = "model.layers.{}.self_attn.kv_b_proj.weight",
     .member = at<&B::wk_b>, .n_out = kKvRank, .n_in = kNope, .shard = Shard::kMatrices,
     .optional = kOptional, .hf_slice = kKeyRows, .count = kEachHead},
    {.gguf_name = "blk.{}.attn_v_b.weight", .hf_name = "model.layers.{}.self_attn.kv_b_proj.weight",
     .member = at<&B::wv_b>, .n_out = kValue, .n_in = kKvRank, .shard = Shard::kMatrices,
     .optional = kOptional, .hf_slice = kValueRows, .count = kEachHead},
    {.gguf_name = "blk.{}.attn_kv_b.weight", .member = at<&B::wk_b>, .n_out = kKvRank, .n_in = kNope,
     .shard = Shard::kMatrices, .optional = kOptional, .gguf_slice = kKeyRows, .count = kEachHead},
    {.gguf_name = "blk.{}.attn_kv_b.weight", .member = at<&B::wv_b>, .n_out = kValue, .n_in = kKvRank,
     .shard = Shard::kMatrices, .optional = kOptional, .gguf_slice = kValueRows, .count = kEachHead},
    {.gguf_name = "blk.{}.attn_output.weight", .hf_name = "model.layers.{}.self_attn.o_proj.weight",
     .member = at<&B::wo>, .n_out = kModelDim, .n_in = kValues, .shard = Shard::kRows},
};

constexpr VectorRow kVectors[] = {
    mixer_norm(at<&B::norm, &NormArgs::weight>),
    {.gguf_name = "blk.{}.attn_q_a_norm.weight", .hf_name = "model.layers.{}.self_attn.q_a_layernorm.weight",
     .member = at<&B::q_a_norm, &NormArgs::weight>, .n = kQRank, .when = has_query_latent,
     .hf_kept = VectorRow::kLessOne},
    {.gguf_name = "blk.{}.attn_kv_a_norm.weight", .hf_name = "model.layers.{}.self_attn.kv_a_layernorm.weight",
     .member = at<&B::kv_a_norm, &NormArgs::weight>, .n = kKvRank, .hf_kept = VectorRow::kLessOne},
    {.gguf_name = "blk.{}.attn_output.bias", .hf_name = "model.layers.{}.self_attn.o_proj.bias",
     .member = at<&B::bo>, .n = kModelDim, .shard = Shard::kOnce, .optional = kOptional},
    mixer_post_norm(at<&B::join, &Join::post_norm, &NormArgs::weight>),
};

// Attention over latents. In newer files, n_kv_heads and the head lengths describe the cached latents, and separate
// keys have the lengths of the heads. Older files have the lengths of the heads only.
void read_gguf(const GgufKeys& keys, Config& c) {
  LatentConfig l;
  c.n_heads = keys.integer("attention.head_count", 1, 4096);
  l.q_rank = keys.integer_or("attention.q_lora_rank", 0, 0, 1 << 16);
  l.kv_rank = keys.integer("attention.kv_lora_rank", 1, 1 << 13);
  l.rope_dim = keys.integer("rope.dimension_count", 2, 1024);
  const char* key_length = keys.has("attention.key_length_mla") ? "attention.key_length_mla" : "attention.key_length";
  const char* value_length =
      keys.has("attention.value_length_mla") ? "attention.value_length_mla" : "attention.value_length";
  l.nope_dim = keys.integer(key_length, l.rope_dim + 1, 4096) - l.rope_dim;
  l.value_dim = keys.integer(value_length, 1, 4096);
  set_latents(c, l);
  if (!keys.has("rope.scaling.yarn_log_multiplier")) return;  // this factor applies to scores, not to cos and sin
  c.rope_scaling.log_stretch = keys.positive("rope.scaling.yarn_log_multiplier");
  c.rope_scaling.magnitude = keys.positive_or("rope.scaling.attn_factor", 1.0f);
}

void read_hf(const HfConfig& file, Config& c) {
  const auto needed = [&](const char* key, int64_t low, int64_t high) {
    const int value = file.integer_or(key, 0, low, high);
    if (value == 0) throw file.error(key, "is missing");
    return value;
  };
  constexpr int kMaxHeadDim = 1024;
  const LatentConfig l{.q_rank = file.integer_or("q_lora_rank", 0, 1, 1 << 20),
                       .kv_rank = needed("kv_lora_rank", 1, 1 << 13),
                       .nope_dim = needed("qk_nope_head_dim", 1, kMaxHeadDim),
                       .rope_dim = needed("qk_rope_head_dim", 2, kMaxHeadDim),
                       .value_dim = needed("v_head_dim", 1, kMaxHeadDim)};
  if (l.rope_dim % 2 != 0) throw file.error("qk_rope_head_dim", "{} is not an even number", l.rope_dim);
  set_latents(c, l);
  c.rot_dim = l.rope_dim;
  if (!file.flag_or("rope_interleave", true)) c.rope_layout = RopeLayout::kHalfSplit;
  if (c.rope_scaling.kind == RopeScalingKind::kYarn)
    c.rope_scaling.log_stretch = 0.1f * file.rope.mscale_all_dim.value_or(0.0f);
}

// Readers expect the sizes of the cached latents in the keys of heads.
void write_gguf(const Config& c, const GgufKeyWriter& keys) {
  const LatentConfig& l = c.part<LatentConfig>();
  keys.count("attention.value_length", l.kv_rank);
  if (l.q_rank > 0) keys.count("attention.q_lora_rank", l.q_rank);
  keys.count("attention.kv_lora_rank", l.kv_rank);
  keys.count("attention.key_length_mla", l.nope_dim + l.rope_dim);
  keys.count("attention.value_length_mla", l.value_dim);
  if (c.rope_scaling.log_stretch > 0) keys.set("rope.scaling.yarn_log_multiplier", c.rope_scaling.log_stretch);
}

TensorRows rows() { return {kMatrices, kVectors}; }

Block make(const Config& c, int layer) {
  const LatentConfig& l = latents(c);
  B b{.norm = norm_of(c)};
  b.q_a_norm.eps = b.kv_a_norm.eps = kLatentEps;
  b.q_rank = l.q_rank, b.kv_rank = l.kv_rank, b.nope_dim = l.nope_dim, b.rope_dim = l.rope_dim,
  b.value_dim = l.value_dim;
  if (c.layer(layer).rope == LayerRope::kNone) b.rope_table = kNoRope;
  b.rope.layout = c.rope_layout;
  b.attention = attention_args(c, layer);
  b.query_scale = c.query_scale;
  b.join = join_of(c, layer);
  return b;
}

void check(Block& block, const Config&, int layer, const WeightSource& source) {
  const B& b = block.get<B>();
  if (!b.wk_b || !b.wv_b)
    throw Error(
        "{}: the tensors that make keys and values of layer {} are missing: 'attn_k_b' and 'attn_v_b', or 'kv_b_proj'",
        source.name(), layer);
}

// Every rank has all latents.
void divide(const Deal& d, Config& rank) {
  const Config& c = d.model;
  const int64_t unit = heads_in_blocks(c.n_heads, latents(c).value_dim, d.block);
  d.share.heads = d.deal(c.n_heads / unit, unit, "heads");
  d.share.kv_heads = {0, c.n_kv_heads};
  rank.n_heads = static_cast<int>(d.share.heads.n);
}

}  // namespace
}  // namespace ingot::latent_attention_part

namespace ingot {

void set_latents(Config& c, const LatentConfig& latents) {
  c.parts.set(latents);
  c.n_kv_heads = 1;
  c.head_dim = latents.kv_rank + latents.rope_dim;
  c.score_dim = latents.nope_dim + latents.rope_dim;
}

extern const PartKind kLatentAttentionPart;
const PartKind kLatentAttentionPart = {.name = "latent_attention",
                                       .make = latent_attention_part::make,
                                       .rows = latent_attention_part::rows,
                                       .check = latent_attention_part::check,
                                       .read_gguf = latent_attention_part::read_gguf,
                                       .read_hf = latent_attention_part::read_hf,
                                       .write_gguf = latent_attention_part::write_gguf,
                                       .keeps_kv = true,
                                       .values_are_keys = true,
                                       .divide = latent_attention_part::divide};

}  // namespace ingot
