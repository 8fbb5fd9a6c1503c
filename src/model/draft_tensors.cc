// The tensors of draft heads, without those of their layer, whose rows are the rows of every layer (tensors.cc).
#include "model/draft_config.h"

namespace ingot {
namespace {

using enum Size;
using H = DraftHeadWeights;
using L = LayerWeights;
constexpr bool kOptional = true;
constexpr Shard kWhole = Shard::kNone;
constexpr auto kIsNorm = VectorRow<H>::kLessOne;

// DeepSeek V3 and GLM; Qwen's hybrids; MiMo.
constexpr MatrixRow<H> kMtpMatrices[] = {
    {"blk.{}.nextn.eh_proj.weight",
     "model.layers.{}.eh_proj.weight|mtp.fc.weight|model.mtp_layers.{}.input_proj.weight", kDim, kTwoDim, &H::project,
     kWhole},
    {"blk.{}.nextn.embed_tokens.weight", "model.layers.{}.embed_tokens.weight|mtp.embed_tokens.weight", kVocab, kDim,
     &H::embedding, kWhole, kOptional, kForEmbedding},
    {"blk.{}.nextn.shared_head_head.weight", "model.layers.{}.shared_head.head.weight", kVocab, kDim, &H::output,
     kWhole, kOptional},
};

constexpr VectorRow<H> kMtpVectors[] = {
    {"blk.{}.nextn.enorm.weight",
     "model.layers.{}.enorm.weight|mtp.pre_fc_norm_embedding.weight|model.mtp_layers.{}.token_layernorm.weight", kDim,
     &H::token_norm, kWhole, false, When::kAlways, kIsNorm},
    {"blk.{}.nextn.hnorm.weight",
     "model.layers.{}.hnorm.weight|mtp.pre_fc_norm_hidden.weight|model.mtp_layers.{}.hidden_layernorm.weight", kDim,
     &H::hidden_norm, kWhole, false, When::kAlways, kIsNorm},
    {"blk.{}.nextn.shared_head_norm.weight",
     "model.layers.{}.shared_head.norm.weight|mtp.norm.weight|model.mtp_layers.{}.final_layernorm.weight", kDim,
     &H::final_norm, kWhole, kOptional, When::kAlways, kIsNorm},
};

// The norm of embeddings has the name of a layer's first norm, so it is LayerWeights::attn_norm.
constexpr MatrixRow<H> kEagleMatrices[] = {
    {"", "fc.weight", kDim, kThreeDim, &H::project, kWhole},
    {"", "lm_head.weight", kVocab, kDim, &H::output, kWhole},
};

constexpr VectorRow<H> kEagleVectors[] = {
    {"", "model.layers.{}.hidden_norm.weight", kDim, &H::hidden_norm, kWhole},
    {"", "norm.weight", kDim, &H::final_norm, kWhole},
};

constexpr MatrixRow<L> kEagleProjections[] = {
    {"", "model.layers.{}.self_attn.q_proj.weight", kQ, kTwoDim, &L::wq, kWhole},
    {"", "model.layers.{}.self_attn.k_proj.weight", kKv, kTwoDim, &L::wk, kWhole},
    {"", "model.layers.{}.self_attn.v_proj.weight", kKv, kTwoDim, &L::wv, kWhole},
};

}  // namespace

std::span<const MatrixRow<H>> head_matrices(const DraftHeadConfig& head) {
  if (head.is_eagle) return kEagleMatrices;
  return kMtpMatrices;
}

std::span<const VectorRow<H>> head_vectors(const DraftHeadConfig& head) {
  if (head.is_eagle) return kEagleVectors;
  return kMtpVectors;
}

std::span<const MatrixRow<L>> eagle_projections() { return kEagleProjections; }

}  // namespace ingot
