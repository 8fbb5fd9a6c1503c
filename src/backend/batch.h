// Batch: one ragged step. Each sequence brings q_len >= 1 new tokens and its kv_len; prefill, a chunk of it, and decode
// are only shapes. Host arrays, owned by the batch builder, valid until the step has been waited for.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace ingot {

struct Sampled;

// In place of a token: the one that row `row` of the last sample() drew, which the host may not have seen yet.
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
  std::span<const int32_t> block_table;  // [n_seqs, max_blocks]: KV block of each block_size tokens of the sequence;
                                         // where no layer's window reaches any more, any of its full ones
  int max_blocks = 0;
  std::span<const int32_t> logit_rows;  // [n_logits]: which tokens of the batch get logits
  // Of models with recurrent layers, else empty. [n_seqs]: the slot that holds the state of the sequence before this
  // step, -1 at its beginning, and the one that gets the state after it, which may be the same.
  std::span<const int32_t> state_in = {}, state_out = {};
  std::span<const RowRange> second_rows = {};  // of encoders that read pairs: the tokens of each pair's second text
  // Rows that come as vectors instead of token ids (those of an image, say). Both are empty where the batch has none.
  std::span<const float> embeddings = {};  // [n_embeddings, dim]
  std::span<const int32_t> embedding_rows =
      {};  // [n_tokens]: the row of `embeddings` that is the input, or -1: the token

  int n_tokens() const { return static_cast<int>(tokens.size()); }
  int n_seqs() const { return static_cast<int>(kv_len.size()); }
  int n_logits() const { return static_cast<int>(logit_rows.size()); }
  int q_len(int seq) const { return q_start[seq + 1] - q_start[seq]; }
  const int32_t* blocks(int seq) const { return block_table.data() + static_cast<int64_t>(seq) * max_blocks; }
};

// The batch's tokens with ids in place of the drawn ones, for backends that know what was drawn when the next step
// begins. The copy is made in `storage`, and only when a token was drawn. A row without a token (-1) runs as token 0,
// and its result is not used.
std::span<const int32_t> with_drawn_tokens(const Batch& batch, std::span<const Sampled> drawn,
                                           std::vector<int32_t>& storage);

// The largest step a backend has to be ready for; everything it needs is allocated from these (Backend::reserve). The
// caller sets the first four and n_vocab; the rest comes from a program's blocks (Buffers).
struct StepLimits {
  int max_tokens = 0;  // in one batch
  int max_seqs = 0;
  int max_logits = 0;  // rows of logits
  int max_kv_len = 0;  // tokens of one sequence
  int max_width = 0;   // columns of the widest activation other than logits
  int max_heads = 0;   // query heads
  int head_dim = 0;
  int64_t max_expert_rows = 0;    // of one moe_matmul; 0: there is none
  int64_t max_expert_floats = 0;  // of its input or output, each row 64 longer than it is
  int n_vocab = 0;                // 0: nothing is drawn
};

}  // namespace ingot
