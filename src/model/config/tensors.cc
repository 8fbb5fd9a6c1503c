#include "model/config/tensors.h"

#include "model/config/layer_inputs.h"
#include "model/config/shards.h"
#include "model/config/altup.h"

namespace ingot {
namespace {

using M = ModelWeights;

#define EMBED_NORM_NAMES(kind, old) \
  "model.embeddings.LayerNorm." kind "|model.embeddings.LayerNorm." old "|model.embeddings.norm." kind \
  "|model.emb_ln." kind "|model.layers.0.pre_norm." kind

constexpr Dim kVocabulary = {.size = [](const Config& c) -> int64_t { return c.n_vocab; },
                             .of_rank = [](const Config& rank) { return std::vector<Range>{rank.share->vocab}; }};
constexpr Dim kHalfRot = {[](const Config& c) -> int64_t { return c.rot_dim / 2; }};
constexpr Dim kPositionRows = {[](const Config& c) -> int64_t { return int64_t{c.first_position} + c.n_ctx_train; }};
constexpr Dim kTokenTypes = {[](const Config& c) -> int64_t { return c.n_token_types; }};

int64_t layer_input_width(const Config& c) { return c.part<LayerInputsConfig>().width; }
constexpr Dim kLayerInput = {layer_input_width};
constexpr Dim kLayerInputs = {[](const Config& c) { return c.n_layers * layer_input_width(c); }};
constexpr Dim kLayerInputRows = {[](const Config& c) -> int64_t {
  const int n_rows = c.part<LayerInputsConfig>().n_rows;
  return n_rows > 0 ? n_rows : c.n_vocab;
}};
constexpr Dim kMoreStreams = {[](const Config& c) -> int64_t { return c.part<AltUpConfig>().n_streams - 1; }};
bool has_streams(const Config& c, int) { return c.part<AltUpConfig>().n_streams > 0; }
bool has_layer_inputs(const Config& c, int) { return layer_input_width(c) > 0; }

bool is_encoder_model(const Config& c, int) { return c.arch->encoder; }
bool norms_embedding(const Config& c, int) { return c.arch->encoder || c.arch->norms_embedding; }
bool names_final_norm_embed(const Config& c, int) { return c.arch->final_norm_is_embed; }
bool keeps_final_norm_whole(const Config& c, int) { return c.arch->normalizes_embedding; }
bool has_final_norm(const Config& c, int layer) {
  return !c.arch->sum_norms && !names_final_norm_embed(c, layer) && !keeps_final_norm_whole(c, layer);
}

// If a checkpoint has no output matrix, the embedding is the output matrix (weights.cc).
constexpr MatrixRow kModelMatrices[] = {
    {.gguf_name = "token_embd.weight",
     .hf_name = "model.embed_tokens.weight|model.embeddings.word_embeddings.weight|model.embeddings.tok_embeddings.weight|"
                "backbone.embeddings.weight|model.embeddings.weight",
     .member = at<&M::embedding>, .n_out = kVocabulary, .n_in = kModelDim, .use = kForEmbedding,
     .gguf_factor = [](const Config& c, int64_t) { return c.embedding_scale; }},
    {.gguf_name = "output.weight", .hf_name = "lm_head.weight",
     .member = at<&M::output>, .n_out = kVocabulary, .n_in = kModelDim, .shard = Shard::kColumns,
     .optional = kOptional, .gguf_factor = [](const Config& c, int64_t) { return c.logit_scale; }},
    {.gguf_name = "per_layer_token_embd.weight", .hf_name = "model.embed_tokens_per_layer.weight",
     .member = at<&M::layer_table>, .n_out = kLayerInputRows, .n_in = kLayerInputs, .when = has_layer_inputs,
     .use = kForHostTable},
    {.gguf_name = "per_layer_model_proj.weight", .hf_name = "model.per_layer_model_projection.weight",
     .member = at<&M::layer_project>, .n_out = kLayerInputs, .n_in = kModelDim, .when = has_layer_inputs},
    {.gguf_name = "altup_proj.weight", .hf_name = "model.altup_projections.{1}.weight",
     .member = at<&M::altup_start>, .n_out = kModelDim, .n_in = kModelDim, .when = has_streams, .count = kMoreStreams},
    {.gguf_name = "altup_unembd_proj.weight", .hf_name = "model.altup_unembed_projections.{1}.weight",
     .member = at<&M::altup_end>, .n_out = kModelDim, .n_in = kModelDim, .when = has_streams, .count = kMoreStreams},
};

constexpr VectorRow kModelVectors[] = {
    {.gguf_name = "output_norm.weight", .hf_name = "model.norm.weight|model.final_norm.weight|model.final_layernorm.weight|backbone.norm_f.weight",
     .member = at<&M::final_norm>, .n = kModelDim, .when = has_final_norm, .hf_kept = VectorRow::kLessOne},
    {.gguf_name = "token_embd_norm.weight|output_norm.weight", .hf_name = "model.embedding_norm.weight",
     .member = at<&M::final_norm>, .n = kModelDim, .when = names_final_norm_embed},
    {.gguf_name = "output_norm.weight", .hf_name = "model.norm.weight",  // stored whole, though other norms are less 1
     .member = at<&M::final_norm>, .n = kModelDim, .when = keeps_final_norm_whole},
    {.gguf_name = "output_norm.bias", .hf_name = "model.final_norm.bias|model.norm.bias",
     .member = at<&M::final_norm_bias>, .n = kModelDim, .optional = kOptional,
     .when = [](const Config& c, int) { return c.arch->pre_norms && c.norm() == NormKind::kLayer; }},
    {.gguf_name = "output.bias", .hf_name = "lm_head.bias",
     .member = at<&M::output_bias>, .n = kVocabulary, .shard = Shard::kColumns, .optional = kOptional,
     .when = [](const Config& c, int) { return !c.arch->encoder; }},
    {.gguf_name = "token_embd_norm.weight", .hf_name = EMBED_NORM_NAMES("weight", "gamma"),
     .member = at<&M::embed_norm>, .n = kModelDim, .when = norms_embedding},
    {.gguf_name = "token_embd_norm.bias", .hf_name = EMBED_NORM_NAMES("bias", "beta"),
     .member = at<&M::embed_norm_bias>, .n = kModelDim, .optional = kOptional, .when = norms_embedding},
    {.gguf_name = "position_embd.weight", .hf_name = "model.embeddings.position_embeddings.weight",
     .member = at<&M::positions>, .n = kModelDim, .when = [](const Config& c, int) { return c.arch->learned_positions; },
     .count = kPositionRows},
    {.gguf_name = "token_types.weight", .hf_name = "model.embeddings.token_type_embeddings.weight",
     .member = at<&M::token_types>, .n = kModelDim, .optional = kOptional, .when = is_encoder_model,
     .count = kTokenTypes},
    {.gguf_name = "per_layer_proj_norm.weight", .hf_name = "model.per_layer_projection_norm.weight",
     .member = at<&M::layer_norm>, .n = kLayerInput, .when = has_layer_inputs, .hf_kept = VectorRow::kLessOne},
    {.gguf_name = "rope_freqs.weight", .member = at<&M::rope_divisors>, .n = kHalfRot, .optional = kOptional},
    {.gguf_name = "rope_factors_short.weight", .member = at<&M::rope_short>, .n = kHalfRot, .optional = kOptional},
    {.gguf_name = "rope_factors_long.weight", .member = at<&M::rope_long>, .n = kHalfRot, .optional = kOptional},
};

}  // namespace

TensorRows model_rows() { return {kModelMatrices, kModelVectors}; }
const MatrixRow& embedding_row() { return kModelMatrices[0]; }
const MatrixRow& output_row() { return kModelMatrices[1]; }

}  // namespace ingot
