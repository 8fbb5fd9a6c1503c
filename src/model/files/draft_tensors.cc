// The tensors of draft heads, without those of their layer, whose rows are the rows of every layer (layers/).
#include "model/files/draft_config.h"

namespace ingot {
namespace {

using H = DraftHeadWeights;

constexpr Dim kTwoDim = {[](const Config& c) -> int64_t { return 2 * int64_t{c.dim}; }};
constexpr Dim kThreeDim = {[](const Config& c) -> int64_t { return 3 * int64_t{c.dim}; }};
constexpr Dim kVocab = {[](const Config& c) -> int64_t { return c.n_vocab; }};

constexpr VectorRow head_norm(const char* gguf_name, const char* hf_name, Tensor& (*member)(void*),
                              bool (*optional)(const Config&) = nullptr) {
  return {.gguf_name = gguf_name,
          .hf_name = hf_name,
          .member = member,
          .n = kModelDim,
          .optional = optional,
          .hf_kept = VectorRow::kLessOne};
}

// DeepSeek V3 and GLM; Qwen's hybrids; MiMo.
constexpr MatrixRow kMtpMatrices[] = {
    {.gguf_name = "blk.{}.nextn.eh_proj.weight",
     .hf_name = "model.layers.{}.eh_proj.weight|mtp.fc.weight|model.mtp_layers.{}.input_proj.weight",
     .member = at<&H::project>,
     .n_out = kModelDim,
     .n_in = kTwoDim},
    {.gguf_name = "blk.{}.nextn.embed_tokens.weight",
     .hf_name = "model.layers.{}.embed_tokens.weight|mtp.embed_tokens.weight",
     .member = at<&H::embedding>,
     .n_out = kVocab,
     .n_in = kModelDim,
     .optional = kOptional,
     .use = kForEmbedding},
    {.gguf_name = "blk.{}.nextn.shared_head_head.weight",
     .hf_name = "model.layers.{}.shared_head.head.weight",
     .member = at<&H::output>,
     .n_out = kVocab,
     .n_in = kModelDim,
     .optional = kOptional},
};

constexpr VectorRow kMtpVectors[] = {
    head_norm("blk.{}.nextn.enorm.weight",
              "model.layers.{}.enorm.weight|mtp.pre_fc_norm_embedding.weight|"
              "model.mtp_layers.{}.token_layernorm.weight",
              at<&H::token_norm>),
    head_norm("blk.{}.nextn.hnorm.weight",
              "model.layers.{}.hnorm.weight|mtp.pre_fc_norm_hidden.weight|"
              "model.mtp_layers.{}.hidden_layernorm.weight",
              at<&H::hidden_norm>),
    head_norm("blk.{}.nextn.shared_head_norm.weight",
              "model.layers.{}.shared_head.norm.weight|mtp.norm.weight|"
              "model.mtp_layers.{}.final_layernorm.weight",
              at<&H::final_norm>, kOptional),
};

constexpr MatrixRow kEagleMatrices[] = {
    {.hf_name = "fc.weight", .member = at<&H::project>, .n_out = kModelDim, .n_in = kThreeDim},
    {.hf_name = "lm_head.weight", .member = at<&H::output>, .n_out = kVocab, .n_in = kModelDim},
};

// The norm of embeddings has the name of a layer's first norm.
constexpr VectorRow kEagleVectors[] = {
    head_norm("", "model.layers.{}.input_layernorm.weight|model.layers.{}.attn_norm.weight", at<&H::token_norm>),
    {.hf_name = "model.layers.{}.hidden_norm.weight", .member = at<&H::hidden_norm>, .n = kModelDim},
    {.hf_name = "norm.weight", .member = at<&H::final_norm>, .n = kModelDim},
};

}  // namespace

TensorRows head_rows(const DraftHeadConfig& head) {
  if (head.is_eagle) return {kEagleMatrices, kEagleVectors};
  return {kMtpMatrices, kMtpVectors};
}

}  // namespace ingot
