#include "backend/batch.h"

#include <algorithm>

#include "backend/sampling.h"
#include "base/check.h"

namespace ingot {

std::span<const int32_t> with_drawn_tokens(const Batch& batch, std::span<const Sampled> drawn,
                                           std::vector<int32_t>& storage) {
  if (std::ranges::none_of(batch.tokens, [](int32_t token) { return token < 0; })) return batch.tokens;
  storage.assign(batch.tokens.begin(), batch.tokens.end());
  for (int32_t& token : storage) {
    if (token >= 0) continue;
    const int row = -1 - token;
    CHECK_LT(row, static_cast<int>(drawn.size()));
    token = std::max(drawn[row].token, 0);
  }
  return storage;
}

StepLimits largest(const StepLimits& a, const StepLimits& b) {
  return {.max_tokens = std::max(a.max_tokens, b.max_tokens),
          .max_seqs = std::max(a.max_seqs, b.max_seqs),
          .max_logits = std::max(a.max_logits, b.max_logits),
          .max_kv_len = std::max(a.max_kv_len, b.max_kv_len),
          .max_width = std::max(a.max_width, b.max_width),
          .max_heads = std::max(a.max_heads, b.max_heads),
          .head_dim = std::max(a.head_dim, b.head_dim),
          .max_expert_rows = std::max(a.max_expert_rows, b.max_expert_rows),
          .max_expert_floats = std::max(a.max_expert_floats, b.max_expert_floats),
          .n_vocab = std::max(a.n_vocab, b.n_vocab),
          .n_tables = std::max(a.n_tables, b.n_tables),
          .n_rope_axes = std::max(a.n_rope_axes, b.n_rope_axes),
          .max_source_rows = std::max(a.max_source_rows, b.max_source_rows)};
}

}  // namespace ingot
