// Which tensors a model has: their names in each dialect, their shapes as functions of the config, and where they go.
// One table for all architectures; an optional row that the checkpoint lacks leaves its weight empty, and the step it
// feeds out. tensor_finder.h finds what a row means in a checkpoint.
#pragma once
#include <span>
#include <string>

#include "backend/tensor.h"
#include "model/config.h"

namespace ingot {

// Matrices are [n_out, n_in]; vectors are [1, n] in f32. Those of experts are so many, one after another.
struct LayerWeights {
  Tensor attn_norm;       // [1, dim]
  Weight wq, wk, wv;      // [q_dim | kv_dim | kv_dim, dim]
  Tensor bq, bk, bv;      // [1, q_dim | kv_dim | kv_dim]
  Tensor q_norm, k_norm;  // [1, head_dim], or [1, q_dim | kv_dim]
  Tensor sinks;           // [1, n_heads]
  Weight wo;              // [dim, attended_dim]
  Tensor bo;              // [1, dim]
  Weight wq_a,
      // [q_rank | head_dim, dim]: latents, from which wq [n_heads * (nope_dim + rope_dim), q_rank] makes queries
      wkv_a;
  Tensor q_a_norm, kv_a_norm;  // [1, q_rank | kv_rank]
  Weight wk_b, wv_b;           // n_heads of [kv_rank, nope_dim], [value_dim, kv_rank]
  Weight attn_gate;            // [q_dim, dim], or of a gated delta net [all_values, dim]

  // Of a gated delta net, whose wq, wk, wv are [all_keys | all_keys | all_values, dim] and whose wo is [dim,
  // all_values].
  Tensor conv;             // [n_channels, conv_width]
  Weight w_beta, w_alpha;  // [n_value_heads, dim]
  Tensor decay, dt;        // [1, n_value_heads]
  Tensor value_norm;       // [1, value_dim]
  Tensor attn_post_norm;   // [1, dim]
  Tensor ffn_norm;         // [1, dim]
  Weight w_gate, w_up;     // [ffn_dim, dim]
  Tensor b_gate, b_up;     // [1, ffn_dim]
  Weight w_down;           // [dim, ffn_dim]
  Tensor b_down;           // [1, dim]
  Tensor ffn_post_norm;    // [1, dim]

  Weight router;                               // [n_experts, dim]
  Tensor b_router;                             // [1, n_experts]
  Tensor router_bias;                          // [1, n_experts]: for the choice alone
  Weight gate_exps, up_exps, down_exps;        // n_experts of [expert_dim, dim], [expert_dim, dim], [dim, expert_dim]
  Tensor b_gate_exps, b_up_exps, b_down_exps;  // [n_experts, expert_dim | expert_dim | dim]
  Weight shared_router;                        // [1, dim]: how much of the shared expert a token gets; empty: all
  Weight shared_gate, shared_up, shared_down;  // [shared_dim, dim], [shared_dim, dim], [dim, shared_dim]
};

struct ModelWeights {
  Weight embedding;              // [n_vocab, dim]
  Tensor final_norm;             // [1, dim]
  Weight output;                 // [n_vocab, dim]
  bool tied = false;             // the output is the embedding
  Tensor rope_divisors;          // [1, rot_dim / 2]
  Tensor rope_short, rope_long;  // [1, rot_dim / 2]: LongRoPE's, where the config has none
};

enum class Size : uint8_t {
  kNone,
  kOne,
  kDim,
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
  // Of gated delta nets. A group is what belongs to a key head: its q and k, the values and gates of its value heads.
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

// The layers and models that have a row at all.
enum class When : uint8_t {
  kAlways,
  kAttention,
  kPreNorms,
  kPostNorms,
  kSplit,
  kFused,
  kGated,
  kDelta,
  kLatent,
  kLatentOwnQ,
  kLatentQ,
  kPlainFfn,
  kPlainSplitFfn,
  kPlainFusedFfn,
  kExperts,
  kLacedExperts,
  kUnlacedExperts,
  kSharedExpert
};
bool applies(When when, const Config& config, int layer);

// Rows of a larger tensor: total of them, of which every step-th from the first on is ours. total kNone: the tensor is
// all ours. With groups, they are dealt to so many equal ones, of each of which ours is a part, from `first` in it.
struct Slice {
  Size total = Size::kNone;
  Size first = Size::kNone;
  int step = 1;
  bool transposed = false;  // they are the columns of ours
  Size groups = Size::kNone;
};

// How ranks divide a tensor among them, so that a layer needs two sums over all ranks (Megatron-LM, arXiv:1909.08053):
// one after attention's output matrix and one after the down projection.
enum class Shard : uint8_t {
  kNone,     // each rank has all of it
  // a rank has some of the outputs: rows of the matrix as it is stored, and of a vector elements; none after it need a
  // sum
  kColumns,
  kRows,     // a rank has some of the inputs, and the ranks' products are summed
  // a rank has some of the matrices or vectors that lie one after another, whole: of experts, heads or channels
  kExperts
};
// In how many parts ranks can have a size: heads, of attention and of gated delta nets, stay whole, with what belongs
// to them. Of any other size each element is a part; a matrix divided by inputs has to keep its format's blocks whole
// besides.
int64_t units_of(Size size, const Config& config);

// Names: "{}" stands for the layer. Several, by '|', are tried in turn; of experts, "{1}" stands for the expert where
// each has a tensor of its own, and after '~' the matrices are stored transposed.
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
  Size count = Size::kNone;  // of matrices, one after another; kNone: one

  // What ranks divide; kNone: nothing.
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
  } hf_kept = kAsIs;  // norms: less one, in some Hugging Face checkpoints; x is kept as log(-x)
  Slice hf_slice = {};
  Size count = Size::kNone;  // of vectors

  Size divided() const { return shard == Shard::kNone ? Size::kNone : shard == Shard::kColumns ? n : count; }
};

std::span<const MatrixRow<LayerWeights>> layer_matrices();
std::span<const VectorRow<LayerWeights>> layer_vectors();
std::span<const MatrixRow<ModelWeights>> model_matrices();
std::span<const VectorRow<ModelWeights>> model_vectors();

}  // namespace ingot
