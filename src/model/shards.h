// Shards: which part of a model a rank computes. Each rank has some of the heads, some of the columns of every
// feed-forward and some of the vocabulary, in all layers (Megatron-LM, arXiv:1909.08053). The column `shard` of the
// tensor table (tensors.h) says how each tensor is divided.
//
// The experts of a mixture are divided like other feed-forwards, or each rank has some whole experts. Every rank has
// the residual stream of all tokens, so it computes its own experts for all tokens, and tokens are not sent to ranks.
//
// The config of a rank has the sizes of the rank's part, so code that reads sizes from a config also works for a rank.
#pragma once
#include <optional>
#include <vector>

#include "model/tensors.h"

namespace ingot {

class WeightSource;

// Elements [first, first + n).
struct Range {
  int64_t first = 0, n = 0;
};

struct Share {
  Config model;  // the whole
  int rank = 0, n_ranks = 1;
  Range heads, kv_heads;  // of attention
  Range key_heads;        // of gated delta nets, with all value heads that use them
  Range experts;          // of all, unless ranks have whole experts
  Range ffn, expert_ffn, shared_ffn;
  int rank_vocab = 0;  // tokens of each rank but the last
  Range vocab;
  bool is_first_with_kv = true;  // if a model has fewer key heads than ranks, some ranks have the same ones
};

// The config of one rank. Matrices are divided by their inputs only in multiples of `block` columns (largest_block).
// Throws UsageError if the model cannot be divided among n_ranks ranks.
Config config_of_rank(const Config& model, int rank, int n_ranks, int64_t block, bool whole_experts = false);

// The longest block of the matrices that ranks divide by their inputs.
int64_t largest_block(WeightSource& source, const Config& model, bool whole_experts = false);

// The elements of a size that the config's rank has, in order.
std::vector<Range> kept(Size size, const Config& config);

// The part of a tensor that the config's rank has. The tensor has n_matrices * n_out rows of n_in columns.
struct RankPart {
  std::vector<Range> rows, columns;
};
// Null: the rank has no part of the tensor.
template <class Owner>
std::optional<RankPart> part_of(const MatrixRow<Owner>& row, const Config& config);
template <class Owner>
std::optional<RankPart> part_of(const VectorRow<Owner>& row, const Config& config);

}  // namespace ingot
