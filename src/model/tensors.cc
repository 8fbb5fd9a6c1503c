#include "model/tensors.h"

namespace ingot {
namespace {

using enum Size;
using L = LayerWeights;
using M = ModelWeights;
constexpr bool kOptional = true;
constexpr auto kIsNorm = VectorRow<L>::kLessOne;
constexpr Size kEachExpert = kExperts, kEachHead = kHeads, kEachChannel = kChannels;

constexpr Shard kWhole = Shard::kNone, kByColumns = Shard::kColumns, kByRows = Shard::kRows,
     kByMatrices = Shard::kMatrices, kOnRankZero = Shard::kOnce;

constexpr Slice kQOfThree = {kQAndTwoKv}, kKOfThree = {kQAndTwoKv, kQ}, kVOfThree = {kQAndTwoKv, kQAndKv};
constexpr Slice kGateHalf = {kTwoExpertFfn}, kUpHalf = {kTwoExpertFfn, kExpertFfn};
constexpr Slice kKeyRows = {kNopeAndValue, kNone, 1, true}, kValueRows = {kNopeAndValue, kNope};
// Each head has a query and a gate. Each key head's group has q, k, values and gates; betas come before alphas.
constexpr Slice kQueryOfHead = {kTwoQ, kNone, 1, false, kHeads}, kGateOfHead = {kTwoQ, kHead, 1, false, kHeads};
constexpr Slice kQOfGroup = {kGroups, kNone, 1, false, kKeyHeads}, kKOfGroup = {kGroups, kDeltaKey, 1, false, kKeyHeads},
                kVOfGroup = {kGroups, kTwoDeltaKey, 1, false, kKeyHeads}, kGateOfGroup = {kGroups, kGroupGate, 1, false, kKeyHeads};
constexpr Slice kBetaOfGroup = {kTwoValueHeads, kNone, 1, false, kKeyHeads},
                kAlphaOfGroup = {kTwoValueHeads, kValueHeadsOfGroup, 1, false, kKeyHeads};
constexpr Slice kEvenRows = {kTwoExpertFfn, kNone, 2}, kOddRows = {kTwoExpertFfn, kOne, 2};

// Names of experts in Hugging Face files: each expert has a tensor (qwen and deepseek; mixtral), or MLX stacks them.
// The first Mixtral GGUF files have a tensor for each expert too ("blk.{0}.ffn_gate.{1}.weight").
#define EXPERT_NAMES(name, w)                                                                              \
  "model.layers.{0}.mlp.experts.{1}." name ".weight|model.layers.{0}.block_sparse_moe.experts.{1}." w       \
  ".weight|model.layers.{}.mlp.switch_mlp." name ".weight|model.layers.{}.block_sparse_moe.switch_mlp." name ".weight"

// Names in decoders; BERT; Nomic's files; ModernBERT. `kind`: weight or bias.
#define QKV_NAMES(kind) \
  "model.layers.{}.self_attn.qkv_proj." kind "|model.encoder.layers.{}.attn.Wqkv." kind "|model.layers.{}.attn.Wqkv." kind
#define OUTPUT_NAMES(kind)                                                                         \
  "model.layers.{}.self_attn.o_proj." kind "|model.encoder.layer.{}.attention.output.dense." kind \
  "|model.encoder.layers.{}.attn.out_proj." kind "|model.layers.{}.attn.Wo." kind
#define GATE_NAMES(kind) "model.layers.{}.mlp.gate_proj." kind "|model.encoder.layers.{}.mlp.fc12." kind
#define UP_NAMES(kind) \
  "model.layers.{}.mlp.up_proj." kind "|model.encoder.layer.{}.intermediate.dense." kind "|model.encoder.layers.{}.mlp.fc11." kind
#define DOWN_NAMES(kind)                                                                     \
  "model.layers.{}.mlp.down_proj." kind "|model.encoder.layer.{}.output.dense." kind        \
  "|model.encoder.layers.{}.mlp.fc2." kind "|model.layers.{}.mlp.Wo." kind

constexpr MatrixRow<L> kLayerMatrices[] = {
    // Encoders of one architecture may have q, k and v in one matrix or in three.
    {"blk.{}.attn_qkv.weight", QKV_NAMES("weight"), kQ, kDim, &L::wq, kByColumns, kOptional, kForMatmul,
     When::kFused, kQOfThree, kQOfThree},
    {"blk.{}.attn_qkv.weight", QKV_NAMES("weight"), kKv, kDim, &L::wk, kByColumns, kOptional, kForMatmul,
     When::kFused, kKOfThree, kKOfThree},
    {"blk.{}.attn_qkv.weight", QKV_NAMES("weight"), kKv, kDim, &L::wv, kByColumns, kOptional, kForMatmul,
     When::kFused, kVOfThree, kVOfThree},
    {"blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight|model.encoder.layer.{}.attention.self.query.weight", kQ, kDim, &L::wq, kByColumns, false,
     kForMatmul, When::kSplit},
    {"blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight|model.encoder.layer.{}.attention.self.key.weight", kKv, kDim, &L::wk, kByColumns, false,
     kForMatmul, When::kSplit},
    {"blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight|model.encoder.layer.{}.attention.self.value.weight", kKv, kDim, &L::wv, kByColumns, false,
     kForMatmul, When::kSplit},
    {"blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight", Size::kLatentQ, kDim, &L::wq, kByColumns,
     false, kForMatmul, When::kLatentQ},
    {"blk.{}.attn_q_a.weight", "model.layers.{}.self_attn.q_a_proj.weight", kQRank, kDim, &L::wq_a, kWhole, false,
     kForMatmul, When::kLatentOwnQ},
    {"blk.{}.attn_q_b.weight", "model.layers.{}.self_attn.q_b_proj.weight", Size::kLatentQ, kQRank, &L::wq,
     kByColumns, false, kForMatmul,
     When::kLatentOwnQ},
    {"blk.{}.attn_kv_a_mqa.weight", "model.layers.{}.self_attn.kv_a_proj_with_mqa.weight", kHead, kDim, &L::wkv_a,
     kWhole, false, kForMatmul,
     When::kLatent},
    {"blk.{}.attn_k_b.weight", "model.layers.{}.self_attn.kv_b_proj.weight", kKvRank, kNope, &L::wk_b, kByMatrices,
     kOptional, kForMatmul, When::kLatent,
     {}, kKeyRows, kEachHead},
    {"blk.{}.attn_v_b.weight", "model.layers.{}.self_attn.kv_b_proj.weight", kValue, kKvRank, &L::wv_b, kByMatrices,
     kOptional, kForMatmul, When::kLatent,
     {}, kValueRows, kEachHead},
    {"blk.{}.attn_kv_b.weight", "", kKvRank, kNope, &L::wk_b, kByMatrices, kOptional, kForMatmul, When::kLatent,
     kKeyRows, {}, kEachHead},
    {"blk.{}.attn_kv_b.weight", "", kValue, kKvRank, &L::wv_b, kByMatrices, kOptional, kForMatmul, When::kLatent,
     kValueRows, {}, kEachHead},
    {"blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight", kQ, kDim, &L::wq, kByColumns, false,
     kForMatmul, When::kGated, kQueryOfHead,
     kQueryOfHead},
    {"blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight", kQ, kDim, &L::attn_gate, kByColumns, false,
     kForMatmul, When::kGated, kGateOfHead,
     kGateOfHead},
    {"blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight", kKv, kDim, &L::wk, kByColumns, false,
     kForMatmul, When::kGated},
    {"blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight", kKv, kDim, &L::wv, kByColumns, false,
     kForMatmul, When::kGated},
    {"blk.{}.attn_output.weight", OUTPUT_NAMES("weight"), kDim, kAttended, &L::wo, kByRows, false,
     kForMatmul, When::kAttention},

    {"blk.{}.attn_qkv.weight", "model.layers.{}.linear_attn.in_proj_qkv.weight", kDeltaKeys, kDim, &L::wq, kByColumns,
     kOptional, kForMatmul, When::kDelta,
     {kChannels}, {kChannels}},
    {"blk.{}.attn_qkv.weight", "model.layers.{}.linear_attn.in_proj_qkv.weight", kDeltaKeys, kDim, &L::wk, kByColumns,
     kOptional, kForMatmul, When::kDelta,
     {kChannels, kDeltaKeys}, {kChannels, kDeltaKeys}},
    {"blk.{}.attn_qkv.weight", "model.layers.{}.linear_attn.in_proj_qkv.weight", kDeltaValues, kDim, &L::wv,
     kByColumns, kOptional, kForMatmul,
     When::kDelta, {kChannels, kTwoDeltaKeys}, {kChannels, kTwoDeltaKeys}},
    {"blk.{}.attn_gate.weight", "model.layers.{}.linear_attn.in_proj_z.weight", kDeltaValues, kDim, &L::attn_gate,
     kByColumns, kOptional, kForMatmul,
     When::kDelta},
    {"blk.{}.ssm_in.weight", "model.layers.{}.linear_attn.in_proj_qkvz.weight", kDeltaKeys, kDim, &L::wq, kByColumns,
     kOptional, kForMatmul, When::kDelta,
     kQOfGroup, kQOfGroup},
    {"blk.{}.ssm_in.weight", "model.layers.{}.linear_attn.in_proj_qkvz.weight", kDeltaKeys, kDim, &L::wk, kByColumns,
     kOptional, kForMatmul, When::kDelta,
     kKOfGroup, kKOfGroup},
    {"blk.{}.ssm_in.weight", "model.layers.{}.linear_attn.in_proj_qkvz.weight", kDeltaValues, kDim, &L::wv,
     kByColumns, kOptional, kForMatmul,
     When::kDelta, kVOfGroup, kVOfGroup},
    {"blk.{}.ssm_in.weight", "model.layers.{}.linear_attn.in_proj_qkvz.weight", kDeltaValues, kDim, &L::attn_gate,
     kByColumns, kOptional, kForMatmul,
     When::kDelta, kGateOfGroup, kGateOfGroup},
    {"blk.{}.ssm_beta.weight", "model.layers.{}.linear_attn.in_proj_b.weight", kValueHeads, kDim, &L::w_beta,
     kByColumns, kOptional, kForMatmul,
     When::kDelta},
    {"blk.{}.ssm_alpha.weight", "model.layers.{}.linear_attn.in_proj_a.weight", kValueHeads, kDim, &L::w_alpha,
     kByColumns, kOptional, kForMatmul,
     When::kDelta},
    {"blk.{}.ssm_ba.weight", "model.layers.{}.linear_attn.in_proj_ba.weight", kValueHeads, kDim, &L::w_beta,
     kByColumns, kOptional, kForMatmul,
     When::kDelta, kBetaOfGroup, kBetaOfGroup},
    {"blk.{}.ssm_ba.weight", "model.layers.{}.linear_attn.in_proj_ba.weight", kValueHeads, kDim, &L::w_alpha,
     kByColumns, kOptional, kForMatmul,
     When::kDelta, kAlphaOfGroup, kAlphaOfGroup},
    {"blk.{}.ssm_out.weight", "model.layers.{}.linear_attn.out_proj.weight", kDim, kDeltaValues, &L::wo, kByRows,
     false, kForMatmul, When::kDelta},

    {"blk.{}.ffn_gate.weight", GATE_NAMES("weight"), kFfn, kDim, &L::w_gate, kByColumns, false,
     kForMatmul, When::kPlainSplitGate},
    {"blk.{}.ffn_up.weight", UP_NAMES("weight"), kFfn, kDim, &L::w_up, kByColumns, false,
     kForMatmul, When::kPlainSplitFfn},
    {"blk.{}.ffn_up.weight", "model.layers.{}.mlp.gate_up_proj.weight|model.layers.{}.mlp.Wi.weight", kFfn, kDim, &L::w_gate, kByColumns, false,
     kForMatmul, When::kPlainFusedFfn,
     {kTwoFfn}, {kTwoFfn}},
    {"blk.{}.ffn_up.weight", "model.layers.{}.mlp.gate_up_proj.weight|model.layers.{}.mlp.Wi.weight", kFfn, kDim, &L::w_up, kByColumns, false,
     kForMatmul, When::kPlainFusedFfn,
     {kTwoFfn, kFfn}, {kTwoFfn, kFfn}},
    {"blk.{}.ffn_down.weight", DOWN_NAMES("weight"), kDim, kFfn, &L::w_down, kByRows, false,
     kForMatmul, When::kPlainFfn},

    {"blk.{}.ffn_gate_inp.weight",
     "model.layers.{}.mlp.gate.weight|model.layers.{}.mlp.router.weight|model.layers.{}.block_sparse_moe.gate.weight|"
     "model.layers.{}.block_sparse_moe.router.layer.weight",
     kExperts, kDim, &L::router, kWhole, false, kForMatmul, When::kExperts},
    {"blk.{}.ffn_gate_exps.weight|blk.{0}.ffn_gate.{1}.weight", EXPERT_NAMES("gate_proj", "w1"), kExpertFfn, kDim,
     &L::gate_exps, kByColumns, kOptional, kForMatmul, When::kExperts,
     {}, {}, kEachExpert},
    {"blk.{}.ffn_up_exps.weight|blk.{0}.ffn_up.{1}.weight", EXPERT_NAMES("up_proj", "w3"), kExpertFfn, kDim,
     &L::up_exps, kByColumns, kOptional,
     kForMatmul, When::kExperts, {}, {}, kEachExpert},
    {"blk.{}.ffn_gate_exps.weight", "model.layers.{}.block_sparse_moe.input_linear.weight", kExpertFfn, kDim,
     &L::gate_exps, kByColumns, kOptional,
     kForMatmul, When::kExperts, {}, kGateHalf, kEachExpert},
    {"blk.{}.ffn_up_exps.weight", "model.layers.{}.block_sparse_moe.input_linear.weight", kExpertFfn, kDim,
     &L::up_exps, kByColumns, kOptional,
     kForMatmul, When::kExperts, {}, kUpHalf, kEachExpert},
    {"blk.{}.ffn_gate_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj", kExpertFfn, kDim, &L::gate_exps,
     kByColumns, kOptional, kForMatmul, When::kSplitExperts, {},
     kGateHalf, kEachExpert},
    {"blk.{}.ffn_up_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj", kExpertFfn, kDim, &L::up_exps,
     kByColumns, kOptional, kForMatmul,
     When::kSplitExperts, {}, kUpHalf, kEachExpert},
    {"blk.{}.ffn_gate_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj.weight|~model.layers.{}.mlp.experts.gate_up_proj",
     kExpertFfn, kDim, &L::gate_exps, kByColumns, kOptional, kForMatmul, When::kInterleavedExperts, {}, kEvenRows,
     kEachExpert},
    {"blk.{}.ffn_up_exps.weight", "model.layers.{}.mlp.experts.gate_up_proj.weight|~model.layers.{}.mlp.experts.gate_up_proj",
     kExpertFfn, kDim, &L::up_exps, kByColumns, kOptional, kForMatmul, When::kInterleavedExperts, {}, kOddRows, kEachExpert},
    {"blk.{}.ffn_down_exps.weight|blk.{0}.ffn_down.{1}.weight",
     EXPERT_NAMES("down_proj", "w2") "|model.layers.{}.block_sparse_moe.output_linear.weight|model.layers.{}.mlp.experts.down_proj",
     kDim, kExpertFfn, &L::down_exps, kByRows, false, kForMatmul, When::kSplitExperts, {}, {}, kEachExpert},
    {"blk.{}.ffn_down_exps.weight", "model.layers.{}.mlp.experts.down_proj.weight|~model.layers.{}.mlp.experts.down_proj", kDim, kExpertFfn,
     &L::down_exps, kByRows, false, kForMatmul, When::kInterleavedExperts, {}, {}, kEachExpert},
    {"blk.{}.ffn_gate_inp_shexp.weight", "model.layers.{}.mlp.shared_expert_gate.weight", kOne, kDim,
     &L::shared_router, kWhole, kOptional,
     kForMatmul, When::kSharedExpert},
    {"blk.{}.ffn_gate_shexp.weight", "model.layers.{}.mlp.shared_expert.gate_proj.weight|model.layers.{}.mlp.shared_experts.gate_proj.weight",
     kSharedFfn, kDim, &L::shared_gate, kByColumns, false, kForMatmul, When::kSharedExpert},
    {"blk.{}.ffn_up_shexp.weight", "model.layers.{}.mlp.shared_expert.up_proj.weight|model.layers.{}.mlp.shared_experts.up_proj.weight",
     kSharedFfn, kDim, &L::shared_up, kByColumns, false, kForMatmul, When::kSharedExpert},
    {"blk.{}.ffn_down_shexp.weight", "model.layers.{}.mlp.shared_expert.down_proj.weight|model.layers.{}.mlp.shared_experts.down_proj.weight",
     kDim, kSharedFfn, &L::shared_down, kByRows, false, kForMatmul, When::kSharedExpert},
};

#undef EXPERT_NAMES

// Norms after a sum. The first files of BERT call weight and bias gamma and beta.
#define ATTENTION_SUM_NAMES(kind, old)                                                                                \
  "model.encoder.layer.{}.attention.output.LayerNorm." kind "|model.encoder.layer.{}.attention.output.LayerNorm." old \
  "|model.layers.{}.post_attention_layernorm." kind "|model.encoder.layers.{}.norm1." kind
#define FFN_SUM_NAMES(kind, old)                                                                  \
  "model.encoder.layer.{}.output.LayerNorm." kind "|model.encoder.layer.{}.output.LayerNorm." old \
  "|model.layers.{}.post_mlp_layernorm." kind "|model.encoder.layers.{}.norm2." kind
#define EMBED_NORM_NAMES(kind, old) \
  "model.embeddings.LayerNorm." kind "|model.embeddings.LayerNorm." old "|model.embeddings.norm." kind "|model.emb_ln." kind

constexpr VectorRow<L> kLayerVectors[] = {
    {"blk.{}.attn_norm.weight", "model.layers.{}.input_layernorm.weight|model.layers.{}.attn_norm.weight", kDim, &L::attn_norm, kWhole, false,
     When::kAttentionPreNorm, kIsNorm},
    {"blk.{}.attn_norm.bias", "model.layers.{}.attn_norm.bias", kDim, &L::attn_norm_bias, kWhole, kOptional, When::kPreNormBiases},
    {"blk.{}.attn_output_norm.weight", ATTENTION_SUM_NAMES("weight", "gamma"), kDim, &L::attn_norm, kWhole, false, When::kSumNorms},
    {"blk.{}.attn_output_norm.bias", ATTENTION_SUM_NAMES("bias", "beta"), kDim, &L::attn_norm_bias, kWhole, kOptional, When::kSumNorms},
    {"blk.{}.attn_qkv.bias", QKV_NAMES("bias"), kQ, &L::bq, kByColumns, kOptional, When::kFused,
     VectorRow<L>::kAsIs, kQOfThree, kNone, kQOfThree},
    {"blk.{}.attn_qkv.bias", QKV_NAMES("bias"), kKv, &L::bk, kByColumns, kOptional, When::kFused,
     VectorRow<L>::kAsIs, kKOfThree, kNone, kKOfThree},
    {"blk.{}.attn_qkv.bias", QKV_NAMES("bias"), kKv, &L::bv, kByColumns, kOptional, When::kFused,
     VectorRow<L>::kAsIs, kVOfThree, kNone, kVOfThree},
    {"blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias|model.encoder.layer.{}.attention.self.query.bias", kQ, &L::bq, kByColumns, kOptional, When::kSplit},
    {"blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias|model.encoder.layer.{}.attention.self.key.bias", kKv, &L::bk, kByColumns, kOptional, When::kSplit},
    {"blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias|model.encoder.layer.{}.attention.self.value.bias", kKv, &L::bv, kByColumns, kOptional, When::kSplit},
    {"blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight", kQNorm, &L::q_norm, kWhole, kOptional,
     When::kAttention, kIsNorm},
    {"blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight", kKNorm, &L::k_norm, kWhole, kOptional,
     When::kAttention, kIsNorm},
    {"blk.{}.attn_q_a_norm.weight", "model.layers.{}.self_attn.q_a_layernorm.weight", kQRank, &L::q_a_norm, kWhole,
     false, When::kLatentOwnQ, kIsNorm},
    {"blk.{}.attn_kv_a_norm.weight", "model.layers.{}.self_attn.kv_a_layernorm.weight", kKvRank, &L::kv_a_norm,
     kWhole, false, When::kLatent, kIsNorm},
    {"blk.{}.attn_sinks.weight", "model.layers.{}.self_attn.sinks", kHeads, &L::sinks, kByColumns, kOptional,
     When::kAttention},
    {"blk.{}.attn_output.bias", OUTPUT_NAMES("bias"), kDim, &L::bo, kOnRankZero, kOptional,
     When::kAttention},
    {"blk.{}.ssm_conv1d.weight", "model.layers.{}.linear_attn.conv1d.weight", kConvWidth, &L::conv, kByMatrices, false,
     When::kDelta, VectorRow<L>::kAsIs, {},
     kEachChannel},
    {"blk.{}.ssm_a", "model.layers.{}.linear_attn.A_log", kValueHeads, &L::decay, kByColumns, false, When::kDelta,
     VectorRow<L>::kLog},
    {"blk.{}.ssm_dt.bias|blk.{}.ssm_dt", "model.layers.{}.linear_attn.dt_bias", kValueHeads, &L::dt, kByColumns,
     false, When::kDelta},
    {"blk.{}.ssm_norm.weight", "model.layers.{}.linear_attn.norm.weight", kDeltaValue, &L::value_norm, kWhole, false,
     When::kDelta},
    {"blk.{}.post_attention_norm.weight", "model.layers.{}.post_attention_layernorm.weight", kDim, &L::attn_post_norm,
     kWhole, false,
     When::kPostNorms, kIsNorm},
    // In files of some architectures, this norm has the name of other architectures' post-norm.
    {"blk.{}.ffn_norm.weight|blk.{}.post_attention_norm.weight",
     "model.layers.{}.pre_feedforward_layernorm.weight|model.layers.{}.post_attention_layernorm.weight|model.layers.{}.mlp_norm.weight", kDim,
     &L::ffn_norm, kWhole, false,
     When::kPreNorms, kIsNorm},
    {"blk.{}.ffn_norm.bias", "model.layers.{}.mlp_norm.bias", kDim, &L::ffn_norm_bias, kWhole, kOptional, When::kPreNormBiases},
    {"blk.{}.layer_output_norm.weight", FFN_SUM_NAMES("weight", "gamma"), kDim, &L::ffn_norm, kWhole, false, When::kSumNorms},
    {"blk.{}.layer_output_norm.bias", FFN_SUM_NAMES("bias", "beta"), kDim, &L::ffn_norm_bias, kWhole, kOptional, When::kSumNorms},
    {"blk.{}.ffn_gate.bias", GATE_NAMES("bias"), kFfn, &L::b_gate, kByColumns, kOptional,
     When::kPlainSplitGate},
    {"blk.{}.ffn_up.bias", UP_NAMES("bias"), kFfn, &L::b_up, kByColumns, kOptional,
     When::kPlainSplitFfn},
    {"blk.{}.ffn_up.bias", "model.layers.{}.mlp.Wi.bias", kFfn, &L::b_gate, kByColumns, kOptional, When::kPlainFusedFfn,
     VectorRow<L>::kAsIs, {kTwoFfn}, kNone, {kTwoFfn}},
    {"blk.{}.ffn_up.bias", "model.layers.{}.mlp.Wi.bias", kFfn, &L::b_up, kByColumns, kOptional, When::kPlainFusedFfn,
     VectorRow<L>::kAsIs, {kTwoFfn, kFfn}, kNone, {kTwoFfn, kFfn}},
    {"blk.{}.ffn_down.bias", DOWN_NAMES("bias"), kDim, &L::b_down, kOnRankZero, kOptional,
     When::kPlainFfn},
    {"blk.{}.post_ffw_norm.weight", "model.layers.{}.post_feedforward_layernorm.weight", kDim, &L::ffn_post_norm,
     kWhole, false, When::kPostNorms,
     kIsNorm},
    {"blk.{}.ffn_gate_inp.bias", "model.layers.{}.mlp.router.bias", kExperts, &L::b_router, kWhole, kOptional,
     When::kExperts},
    {"blk.{}.exp_probs_b.bias",
     "model.layers.{}.mlp.gate.e_score_correction_bias|model.layers.{}.block_sparse_moe.e_score_correction_bias", kExperts, &L::router_bias, kWhole, kOptional, When::kExperts},
    {"blk.{}.ffn_gate_exps.bias", "model.layers.{}.mlp.experts.gate_up_proj_bias", kExpertFfn, &L::b_gate_exps,
     kByColumns, kOptional, When::kExperts,
     VectorRow<L>::kAsIs, kEvenRows, kEachExpert},
    {"blk.{}.ffn_up_exps.bias", "model.layers.{}.mlp.experts.gate_up_proj_bias", kExpertFfn, &L::b_up_exps,
     kByColumns, kOptional, When::kExperts, VectorRow<L>::kAsIs,
     kOddRows, kEachExpert},
    {"blk.{}.ffn_down_exps.bias", "model.layers.{}.mlp.experts.down_proj_bias", kDim, &L::b_down_exps, kOnRankZero,
     kOptional, When::kExperts, VectorRow<L>::kAsIs, {},
     kEachExpert},
};

// If a checkpoint has no output matrix, the embedding is the output matrix (weights.cc).
constexpr MatrixRow<M> kModelMatrices[] = {
    {"token_embd.weight", "model.embed_tokens.weight|model.embeddings.word_embeddings.weight|model.embeddings.tok_embeddings.weight", kVocab, kDim, &M::embedding, kWhole, false, kForEmbedding},
    {"output.weight", "lm_head.weight", kVocab, kDim, &M::output, kByColumns, kOptional},
};

constexpr VectorRow<M> kModelVectors[] = {
    {"output_norm.weight", "model.norm.weight|model.final_norm.weight", kDim, &M::final_norm, kWhole, false, When::kFinalNorm,
     VectorRow<M>::kLessOne},
    {"output_norm.bias", "model.final_norm.bias", kDim, &M::final_norm_bias, kWhole, kOptional, When::kPreNormBiases},
    {"token_embd_norm.weight", EMBED_NORM_NAMES("weight", "gamma"), kDim, &M::embed_norm, kWhole, false, When::kEncoder},
    {"token_embd_norm.bias", EMBED_NORM_NAMES("bias", "beta"), kDim, &M::embed_norm_bias, kWhole, kOptional, When::kEncoder},
    {"position_embd.weight", "model.embeddings.position_embeddings.weight", kDim, &M::positions, kWhole, false, When::kLearnedPositions,
     VectorRow<M>::kAsIs, {}, kPositions},
    {"token_types.weight", "model.embeddings.token_type_embeddings.weight", kDim, &M::token_types, kWhole, kOptional, When::kEncoder,
     VectorRow<M>::kAsIs, {}, kTokenTypes},
    {"rope_freqs.weight", "", kHalfRot, &M::rope_divisors, kWhole, kOptional},
    {"rope_factors_short.weight", "", kHalfRot, &M::rope_short, kWhole, kOptional},
    {"rope_factors_long.weight", "", kHalfRot, &M::rope_long, kWhole, kOptional},
};

}  // namespace

std::span<const MatrixRow<L>> layer_matrices() { return kLayerMatrices; }
std::span<const VectorRow<L>> layer_vectors() { return kLayerVectors; }
std::span<const MatrixRow<M>> model_matrices() { return kModelMatrices; }
std::span<const VectorRow<M>> model_vectors() { return kModelVectors; }

int64_t size_of(Size size, const Config& c) {
  const DeltaConfig& d = c.delta;
  switch (size) {
    case kNone: return 0;
    case kOne: return 1;
    case kDim: return c.dim;
    case kTwoDim: return 2 * int64_t{c.dim};
    case kThreeDim: return 3 * int64_t{c.dim};
    case kQ: return c.q_dim();
    case kKv: return c.kv_dim();
    case kQAndKv: return c.q_dim() + c.kv_dim();
    case kQAndTwoKv: return c.q_dim() + 2 * c.kv_dim();
    case kHead: return c.head_dim;
    case kQNorm: return c.arch->norms_all_heads ? c.q_dim() : c.head_dim;
    case kKNorm: return c.arch->norms_all_heads ? c.kv_dim() : c.head_dim;
    case kHeads: return c.n_heads;
    case kFfn: return c.ffn_dim;
    case kTwoFfn: return 2 * c.ffn_dim;
    case kVocab: return c.n_vocab;
    case kHalfRot: return c.rot_dim / 2;
    case kPositions: return int64_t{c.first_position} + c.n_ctx_train;
    case kTokenTypes: return c.n_token_types;
    case kExperts: return c.experts.n;
    case kExpertFfn: return c.experts.ffn_dim;
    case kTwoExpertFfn: return 2 * c.experts.ffn_dim;
    case kSharedFfn: return c.experts.shared_dim;
    case kAttended: return c.attended_dim();
    case Size::kLatentQ: return int64_t{c.n_heads} * (c.latent.nope_dim + c.latent.rope_dim);
    case kQRank: return c.latent.q_rank;
    case kKvRank: return c.latent.kv_rank;
    case kNope: return c.latent.nope_dim;
    case kValue: return c.latent.value_dim;
    case kNopeAndValue: return c.latent.nope_dim + c.latent.value_dim;
    case kTwoQ: return 2 * c.q_dim();
    case kDeltaKeys: return d.all_keys();
    case kTwoDeltaKeys: return 2 * d.all_keys();
    case kDeltaValues: return d.all_values();
    case kChannels: return d.n_channels();
    case kConvWidth: return d.conv_width;
    case kKeyHeads: return d.n_key_heads;
    case kValueHeads: return d.n_value_heads;
    case kTwoValueHeads: return 2 * d.n_value_heads;
    case kDeltaKey: return d.key_dim;
    case kTwoDeltaKey: return 2 * d.key_dim;
    case kDeltaValue: return d.value_dim;
    case kGroups: return d.n_channels() + d.all_values();
    case kGroupGate: return 2 * d.key_dim + d.all_values() / d.n_key_heads;
    case kValueHeadsOfGroup: return d.n_value_heads / d.n_key_heads;
  }
  CHECK(false);
}

bool applies(When when, const Config& c, int layer) {
  const LayerKind kind = c.layer(layer);
  const bool plain = !kind.experts, latent = c.arch->latent_attention, attends = !kind.recurrent, gated = attends && c.arch->gates_attention;
  switch (when) {
    case When::kAlways: return true;
    case When::kAttention: return attends;
    case When::kPreNorms: return c.arch->pre_norms;
    case When::kAttentionPreNorm: return c.arch->pre_norms && !(c.arch->encoder && layer == 0);
    case When::kPreNormBiases: return c.arch->pre_norms && c.arch->norm == NormKind::kLayer;
    case When::kPostNorms: return c.arch->post_norms;
    case When::kSumNorms: return c.arch->sum_norms;
    case When::kFinalNorm: return !c.arch->sum_norms;
    case When::kEncoder: return c.arch->encoder;
    case When::kLearnedPositions: return c.arch->learned_positions;
    case When::kSplit: return attends && !gated && !c.arch->fused && !latent;
    case When::kFused: return c.arch->fused || c.arch->encoder;
    case When::kGated: return gated;
    case When::kDelta: return kind.recurrent;
    case When::kLatent: return latent;
    case When::kLatentOwnQ: return latent && c.latent.q_rank > 0;
    case When::kLatentQ: return latent && c.latent.q_rank == 0;
    case When::kPlainFfn: return plain;
    case When::kPlainSplitFfn: return plain && !c.arch->fused;
    case When::kPlainSplitGate: return plain && !c.arch->fused && c.arch->gated;
    case When::kPlainFusedFfn: return plain && c.arch->fused;
    case When::kExperts: return !plain;
    case When::kInterleavedExperts: return !plain && c.arch->interleaved_experts;
    case When::kSplitExperts: return !plain && !c.arch->interleaved_experts;
    case When::kSharedExpert: return !plain && c.experts.shared_dim > 0;
  }
  CHECK(false);
}

}  // namespace ingot
