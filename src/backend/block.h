// Blocks: a model as a list of typed steps, from token ids to logits or vectors. Each block is a struct with its own
// weights, sizes, caches and scratch. blocks.cc lists the ops that compute each block. model/decoder_program.h builds
// such lists, and Backend::run runs them.
//
// All blocks read and write one residual stream x, [n_tokens, dim]. Only the block itself reads its scratch, so all
// blocks share one scratch buffer (Program::allocate).
#pragma once
#include <functional>
#include <optional>
#include <type_traits>
#include <variant>
#include <vector>

#include "backend/batch.h"
#include "backend/ops.h"

namespace ingot {

class Backend;
class Buffers;

// How the output of a block joins the residual stream: x += scale * post_norm(in w^T + bias), then x = sum_norm(x).
struct Join {
  NormArgs post_norm;  // weight [1, dim]; only with has_post_norm, which is set before the weights are loaded
  bool has_post_norm = false;
  NormArgs sum_norm;  // weight [1, dim] or empty: for encoders that normalise the sum
  float scale = 1;
  bool sums = false;   // each rank has some of the inputs; the products of all ranks are summed
  NormArgs next_norm;  // weight [1, dim] or empty: the norm of the next block, after a sum over ranks of plain products
  bool is_plain() const { return !changes() && !sums; }         // the product can be added to x directly
  bool changes() const { return has_post_norm || scale != 1; }  // the branch, before it is added
};

// Cosines and sines for the positions of the batch. Blocks with the same rope share a table, and refer to it by index.
struct RopeTable {
  int rot_dim = 0;
  std::vector<float> frequencies;  // [rot_dim / 2]; empty until the weights are loaded
  Tensor inv_freq;                 // [1, rot_dim / 2]: the same on the device
  Tensor angles;                   // out: [max_tokens, rot_dim]
  float magnitude = 1;
};
inline constexpr int kNoRope = -1;

struct EmbedBlock {
  Tensor x;      // out: [max_tokens, dim]
  Weight table;  // [n_vocab, dim]
  float scale = 1;
  Tensor positions;    // [n_ctx, dim], [1, dim] or empty: added to each token
  Tensor second_type;  // [1, dim] or empty: added to the tokens of a pair's second text
  NormArgs norm;       // empty weight: none
  void lay_out(Buffers&) {}
};

// The input of a draft head, which guesses the token after the next: the next token's embedding and the hidden state of
// the row, both normed, side by side. For multi-token prediction (arXiv:2412.19437, 2.2), a projection of the pair
// becomes the residual stream. For EAGLE-3 (arXiv:2503.01840), the hidden state becomes the residual stream, and the
// attention that follows reads the pair.
struct DraftInputBlock {
  Tensor x;                   // in, out: [max_tokens, dim]
  Tensor hidden;              // [max_tokens, n] of another program, or empty: x itself is the hidden state
  Tensor source;              // [n_rows, n] or empty: row logit_rows[t] is first copied to row t of `hidden`
  Weight table;               // [n_vocab, dim]
  float scale = 1;            // of embeddings
  NormArgs final_norm;        // of the program that computed the hidden state; empty weight: none
  NormArgs token_norm;        // weight [1, dim]: of embeddings
  NormArgs hidden_norm;       // weight [1, dim]
  Weight project;             // [dim, 2 * dim]; with reads_pair [dim, n] or empty: computes x from the hidden state
  bool hidden_first = false;  // the order of the pair
  bool reads_pair = false;    // the attention that follows reads the pair
  bool keeps_normed = false;  // with reads_pair: x becomes the normed hidden state
  Tensor pair;                // out: [max_tokens, 2 * dim], the program's
  Tensor embedded, normed;    // scratch
  void lay_out(Buffers& buffers);
};

// Copies the residual stream at a place between layers, for a draft head.
struct KeepBlock {
  Tensor x;       // [max_tokens, dim]
  int place = 0;  // index among the program's kept streams
  Tensor kept;    // out: [max_tokens, n_kept * dim], the program's
  void lay_out(Buffers&) {}
};

struct AttentionBlock {
  Tensor x;                  // in, out: [max_tokens, dim]
  bool reads_pair = false;   // q, k and v are projections of `pair`, not of x; the weights have 2 * dim columns
  Tensor pair;               // [max_tokens, 2 * dim], the program's
  NormArgs norm;             // weight [1, dim] or empty
  bool follows_sum = false;  // the block before may compute the norm: Join::next_norm
  Weight wq, wk, wv;         // [n_heads * head_dim, dim], [n_kv_heads * head_dim, dim] twice
  Tensor bq, bk, bv;         // [1, rows of the weight] or empty
  NormArgs q_norm, k_norm;   // weight [1, head_dim] or [1, rows of the weight] or empty
  int rope_table = kNoRope;
  RopeArgs rope;  // angles [max_tokens, rot_dim] or empty
  AttentionArgs attention;
  bool only_keys = false;  // writes keys and values to the cache, and leaves x as it is
  KvCache* kv = nullptr;
  Weight gate;  // [n_heads * head_dim, dim] or empty: sigmoid(gate) multiplies the output of attention
  Weight wo;    // [dim, n_heads * head_dim]
  Tensor bo;    // [1, dim] or empty
  Join join;
  std::optional<HeadsOfRanks> heads_of_ranks;  // as in QkvArgs
  bool has_gate = false;                       // set before the weights are loaded
  Tensor normed;                               // x after the norm, [max_tokens, dim]: the first scratch of all blocks
  Tensor q, k, v, attended, gates, branch;     // scratch
  void lay_out(Buffers& buffers);
};

// Attention over latents (arXiv:2405.04434, 2.1.2): keys and values are never computed. Each head multiplies its query
// by its transposed key projection and attends to latents. The head's value projection then multiplies the sum of
// latents. A latent is stored in the cache as [rope_dim | kv_rank], and is both key and value.
struct LatentAttentionBlock {
  Tensor x;                  // in, out: [max_tokens, dim]
  NormArgs norm;             // weight [1, dim]
  bool follows_sum = false;  // as in AttentionBlock
  Weight wq_a;               // [q_rank, dim] or empty: then wq multiplies x itself
  NormArgs q_a_norm;         // weight [1, q_rank]
  Weight wq;                 // [n_heads * (nope_dim + rope_dim), q_rank or dim]
  Weight wkv_a;              // [kv_rank + rope_dim, dim]
  NormArgs kv_a_norm;        // weight [1, kv_rank]
  Weight wk_b, wv_b;         // n_heads matrices [kv_rank, nope_dim]; n_heads matrices [value_dim, kv_rank]
  Weight wo;                 // [dim, n_heads * value_dim]
  Tensor bo;                 // [1, dim] or empty
  int q_rank = 0, kv_rank = 0, nope_dim = 0, rope_dim = 0, value_dim = 0;
  int rope_table = 0;
  RopeArgs rope;            // angles [max_tokens, rope_dim]
  AttentionArgs attention;  // head_dim is kv_rank + rope_dim, n_kv_heads 1
  bool only_keys = false;   // as in AttentionBlock
  KvCache* kv = nullptr;
  Join join;
  Tensor normed;    // as in AttentionBlock
  Tensor head_ids;  // [max_tokens, n_heads], shared by the program: head h is expert h in moe_matmul
  Tensor q_low, q_heads, q, latent, k, attended, values, branch;  // scratch
  void lay_out(Buffers& buffers);
};

// A gated delta net (arXiv:2412.06464): each head has a state matrix that every token changes.
struct DeltaBlock {
  Tensor x;                  // in, out: [max_tokens, dim]
  NormArgs norm;             // weight [1, dim]
  bool follows_sum = false;  // as in AttentionBlock
  Weight wq, wk, wv;         // [all_keys | all_keys | all_values, dim]
  Weight gate;               // [all_values, dim]
  Weight w_beta, w_alpha;    // [n_heads, dim]
  Tensor conv;               // [2 * all_keys + all_values, conv_width]
  Tensor decay, dt;          // [1, n_heads]
  NormArgs value_norm;       // weight [1, value_dim]
  Weight wo;                 // [dim, all_values]
  int n_key_heads = 0, n_heads = 0, key_dim = 0, value_dim = 0;
  bool tiled = false;  // as in DeltaRuleArgs
  StateCache* states = nullptr;
  int layer = 0;  // index among the recurrent layers
  Join join;
  Tensor normed;                                      // as in AttentionBlock
  Tensor channels, gates, beta, alpha, read, branch;  // scratch; read: q times the state matrices
  void lay_out(Buffers& buffers);
};

struct FeedForwardBlock {
  Tensor x;                  // in, out: [max_tokens, dim]
  NormArgs norm;             // weight [1, dim] or empty
  bool follows_sum = false;  // as in AttentionBlock
  Weight w_gate;             // [ffn, dim] or empty: hidden = act(up)
  Weight w_up;               // [ffn, dim]
  Weight w_down;             // [dim, ffn]
  Tensor b_gate, b_up;       // [1, ffn] or empty
  Tensor b_down;             // [1, dim] or empty
  Activation act = Activation::kSilu;
  int ffn_dim = 0;
  Join join;
  Tensor normed;          // as in AttentionBlock
  Tensor hidden, branch;  // scratch
  void lay_out(Buffers& buffers);
};

struct ExpertsBlock {
  Tensor x;                  // in, out: [max_tokens, dim]
  NormArgs norm;             // weight [1, dim]
  bool follows_sum = false;  // as in AttentionBlock
  Weight w_router;           // [n_experts, dim]
  Tensor b_router;           // [1, n_experts] or empty
  RouteArgs route;
  Weight w_gate, w_up, w_down;  // n_experts or route.n_own matrices [ffn, dim], [ffn, dim], [dim, ffn]
  Tensor b_gate, b_up, b_down;  // [n_experts or route.n_own, n_out] or empty
  Activation act = Activation::kSilu;
  int n_experts = 0, ffn_dim = 0;
  // The shared expert, which every token uses; shared_dim 0: none. If it has a router, it runs as a mixture with one
  // expert.
  int shared_dim = 0;
  Weight shared_router;                        // [1, dim] or empty
  Weight shared_gate, shared_up, shared_down;  // [shared_dim, dim] twice, [dim, shared_dim]
  float shared_scale = 1;
  bool sums = false;                                                // as in Join
  NormArgs next_norm;                                               // as in Join
  Tensor normed;                                                    // as in AttentionBlock
  Tensor logits, ids, weights, gate, up, out, hidden, branch, sum;  // scratch
  void lay_out(Buffers& buffers);
};

// Layers of a decoder with plain attention: attention and feed-forward in turn, or attention and experts in turn. They
// are one block so that a backend may run all of them in one kernel.
struct PlainLayersBlock {
  std::vector<AttentionBlock> attention;       // [n_layers]
  std::vector<FeedForwardBlock> feed_forward;  // [n_layers], or empty
  std::vector<ExpertsBlock> experts;           // [n_layers] if feed_forward is empty
  // Calls f with the block after attention i.
  template <class F>
  void with_second(size_t i, F&& f) {
    feed_forward.empty() ? f(experts[i]) : f(feed_forward[i]);
  }
  template <class F>
  void with_second(size_t i, F&& f) const {
    feed_forward.empty() ? f(experts[i]) : f(feed_forward[i]);
  }
};

// The head: computes logits for the rows of the batch in logit_rows.
struct HeadBlock {
  Tensor x;                      // [max_tokens, dim]
  NormArgs norm;                 // weight [1, dim]
  Weight output;                 // [n_vocab, dim]
  float scale = 1, softcap = 0;  // scale and softcap of the logits; softcap 0: none
  int n_vocab = 0;
  // With several ranks, each has the logits of `rank_vocab` neighbouring tokens; the last rank has the rest.
  int n_ranks = 1, rank_vocab = 0;
  Tensor logits;                           // out: [max_logits, n_vocab]
  Tensor selected, normed, own, gathered;  // scratch; own and gathered: [1 | n_ranks * max_logits, rank_vocab]
  void lay_out(Buffers& buffers);
};

// The end of a model that outputs vectors: x is normalised in place, and the rows of each sequence become one row.
struct PoolBlock {
  Tensor x;           // in, out: [max_tokens, dim]
  NormArgs norm;      // weight [1, dim] or empty
  bool pools = true;  // false: the output is the vectors of all tokens
  Pooling pooling = Pooling::kMean;
  Tensor pooled;  // out: [max_seqs, dim]
  void lay_out(Buffers& buffers);
};

// Blocks of the model that other devices compute. The residual stream is copied to them and back through host memory.
struct RemoteBlock {
  Tensor x;             // in, out: [max_tokens, dim]
  bool reads_x = true;  // false: the first of the blocks is the embedding, which only writes x
  // Runs the blocks on the batch. `rows` is in host memory. Set before the program is allocated.
  std::function<void(const Batch& batch, float* rows /* in, out [n_tokens, dim] */)> run;
  void lay_out(Buffers&) {}
};

using Block = std::variant<EmbedBlock, AttentionBlock, LatentAttentionBlock, DeltaBlock, FeedForwardBlock, ExpertsBlock,
                           PlainLayersBlock, HeadBlock, PoolBlock, RemoteBlock, DraftInputBlock, KeepBlock>;

// Blocks [first, end) of a program.
struct BlockRange {
  int first = 0, end = 0;
};

// Assigns memory to the buffers of a list of blocks. The first pass measures, and the second sets addresses. Buffers
// from keep() get separate memory. The scratch buffers of all blocks start at the same address.
class Buffers {
 public:
  Buffers(DType act, const StepLimits& limits) : act_(act), limits_(limits) {}

  void keep(Tensor& t, DType dtype, int64_t rows, int64_t cols) { place(t, kept_, dtype, rows, cols); }
  void begin_block();
  // scratch_f32 and scratch_act: [max_tokens * rows_a_token, cols], in f32 or in the type of activations.
  void scratch_f32(Tensor& t, int64_t cols, int64_t rows_a_token = 1);
  void scratch_act(Tensor& t, int64_t cols, int64_t rows_a_token = 1);
  void scratch(Tensor& t, DType dtype, int64_t rows, int64_t cols) { place(t, scratch_, dtype, rows, cols); }

  // Limits from which backends compute the size of their own scratch.
  void has_attention(const AttentionArgs& a);
  void has_experts(int64_t rows_a_token, int64_t widest);
  const StepLimits& limits() const { return limits_; }
  DType act() const { return act_; }

  size_t bytes() const;
  void allocate(Backend& backend);  // the measured sizes; the next pass sets addresses

 private:
  struct Arena {
    char* base = nullptr;
    size_t at = 0, most = 0;
  };
  void place(Tensor& t, Arena& arena, DType dtype, int64_t rows, int64_t cols);

  DType act_;
  StepLimits limits_;
  Arena kept_, scratch_;
};

struct Program {
  Program();
  const int id;  // unique in this process: recorded steps are stored under it
  std::vector<Block> blocks;
  std::vector<RopeTable> ropes;  // their angles are computed before the first block runs
  int dim = 0;
  int n_latent_heads = 0;       // 0: no attention over latents
  Tensor head_ids;              // [max_tokens, n_latent_heads]: 0, 1, ... in each row
  int n_kept = 0;               // number of KeepBlocks
  Tensor kept;                  // [max_tokens, n_kept * dim] f32: the streams that KeepBlocks copy
  bool has_pair = false;        // begins with a DraftInputBlock
  Tensor pair;                  // [max_tokens, 2 * dim]: the output of that block
  Tensor x;                     // [max_tokens, dim] f32: the residual stream
  const KvCache* kv = nullptr;  // the cache that its blocks use; a program has at most one KV cache and one state cache
  const StateCache* states = nullptr;

  BlockRange all() const { return {0, static_cast<int>(blocks.size())}; }
  bool has_logits() const { return !blocks.empty() && std::holds_alternative<HeadBlock>(blocks.back()); }
  int least_kv_heads() const { return kv != nullptr ? kv->shape.n_kv_heads : 0; }

  // Gives all blocks their buffers. Call it to measure, then Buffers::allocate, then call it again to set addresses.
  void lay_out(Buffers& buffers);
  // Measures, allocates and places the buffers. Returns the limits, including those that the blocks set.
  StepLimits place(Backend& backend, const StepLimits& limits);
  // place(), then the backend's reserve and prepare_program.
  void allocate(Backend& backend, const StepLimits& limits);
  // Calls f with each block. For a PlainLayersBlock, calls f with each block inside.
  template <class F>
  void for_each(F&& f);

  // The output of the last step: logits [n_logits, n_vocab], or vectors [n_seqs or n_tokens, dim].
  Tensor output(int n_tokens, int n_seqs, int n_logits) const;
};

template <class F>
void Program::for_each(F&& f) {
  for (Block& block : blocks) {
    if (auto* layers = std::get_if<PlainLayersBlock>(&block)) {
      for (size_t i = 0; i < layers->attention.size(); ++i) f(layers->attention[i]), layers->with_second(i, f);
      continue;
    }
    std::visit(
        [&](auto& one) {
          if constexpr (!std::is_same_v<std::remove_reference_t<decltype(one)>, PlainLayersBlock>) f(one);
        },
        block);
  }
}

}  // namespace ingot
