// The tensors of a model: their names in each dialect, their shapes as functions of the config, and the weights that
// they fill. One table serves all architectures. If the checkpoint lacks an optional row, its weight stays empty and
// the step that uses the weight is left out. tensor_finder.h finds a row's tensor in a checkpoint.
#pragma once
#include <span>
#include <string>

#include "backend/tensor.h"
#include "model/config.h"

namespace ingot {

// Matrices are [n_out, n_in]; vectors are [1, n] in f32. Experts' matrices and vectors are stored one after another.
struct LayerWeights {
  Tensor attn_norm, attn_norm_bias;  // [1, dim]: before attention, or of the sum after it
  Weight wq, wk, wv;      // [q_dim | kv_dim | kv_dim, dim]
  Tensor bq, bk, bv;      // [1, q_dim | kv_dim | kv_dim]
  Tensor q_norm, k_norm;  // [1, head_dim], or [1, q_dim | kv_dim]
  Tensor sinks;           // [1, n_heads]
  Weight wo;              // [dim, attended_dim]
  Tensor bo;              // [1, dim]
  Weight wq_a,
      // [q_rank | head_dim, dim]: make latents; wq [n_heads * (nope_dim + rope_dim), q_rank] makes queries from the
      // first
      wkv_a;
  Tensor q_a_norm, kv_a_norm;  // [1, q_rank | kv_rank]
  Weight wk_b, wv_b;           // n_heads of [kv_rank, nope_dim]; n_heads of [value_dim, kv_rank]
  Weight attn_gate;            // [q_dim, dim]; in a gated delta net [all_values, dim]

  // Of a gated delta net. Its wq, wk, wv are [all_keys | all_keys | all_values, dim], and its wo is [dim, all_values].
  Tensor conv;             // [n_channels, conv_width]
  Weight w_beta, w_alpha;  // [n_value_heads, dim]
  Tensor decay, dt;        // [1, n_value_heads]
  Tensor value_norm;       // [1, value_dim]
  Tensor attn_post_norm;   // [1, dim]
  Tensor ffn_norm, ffn_norm_bias;  // [1, dim]: before the feed-forward, or of the sum after it
  Weight w_gate, w_up;     // [ffn_dim, dim]
  Tensor b_gate, b_up;     // [1, ffn_dim]
  Weight w_down;           // [dim, ffn_dim]
  Tensor b_down;           // [1, dim]
  Tensor ffn_post_norm;    // [1, dim]

  Weight router;                               // [n_experts, dim]
  Tensor b_router;                             // [1, n_experts]
  Tensor router_bias;                          // [1, n_experts]: used only to choose experts, not to weigh them
  Weight gate_exps, up_exps, down_exps;        // n_experts of [expert_dim, dim], [expert_dim, dim], [dim, expert_dim]
  Tensor b_gate_exps, b_up_exps, b_down_exps;  // [n_experts, expert_dim | expert_dim | dim]
  Weight shared_router;                        // [1, dim]: weighs the shared expert's output; empty: weight 1
  Weight shared_gate, shared_up, shared_down;  // [shared_dim, dim], [shared_dim, dim], [dim, shared_dim]
};

struct ModelWeights {
  Weight embedding;              // [n_vocab, dim]
  Tensor final_norm, final_norm_bias;  // [1, dim]
  Weight output;                 // [n_vocab, dim]
  bool tied = false;             // the output is the embedding
  Tensor rope_divisors;          // [1, rot_dim / 2]
  Tensor rope_short, rope_long;  // [1, rot_dim / 2]: LongRoPE's factors, if the config has none
  Tensor embed_norm, embed_norm_bias;  // [1, dim]
  Tensor positions;    // [first_position + n_ctx_train, dim], or [1, dim]: the first token type is added to each row
  Tensor token_types;  // [n_token_types, dim]: load_weights subtracts the first row from the second
};

enum class Size : uint8_t {
  kNone,
  kOne,
  kDim,
  kTwoDim,
  kThreeDim,
  kQ,
  kKv,
  kQAndKv,
  kQAndTwoKv,
  kHead,
  kQNorm,
  kKNorm,
  kHeads,
  kFfn,
  kTwoFfn,
  kVocab,
  kHalfRot,
  kPositions,
  kTokenTypes,
  kExperts,
  kExpertFfn,
  kTwoExpertFfn,
  kSharedFfn,
  kAttended,
  kLatentQ,
  kQRank,
  kKvRank,
  kNope,
  kValue,
  kNopeAndValue,
  kTwoQ,
  // Of gated delta nets. A group is a key head with its data: q, k, and the values and gates of its value heads.
  kDeltaKeys,
  kTwoDeltaKeys,
  kDeltaValues,
  kChannels,
  kConvWidth,
  kKeyHeads,
  kValueHeads,
  kTwoValueHeads,
  kDeltaKey,
  kTwoDeltaKey,
  kDeltaValue,
  kGroups,
  kGroupGate,
  kValueHeadsOfGroup
};
int64_t size_of(Size size, const Config& config);

// The layers and models that have the row.
enum class When : uint8_t {
  kAlways,
  kAttention,
  kPreNorms,
  kAttentionPreNorm,  // the first layer of an encoder reads the normed embeddings
  kPreNormBiases,
  kPostNorms,
  kSumNorms,
  kFinalNorm,
  kEncoder,
  kLearnedPositions,
  kSplit,
  kFused,
  kGated,
  kDelta,
  kLatent,
  kLatentOwnQ,
  kLatentQ,
  kPlainFfn,
  kPlainSplitFfn,
  kPlainSplitGate,
  kPlainFusedFfn,
  kExperts,
  kInterleavedExperts,
  kSplitExperts,
  kSharedExpert
};
bool applies(When when, const Config& config, int layer);

// Part of a larger tensor. total: its rows; every step-th row from `first` on is in the slice. total kNone: the slice
// is the whole tensor. With groups, the tensor's rows form that many equal groups, and the slice is the same part of
// each group, from `first` on in the group.
struct Slice {
  Size total = Size::kNone;
  Size first = Size::kNone;
  int step = 1;
  bool transposed = false;  // the rows of the larger tensor are the columns of the slice
  Size groups = Size::kNone;
};

// How ranks divide a tensor among them (shards.h), so that a layer needs only two sums over all ranks: one after
// attention's output matrix and one after the down projection. If each rank has whole experts, a row that counts
// experts is divided only by experts, unless it is kNone.
enum class Shard : uint8_t {
  kNone,      // each rank has all of it
  kColumns,   // some of the outputs: rows of each stored matrix, or elements of each vector
  kRows,      // some of the inputs; the products of all ranks are summed
  kMatrices,  // some of the successive matrices or vectors: heads or channels
  kOnce       // rank 0 has it: a bias that is added to a sum over all ranks
};

// Names: "{}" stands for the layer. Names separated by '|' are tried in turn. "{1}" stands for the expert, if each
// expert has a separate tensor. A name after '~' is for matrices that are stored transposed.
template <class Owner>
struct MatrixRow {
  const char* gguf_name;
  const char* hf_name;
  Size n_out, n_in;
  Weight Owner::*weight;
  Shard shard;
  bool optional = false;
  unsigned use = kForMatmul;
  When when = When::kAlways;
  Slice gguf_slice = {}, hf_slice = {};
  Size count = Size::kNone;  // number of successive matrices; kNone: one

  // The size that ranks divide; kNone: ranks do not divide the tensor.
  Size divided() const {
    return shard == Shard::kNone      ? Size::kNone
           : shard == Shard::kColumns ? n_out
           : shard == Shard::kRows    ? n_in
                                      : count;
  }
};

template <class Owner>
struct VectorRow {
  const char* gguf_name;
  const char* hf_name;
  Size n;
  Tensor Owner::*vector;
  Shard shard;
  bool optional = false;
  When when = When::kAlways;
  enum Kept : uint8_t {
    kAsIs,
    kLessOne,
    kLog
  } hf_kept = kAsIs;  // in Hugging Face checkpoints: unchanged; norms less 1; x stored as log(-x)
  Slice hf_slice = {};
  Size count = Size::kNone;  // number of successive vectors; kNone: one
  Slice gguf_slice = {};

  Size divided() const {
    return shard == Shard::kColumns ? n : shard == Shard::kMatrices ? count : Size::kNone;
  }
};

std::span<const MatrixRow<LayerWeights>> layer_matrices();
std::span<const VectorRow<LayerWeights>> layer_vectors();
std::span<const MatrixRow<ModelWeights>> model_matrices();
std::span<const VectorRow<ModelWeights>> model_vectors();

}  // namespace ingot
