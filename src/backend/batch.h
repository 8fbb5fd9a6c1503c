// Batch: one ragged step. Each sequence has q_len >= 1 new tokens and a kv_len; prefill, a chunk of a prefill, and
// decode differ only in shape. The arrays are in host memory. The batch builder owns the arrays, which are valid until
// wait() returns for the step.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace ingot {

struct Sampled;

inline constexpr int kMaxTables = 8;  // the most KV caches of a model
inline constexpr int kRopeAxes = 3;   // of a rope with several axes (multimodal rope, arXiv:2409.12191)

// A placeholder for a token id: the token that row `row` of the last sample() drew. The host may not have that token
// yet.
inline int32_t drawn_token(int row) { return -1 - row; }

// Rows [first, first + n) of a batch.
struct RowRange {
  int64_t first = 0, n = 0;
};

struct Batch {
  std::span<const int32_t> tokens;       // [n_tokens]: token id, or a drawn_token()
  std::span<const int32_t> positions;    // [n_tokens]: position in its sequence
  std::span<const int32_t> q_start;      // [n_seqs + 1]: first token of each sequence in this batch; last is n_tokens
  std::span<const int32_t> kv_len;       // [n_seqs]: tokens of the sequence after this step
  // [n_tables, n_seqs, max_blocks]: for each KV cache, the block of each block_size tokens of the sequence. Entries
  // before the window of the cache's layers name any full block.
  std::span<const int32_t> block_table;
  int max_blocks = 0;
  // [n_logits]: which tokens of the batch get logits. For a DraftInputBlock with a source: the row of each token.
  std::span<const int32_t> logit_rows;
  // [n_seqs] for models with recurrent layers, otherwise empty. state_in: the slot with the sequence's state before
  // this step, or -1 at the start of the sequence. state_out: the slot for the state after this step; it may be the
  // same slot.
  std::span<const int32_t> state_in = {}, state_out = {};
  std::span<const RowRange> second_rows = {};  // for encoders that read pairs: the tokens of each pair's second text
  // Rows whose input is a vector instead of a token id, such as the rows of an image. Both are empty if there are none.
  std::span<const float> embeddings = {};  // [n_embeddings, dim]
  std::span<const int32_t> embedding_rows =
      {};  // [n_tokens]: the row of `embeddings` that is the input, or -1: the token
  // [kRopeAxes, n_tokens]: positions for ropes with several axes, such as the time, row and column of a piece of an
  // image. Empty: `positions` on each axis.
  std::span<const int32_t> rope_positions = {};
  // [n_tokens]: in causal attention, the tokens of its sequence that a token sees, at least up to itself. The rows of an
  // image may see each other. Empty: no token sees a later one.
  std::span<const int32_t> seen_len = {};
  // For layers that read the keys of a source, such as of the encoder's output (cross attention). The sources of
  // sequences whose keys this step makes; empty: of none. source_len: of every sequence, in models with such layers.
  std::span<const float> sources = {};         // [n_source_rows, source_dim]
  std::span<const int32_t> source_start = {};  // [n_seqs + 1]: first row of each sequence's source in `sources`
  std::span<const int32_t> source_len = {};    // [n_seqs]: rows of each sequence's source

  int n_tokens() const { return static_cast<int>(tokens.size()); }
  int n_seqs() const { return static_cast<int>(kv_len.size()); }
  int n_logits() const { return static_cast<int>(logit_rows.size()); }
  int n_source_rows() const { return source_start.empty() ? 0 : source_start.back(); }
  // The sequence of a row of `sources`.
  int seq_of_source_row(int64_t row) const {
    return static_cast<int>(std::ranges::upper_bound(source_start, row) - source_start.begin()) - 1;
  }
  // Of a token on an axis of the rope.
  int32_t rope_position(int axis, int64_t token) const {
    return rope_positions.empty() ? positions[token] : rope_positions[int64_t{axis} * n_tokens() + token];
  }
  // The tokens that a token sees in causal attention.
  int32_t seen_by(int64_t token) const { return seen_len.empty() ? positions[token] + 1 : seen_len[token]; }
  int q_len(int seq) const { return q_start[seq + 1] - q_start[seq]; }
  int n_tables() const {
    return block_table.empty() ? 0 : static_cast<int>(block_table.size()) / (n_seqs() * max_blocks);
  }
  const int32_t* blocks(int seq, int table = 0) const {
    return block_table.data() + (int64_t{table} * n_seqs() + seq) * max_blocks;
  }
};

// The batch's tokens, with each drawn_token() replaced by the token id. For backends that have the drawn tokens before
// the next step begins. Copies the tokens to `storage`, but only if the batch has a drawn_token(). A row that drew
// kNoToken (-1) runs as token 0, and its result is not used.
std::span<const int32_t> with_drawn_tokens(const Batch& batch, std::span<const Sampled> drawn,
                                           std::vector<int32_t>& storage);

// The largest step that a backend must be able to run; Backend::reserve allocates everything from these limits. The
// caller sets the first four, n_vocab, n_tables and max_source_rows. A program's blocks (Buffers) set the rest.
struct StepLimits {
  int max_tokens = 0;  // in one batch
  int max_seqs = 0;
  int max_logits = 0;  // rows of logits
  int max_kv_len = 0;  // tokens of one sequence
  int max_width = 0;   // columns of the widest activation other than logits
  int max_heads = 0;   // query heads
  int head_dim = 0;
  int64_t max_expert_rows = 0;    // rows of one moe_matmul; 0: the model has no experts
  int64_t max_expert_floats = 0;  // floats of its input or output, with 64 columns of padding in each row
  int n_vocab = 0;                // 0: nothing is sampled
  int n_tables = 1;               // of block tables in a batch
  int n_rope_axes = 1;            // of the program's ropes
  int max_source_rows = 0;        // of all sources in one batch
};
StepLimits largest(const StepLimits& a, const StepLimits& b);  // of each limit

}  // namespace ingot
