// Arguments of backend ops besides tensors: the numbers and weights of one norm, one attention, one layer of experts.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>

#include "backend/kv.h"
#include "backend/state.h"
#include "backend/tensor.h"

namespace ingot {

enum class NormKind : uint8_t { kRms, kLayer };
// kClampedSwiglu is the activation of gpt-oss: g = min(gate, 7), u = clamp(up, -7, 7), g sigmoid(1.702 g) (u + 1).
// A feed-forward of kSquaredRelu or kSigmoid has no gate.
enum class Activation : uint8_t { kSilu, kGeluTanh, kGelu, kClampedSwiglu, kSquaredRelu, kSigmoid };

// What multiplies a group of elements: a number, or a function of it.
enum class GroupFactor : uint8_t { kAsIs, kSoftplus, kSigmoid };

// Which two elements of a head rotate together. kHalfSplit: (i, i + rot_dim/2), as in Hugging Face models and in most
// GGUF files. kInterleaved: (2i, 2i+1), as in GGUF files of the llama architecture.
enum class RopeLayout : uint8_t { kHalfSplit, kInterleaved };

// How the rows of a sequence become one row: the first row, their mean, or the last row.
enum class Pooling : uint8_t { kCls, kMean, kLast };

struct NormArgs {
  Tensor weight;  // [1, dim]; empty: Backend::norm has no weight, and fused ops have no norm
  Tensor bias;    // [1, dim] or empty
  float eps = 1e-5f;
  NormKind kind = NormKind::kRms;
};

struct AttentionArgs {
  int layer = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  float scale = 1.0f;    // factor of q·k
  float softcap = 0.0f;  // s = cap * tanh(s / cap); 0: none
  int window = 0;        // a query attends to the last `window` positions, including its own; 0: all
  bool causal = true;    // false: also to later positions: `window` of them, including its own, or all
  bool sees_later = true;  // in causal attention, some tokens see later ones (Batch::seen_len); false: none does
  Tensor sinks;          // [1, n_heads] or empty: a score without a key, included in the softmax
};

// The patches of a picture, for a vision tower.
struct PatchArgs {
  Tensor rgb;     // bytes [height, width, 3], four in a number: i32 [1, (3 * height * width + 3) / 4]
  Tensor values;  // [3, 256]: of the bytes of each channel
  Tensor places;  // i32 [1, n_patches]: row * columns + column, in patches
  int width = 0;  // of the picture, in pixels: a multiple of patch
  int patch = 0;  // the side of a patch, in pixels
};

// Multiplies the queries of later positions: 1 + beta * ln(1 + floor((position + offset) / period)).
struct PositionScale {
  float beta = 0;  // 0: no factor
  int period = 1;
  int offset = 0;
};

// arXiv:2411.13010: x > 0: plus * x^2 + beta * x; otherwise minus * (exp(min(x, eps)) - 1 - x) + beta * x
struct Xielu {
  float plus = 0, minus = 0, beta = 0.5f, eps = -1e-6f;
};

struct RopeArgs {
  Tensor angles;  // [n_tokens, rot_dim]: cosines then sines (rope_angles); empty: no rope in this layer
  RopeLayout layout = RopeLayout::kHalfSplit;
};

// The queries and keys of all ranks, for norms over all heads, and the position of this rank's heads among them.
struct HeadsOfRanks {
  int64_t q_dim = 0, k_dim = 0;      // of all ranks
  int64_t first_q = 0, first_k = 0;  // of this rank
  bool adds_k = true;                // false: an earlier rank adds the same keys
  Tensor rows;                       // scratch: [max_tokens, q_dim + k_dim]
};

struct QkvArgs {
  Tensor x;                    // [n_tokens, dim]
  NormArgs norm;               // norm of x before the products; empty weight: none
  Tensor normed;               // out if there is a norm: [n_tokens, dim]
  const Weight* wq = nullptr;  // [n_heads * head_dim, dim]
  const Weight* wk = nullptr;  // [n_kv_heads * head_dim, dim]
  const Weight* wv = nullptr;  // [n_kv_heads * head_dim, dim]
  Tensor bq, bk, bv;           // [1, rows of the weight] or empty
  NormArgs q_norm,
      k_norm;  // weight [1, head_dim] for each head, or [1, rows of the weight] for all heads; empty weight: none
  const HeadsOfRanks* heads_of_ranks = nullptr;  // set if the norms are over the heads of several ranks
  RopeArgs rope;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  KvCache* kv = nullptr;
  int layer = 0;
  Tensor q;     // out: [n_tokens, n_heads * head_dim], contiguous
  Tensor k, v;  // scratch: [n_tokens, n_kv_heads * head_dim], contiguous; the keys and values go to kv
};

// Models with several residual streams (AltUp, arXiv:2301.13310).
inline constexpr int kMaxStreams = 8;
inline constexpr float kLeastMeanSquare = 1e-5f;  // of the row that match_size() scales

// kSparseMixer (arXiv:2311.10768, as PhiMoE uses it): experts are chosen one after another. The weight of each is its
// share of the softmax over the experts that are left and whose score is near its own.
enum class Scoring : uint8_t { kSoftmax, kSigmoid, kSparseMixer };
inline constexpr float kMixerJitter =
    0.01f;  // an expert with score s is near the best if (best - s) / max(|s|, best) <= 2 * this

// How the router chooses a token's experts: the n_used experts with the highest score, among all experts or among the
// best groups.
struct RouteArgs {
  int n_used = 1;
  Scoring scoring = Scoring::kSoftmax;
  bool normalize = false;  // the weights of a token are divided by their sum, before scale
  float scale = 1.0f;
  Tensor bias;       // [1, n_experts] or empty: added to the scores only for the choice, not for the weights
  Tensor expert_scale;  // [1, n_experts] or empty: multiplies the weights of each expert at the end
  int n_groups = 1;  // of n_experts / n_groups neighbours, ranked by best score; with bias, by the sum of the best two
  int n_groups_used = 1;
  // If ranks have whole experts, this rank has the n_own experts from first_own on, and its matrices are only theirs.
  // The choice and the weights are the same on all ranks, but ids count from first_own on. Experts of other ranks have
  // id -1 and weight 0. n_own 0: the rank has all experts.
  int first_own = 0, n_own = 0;

  int32_t own_id(int32_t expert) const {
    return n_own == 0 || (expert >= first_own && expert < first_own + n_own) ? expert - first_own : -1;
  }
};

// y = x w^T + bias, and then the activation of y and a soft cap: cap tanh(y / cap).
struct Product {
  Tensor y;  // out: [n, n_out]
  Tensor x;  // [n, n_in]
  const Weight* w = nullptr;
  Tensor bias = {};  // [1, n_out] or empty
  std::optional<Activation> act = {};
  float cap = 0;  // 0: no cap
};

// y = act(x w_gate^T + b_gate) * (x w_up^T + b_up), where x is normalised first if norm.weight is set.
struct GateUpArgs {
  Tensor y;                                         // out: [n, ffn]
  Tensor x;                                         // [n, dim]
  NormArgs norm;                                    // norm of x; empty weight: none
  Tensor normed;                                    // out if there is a norm: [n, dim]
  const Weight *w_gate = nullptr, *w_up = nullptr;  // [ffn, dim]
  Tensor b_gate, b_up;                              // [1, ffn] or empty
  Activation act = Activation::kSilu;
};

// A feed-forward layer of experts (arXiv:2101.03961 and its successors): residual += the weighted sum of the outputs of
// x's experts. The matrices of all experts are stacked: n_experts of them, or route.n_own.
struct MoeArgs {
  Tensor residual;                   // in, out: [n, dim]
  Tensor x;                          // [n, dim]
  NormArgs norm;                     // norm of x; empty weight: none
  Tensor normed;                     // out if there is a norm: [n, dim]
  Tensor router_x;                   // [n, dim] or empty: the router's input, if not the experts'
  const Weight* w_router = nullptr;  // [n_experts, dim], one matrix
  Tensor b_router;                   // [1, n_experts] or empty
  RouteArgs route;
  const Weight *w_gate = nullptr, *w_up = nullptr,
               *w_down = nullptr;  // n_experts or n_own matrices [ffn, dim], [ffn, dim], [dim, ffn]
  Tensor b_gate, b_up, b_down;     // [n_experts or n_own, n_out] or empty
  Activation act = Activation::kSilu;
  Tensor logits;         // scratch: f32 [n, n_experts], contiguous
  Tensor ids, weights;   // scratch: i32 and f32 [n, n_used], contiguous
  Tensor gate, up, out;  // scratch: [n * n_used, ffn | ffn | dim], contiguous
};

// A convolution along each channel, over the last inputs of a token's sequence:
//   x[t] = out_gate[t] act(bias + sum_i weight[i] (in_gate x)[t - width + 1 + i])
// The states keep the last inputs, with their gates.
struct ShortConvArgs {
  Tensor x;                  // in, out: [n_tokens, n_channels]
  Tensor weight;             // [n_channels, width]
  Tensor bias;               // [1, n_channels] or empty
  Tensor in_gate, out_gate;  // [n_tokens, n_channels] or empty
  bool silu = true;          // act; false: none
  StateCache* states = nullptr;
  int buffer = 0;  // of the states: [width - 1, n_channels]
};

// The gated delta rule (arXiv:2412.06464, with the heads of Qwen3-Next). Each value head has a state matrix S. For each
// token:
//   S = exp(decay softplus(alpha + dt)) S;  S += k^T (share sigmoid(beta) (v - k S));  y = q S
// where q and k are scaled to length 1, and q is then divided by sqrt(key_dim).
struct DeltaRuleArgs {
  Tensor y;             // out: [n_tokens, n_heads * value_dim], contiguous
  Tensor qkv;           // [n_tokens, n_key_heads * key_dim (q), the same (k), n_heads * value_dim (v)]; overwritten
  Tensor beta, alpha;   // [n_tokens, n_heads]; overwritten
  Tensor decay, dt;     // [1, n_heads]; decay is negative
  int n_key_heads = 0;  // each serves n_heads / n_key_heads value heads
  bool tiled = false;   // value head h uses key head h % n_key_heads; false: h / (n_heads / n_key_heads)
  float share = 1;
  StateCache* states = nullptr;
  int buffer = 0;  // of the states: n_heads matrices [key_dim, value_dim]
};

// The scan of a state-space model with scalar decay (Mamba-2, arXiv:2405.21060). Each head has a state matrix S. For
// each token:
//   step = softplus(dt + dt_bias), then at least min_step and at most max_step
//   S = exp(decay step) S;  S += b^T (step x);  y = c S + skip x
struct SsmScanArgs {
  Tensor y;                     // out: [n_tokens, n_heads * head_dim]; may be x
  Tensor x;                     // [n_tokens, n_heads * head_dim]
  Tensor b, c;                  // [n_tokens, n_groups * state_dim]; overwritten
  Tensor dt;                    // [n_tokens, n_heads]; overwritten
  Tensor keep;                  // scratch: [n_tokens, n_heads]
  Tensor decay, dt_bias, skip;  // n_heads elements each; decay is negative
  int n_groups = 1;             // each serves n_heads / n_groups neighbouring heads
  float min_step = 0, max_step = std::numeric_limits<float>::infinity();
  StateCache* states = nullptr;
  int buffer = 0;  // of the states: n_heads matrices [state_dim, head_dim]
};

// The recurrence of Griffin (arXiv:2402.19427). For each channel and token:
//   log_a = -8 softplus(decay) sigmoid(decay_gate);  h = exp(log_a) h + sqrt(1 - exp(2 log_a)) sigmoid(input_gate) x
// At the beginning of a sequence, h = sigmoid(input_gate) x.
struct RgLruArgs {
  Tensor x;                       // in: the inputs, out: h; [n_tokens, n_channels]
  Tensor input_gate, decay_gate;  // [n_tokens, n_channels]
  Tensor decay;                   // [1, n_channels]
  StateCache* states = nullptr;
  int buffer = 0;  // of the states: [1, n_channels]
};

// The inputs of rank_one_rule() for Kimi's delta attention (arXiv:2510.26692). Of each head: q and k get length 1, q is
// divided by sqrt(head_dim), keep = exp(decay softplus(keep + dt)), beta = sigmoid(beta). Then
//   a = keep * k,  k = beta k,  b = -k
// so that the rule is S = diag(keep) S;  S += k^T beta (v - k S).
struct KdaInputsArgs {
  Tensor q, k;    // in, out: [n_tokens, n_heads * head_dim]
  Tensor keep;    // in, out: as q
  Tensor a, b;    // out: as q
  Tensor beta;    // [n_tokens, n_heads]
  Tensor decay;   // n_heads elements; negative
  Tensor dt;      // [1, n_heads * head_dim]
};

// A recurrence whose state decays by a factor for each row, and is changed by two products of vectors. Each head has a
// state matrix S. For each token:
//   S = diag(keep) S + b^T (a S_before) + k^T v;  y = q S
// where S_before is S before the token.
struct RankOneRuleArgs {
  Tensor y;                 // out: [n_tokens, n_heads * value_dim]
  Tensor q, keep, a, b, k;  // [n_tokens, n_heads * key_dim]; keep, a and b are overwritten
  float least_keep = 0;     // no element of keep is less
  Tensor v;                 // as y
  StateCache* states = nullptr;
  int buffer = 0;  // of the states: n_heads matrices [key_dim, value_dim]
};

// Mixes each token with the token before it in its sequence, in several ways (RWKV's token shift):
//   y[i] = x + mix[i] (x_before - x)
// Before the first token of a sequence, x is 0.
struct MixTokensArgs {
  Tensor y;    // out: [n_tokens, n_mixes * dim]
  Tensor x;    // [n_tokens, dim]
  Tensor mix;  // [n_mixes, dim]
  StateCache* states = nullptr;
  int buffer = 0;  // of the states: [1, dim], the last x
};

// The inputs of rank_one_rule() for RWKV-7 (arXiv:2503.14456). With kk = k * k_k, of length 1 in each head:
//   keep = exp(-exp(-1/2) sigmoid(keep)),  b = sigmoid(b),  v += sigmoid(v_gate) (v_first - v)
//   k *= 1 + (b - 1) k_a,  a = -kk,  b = kk b
// In the first layer, v becomes v_first.
struct Wkv7InputsArgs {
  Tensor k, keep, b;       // in, out: [n_tokens, n_heads * head_dim]
  Tensor a;                // out: as k
  Tensor v;                // in, out: as k
  Tensor v_gate, v_first;  // as k; v_gate is empty in the first layer, where v_first is written
  Tensor k_k, k_a;         // [1, n_heads * head_dim]
  int n_heads = 0;
};

// The output of RWKV-7's rule: y = gate * (norm(y) + (sum over the head of r * k * r_k) v), where norm() is the layer
// norm of each head.
struct Wkv7OutputsArgs {
  Tensor y;        // in, out: [n_tokens, n_heads * head_dim]
  Tensor r, k, v;  // as y
  Tensor gate;     // as y
  Tensor r_k;      // [1, n_heads * head_dim]
  NormArgs norm;   // weight and bias [1, n_heads * head_dim]
  int n_heads = 0;
};

// All of RWKV-7's mixer between its products: the inputs of the rule, the rule, and its outputs. Only out and
// inputs.v_first are defined afterwards.
struct Wkv7Args {
  Tensor out;  // out: as outputs.y; may be outputs.y
  Wkv7InputsArgs inputs;
  RankOneRuleArgs rule;
  Wkv7OutputsArgs outputs;
};

// The scan of a state-space model in which each element of a channel's state S decays by a factor of its own (Mamba,
// arXiv:2312.00752). For each token:
//   step = softplus(dt + dt_bias);  S[i] = exp(decay[i] step) S[i] + b[i] step x;  y = sum_i c[i] S[i] + skip x
// With a gate, y is multiplied by silu(gate).
struct SelectiveScanArgs {
  Tensor y;              // out: [n_tokens, n_channels]; may be x
  Tensor x;              // [n_tokens, n_channels]
  Tensor dt;             // [n_tokens, n_channels]; overwritten
  Tensor gate;           // [n_tokens, n_channels] or empty
  Tensor b, c;           // [n_tokens, state_dim]
  Tensor decay;          // [n_channels, state_dim]; negative
  Tensor dt_bias, skip;  // [1, n_channels]
  StateCache* states = nullptr;
  int buffer = 0;  // of the states: [state_dim, n_channels]
};

}  // namespace ingot
