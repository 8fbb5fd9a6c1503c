#include "model/tensors.h"

namespace ingot {
namespace {

using enum Size;
using L = LayerWeights;
using M = ModelWeights;
constexpr bool kOptional = true;

constexpr MatrixRow<L> kLayerMatrices[] = {
    {"blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight", kQ, kDim, &L::wq},
    {"blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight", kKv, kDim, &L::wk},
    {"blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight", kKv, kDim, &L::wv},
    {"blk.{}.attn_output.weight", "model.layers.{}.self_attn.o_proj.weight", kDim, kQ, &L::wo},
    {"blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight", kFfn, kDim, &L::w_gate},
    {"blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight", kFfn, kDim, &L::w_up},
    {"blk.{}.ffn_down.weight", "model.layers.{}.mlp.down_proj.weight", kDim, kFfn, &L::w_down},
};

constexpr VectorRow<L> kLayerVectors[] = {
    {"blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight", kDim, &L::attn_norm},
    {"blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias", kQ, &L::bq, kOptional},
    {"blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias", kKv, &L::bk, kOptional},
    {"blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias", kKv, &L::bv, kOptional},
    {"blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight", kHead, &L::q_norm, kOptional},
    {"blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight", kHead, &L::k_norm, kOptional},
    {"blk.{}.attn_output.bias", "model.layers.{}.self_attn.o_proj.bias", kDim, &L::bo, kOptional},
    {"blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight", kDim, &L::ffn_norm},
    {"blk.{}.ffn_gate.bias", "model.layers.{}.mlp.gate_proj.bias", kFfn, &L::b_gate, kOptional},
    {"blk.{}.ffn_up.bias", "model.layers.{}.mlp.up_proj.bias", kFfn, &L::b_up, kOptional},
    {"blk.{}.ffn_down.bias", "model.layers.{}.mlp.down_proj.bias", kDim, &L::b_down, kOptional},
};

// A checkpoint without an output matrix ties it to the embedding (weights.cc).
constexpr MatrixRow<M> kModelMatrices[] = {
    {"token_embd.weight", "model.embed_tokens.weight", kVocab, kDim, &M::embedding, false, kForEmbedding},
    {"output.weight", "lm_head.weight", kVocab, kDim, &M::output, kOptional},
};

constexpr VectorRow<M> kModelVectors[] = {
    {"output_norm.weight", "model.norm.weight", kDim, &M::final_norm},
    {"rope_freqs.weight", "", kHalfRot, &M::rope_divisors, kOptional},
};

}  // namespace

std::span<const MatrixRow<L>> layer_matrices() { return kLayerMatrices; }
std::span<const VectorRow<L>> layer_vectors() { return kLayerVectors; }
std::span<const MatrixRow<M>> model_matrices() { return kModelMatrices; }
std::span<const VectorRow<M>> model_vectors() { return kModelVectors; }

int64_t size_of(Size size, const Config& c) {
  switch (size) {
    case kDim: return c.dim;
    case kQ: return c.q_dim();
    case kKv: return c.kv_dim();
    case kHead: return c.head_dim;
    case kFfn: return c.ffn_dim;
    case kVocab: return c.n_vocab;
    case kHalfRot: return c.rot_dim / 2;
  }
  CHECK(false);
}

}  // namespace ingot
