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

#include "model/config/tensors.h"

namespace ingot {

struct Share {
  Config model;  // the whole
  int rank = 0, n_ranks = 1;
  Range heads, kv_heads;  // of attention
  Range ffn;
  int rank_vocab = 0;  // tokens of each rank but the last
  Range vocab;
  bool is_first_with_kv = true;  // if a model has fewer key heads than ranks, some ranks have the same ones
};

// The config of one rank. Matrices are divided by their inputs only in multiples of `block` columns (largest_block).
// Throws UsageError if the model cannot be divided among n_ranks ranks.
Config config_of_rank(const Config& model, int rank, int n_ranks, int64_t block, bool whole_experts = false);

// Divides a model among ranks. Each kind of part (PartKind::divide) deals its own sizes.
struct Deal {
  const Config& model;
  Share& share;  // out
  int rank, n_ranks;
  int64_t block;                // matrices are divided by their inputs only in multiples of it
  bool whole_experts = false;
  int64_t n_groups = 1;         // of n_ranks ranks each; each group divides its own part

  // Gives each rank neighbouring units, as evenly as possible. `each`: elements of a unit. `advice` ends the message.
  Range deal(int64_t n_units, int64_t each, const char* what, const char* advice = "") const;
  // Columns of a feed-forward. Kernels are fastest for multiples of 32.
  Range deal_columns(int64_t n, const char* what, const char* advice = "") const;
};

// The fewest heads of `dim` columns that fill whole blocks.
int64_t heads_in_blocks(int64_t n_heads, int64_t dim, int64_t block);
std::vector<Range> scaled(const Range& units, int64_t each);        // the elements of units
std::vector<Range> merged(const std::vector<Range>& ranges);        // neighbouring ranges become one

// The elements of a size that the config's rank has, in order.
std::vector<Range> kept(const Dim& dim, const Config& config);

// The part of a tensor that the config's rank has. The tensor has n_matrices * n_out rows of n_in columns.
struct RankPart {
  std::vector<Range> rows, columns;
};
// Null: the rank has no part of the tensor.
std::optional<RankPart> part_of(const MatrixRow& row, const Config& config);
std::optional<RankPart> part_of(const VectorRow& row, const Config& config);

}  // namespace ingot
