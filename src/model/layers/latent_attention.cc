// Attention over latents (backend/blocks/latent_attention.h).
#include "backend/blocks/latent_attention.h"

#include "base/error.h"
#include "model/layers/joins.h"
#include "model/shards.h"
#include "model/weights.h"

namespace ingot::latent_attention_part {
namespace {

using B = LatentAttentionBlock;
constexpr float kLatentEps = 1e-6f;  // of the latents' norms; other norms of the model may have another eps

int64_t nope_size(const Config& c) { return c.latent.nope_dim; }
int64_t nope_and_value_size(const Config& c) { return c.latent.nope_dim + c.latent.value_dim; }
int64_t query_size(const Config& c) { return c.latent.nope_dim + c.latent.rope_dim; }
std::vector<Range> own_latent_heads(const Config& rank) { return {rank.share->heads}; }

constexpr Dim kQueries = {[](const Config& c) { return c.n_heads * query_size(c); },
                          [](const Config& rank) { return scaled(rank.share->heads, query_size(rank)); }};
constexpr Dim kValues = {[](const Config& c) -> int64_t { return int64_t{c.n_heads} * c.latent.value_dim; },
                         [](const Config& rank) { return scaled(rank.share->heads, rank.latent.value_dim); }};
constexpr Dim kQRank = {[](const Config& c) -> int64_t { return c.latent.q_rank; }};
constexpr Dim kKvRank = {[](const Config& c) -> int64_t { return c.latent.kv_rank; }};
constexpr Dim kLatent = {[](const Config& c) -> int64_t { return c.head_dim; }};
constexpr Dim kNope = {nope_size};
constexpr Dim kValue = {[](const Config& c) -> int64_t { return c.latent.value_dim; }};
constexpr Dim kEachHead = {[](const Config& c) -> int64_t { return c.n_heads; }, own_latent_heads};

bool has_query_latent(const Config& c, int) { return c.latent.q_rank > 0; }
bool has_plain_queries(const Config& c, int) { return c.latent.q_rank == 0; }

constexpr Slice kKeyRows = {.total = nope_and_value_size, .transposed = true},
                kValueRows = {.total = nope_and_value_size, .first = nope_size};

constexpr MatrixRow kMatrices[] = {
    {.gguf_name = "blk.{}.attn_q.weight", .hf_name = "model.layers.{}.self_attn.q_proj.weight",
     .member = at<&B::wq>, .n_out = kQueries, .n_in = kModelDim, .shard = Shard::kColumns, .when = has_plain_queries},
    {.gguf_name = "blk.{}.attn_q_a.weight", .hf_name = "model.layers.{}.self_attn.q_a_proj.weight",
     .member = at<&B::wq_a>, .n_out = kQRank, .n_in = kModelDim, .when = has_query_latent},
    {.gguf_name = "blk.{}.attn_q_b.weight", .hf_name = "model.layers.{}.self_attn.q_b_proj.weight",
     .member = at<&B::wq>, .n_out = kQueries, .n_in = kQRank, .shard = Shard::kColumns, .when = has_query_latent},
    {.gguf_name = "blk.{}.attn_kv_a_mqa.weight", .hf_name = "model.layers.{}.self_attn.kv_a_proj_with_mqa.weight",
     .member = at<&B::wkv_a>, .n_out = kLatent, .n_in = kModelDim},
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

Block make(const Config& c, int layer) {
  const LatentConfig& l = c.latent;
  B b{.norm = norm_of(c)};
  b.q_a_norm.eps = b.kv_a_norm.eps = kLatentEps;
  b.q_rank = l.q_rank, b.kv_rank = l.kv_rank, b.nope_dim = l.nope_dim, b.rope_dim = l.rope_dim,
  b.value_dim = l.value_dim;
  b.rope.layout = c.rope_layout;
  b.attention = attention_args(c, layer);
  b.join = join_of(c);
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
  const int64_t unit = heads_in_blocks(c.n_heads, c.latent.value_dim, d.block);
  d.share.heads = d.deal(c.n_heads / unit, unit, "heads");
  d.share.kv_heads = {0, c.n_kv_heads};
  rank.n_heads = static_cast<int>(d.share.heads.n);
}

}  // namespace
}  // namespace ingot::latent_attention_part

namespace ingot {

const PartKind kLatentAttentionPart = {.name = "latent_attention",
                                       .make = latent_attention_part::make,
                                       .rows = [] { return TensorRows{latent_attention_part::kMatrices, latent_attention_part::kVectors}; },
                                       .check = latent_attention_part::check,
                                       .divide = latent_attention_part::divide};

}  // namespace ingot
