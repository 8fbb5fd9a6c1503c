#include "backend/cuda/current_step.h"

#include <algorithm>

#include "base/error.h"

namespace ingot::cuda {

void CurrentStep::set_sizes(const Batch& from, const Padding& padding, int longest) {
  n_tokens = from.n_tokens() + padding.n_seqs * padding.q_len;
  n_seqs = from.n_seqs() + padding.n_seqs;
  most_kv = longest;
  max_q_len = padding.q_len;
  n_of_len_ = {};
  const auto count = [&](int n, int q_len) { n_of_len_[q_len <= AttentionStep::kFewTokens ? q_len : 0] += n; };
  count(padding.n_seqs, padding.q_len);
  min_q_len = padding.n_seqs > 0 ? padding.q_len : n_tokens;
  for (int seq = 0; seq < from.n_seqs(); ++seq) {
    max_q_len = std::max(max_q_len, from.q_len(seq));
    min_q_len = std::min(min_q_len, from.q_len(seq));
    count(1, from.q_len(seq));
    for (int t = from.q_start[seq]; t < from.q_start[seq + 1]; ++t)
      CHECK_EQ(from.positions[t], from.kv_len[seq] - from.q_start[seq + 1] + t);
  }
}

AttentionStep CurrentStep::attention(const KvCache& kv, bool batch_invariant) const {
  return {.n_tokens = n_tokens,
          .n_seqs = n_seqs,
          .max_q_len = max_q_len,
          .n_of_len = n_of_len_,
          .most_kv = kv.shape.of_source ? std::max(batch.most_source_rows(), 1) : most_kv,
          .batch_invariant = batch_invariant};
}

}  // namespace ingot::cuda
