#include "backend/cuda/recorded/record_sizes.h"

#include <algorithm>
#include <climits>

#include "backend/cuda/recorded/recorded_context.h"

namespace ingot::cuda {

namespace {

constexpr int kBuckets[] = {1, 2, 4, 7, 8, 14, 16, 24, 28, 32, 48, 64, 96, 128, 160, 192, 224, 256};
// Only of programs that run on clusters. An H100 and an H200 have room for 7 clusters of 16 blocks or 14 of 8 at once.
constexpr int kClusterBuckets[] = {7, 14, 28};
constexpr int kMaxRecordedOnClusters = 16;  // tokens of a sequence
constexpr int kMaxHeadSequences = 8;        // of a draft head's steps that are recorded at load
static_assert(kContexts[0] == kSplitKeys && std::ranges::find(kContexts, kMaxClusterKv) != std::end(kContexts));

bool is_cluster_bucket(int bucket) { return std::ranges::find(kClusterBuckets, bucket) != std::end(kClusterBuckets); }

}  // namespace

// The largest number of sequences in a bucket within the limits.
int RecordSizes::most_sequences(int q_len) const {
  const int n_max = std::min({limits_.max_seqs, limits_.max_tokens / q_len, kBuckets[std::size(kBuckets) - 1]});
  return limits_.max_logits > 0 ? std::min(n_max, limits_.max_logits / q_len) : n_max;
}

int RecordSizes::most_rows(int n_max) const {
  int n = 0;
  for (int q_len = 1; q_len <= n_max; ++q_len) n = std::max(n, std::min(most_sequences(q_len), n_max / q_len) * q_len);
  return n;
}

int RecordSizes::plain_context(int kv_len) const { return context_of(kv_len, limits_.max_kv_len); }

// Whether steps with this many tokens of each sequence are recorded.
bool RecordSizes::is_recorded(const Program& program, int q_len) const {
  return q_len <= kMaxRecordedTokens || (q_len <= kMaxRecordedOnClusters && fused_.replays_on_clusters(program, q_len));
}

// The number of sequences that a step is padded to.
int RecordSizes::bucket_of(const Program& program, int n_seqs, int q_len, int n_max) const {
  const int* bucket = std::ranges::lower_bound(kBuckets, n_seqs);
  while (is_cluster_bucket(*bucket) && !fused_.replays_on_clusters(program, *bucket * q_len)) ++bucket;
  return std::min(*bucket, n_max);
}

int RecordSizes::context(const Program& program, int n_seqs, int q_len, int kv_len) const {
  const int n_tasks = std::max(n_seqs * program.least_kv_heads(), 1);
  return recorded_context(kv_len,
                          {.max_kv_len = limits_.max_kv_len,
                           .n_seqs = n_seqs,
                           .on_clusters = fused_.replays_on_clusters(program, n_seqs * q_len) ? kMaxClusterKv : 0,
                           .on_grid = fused_.longest_on_grid(program, n_seqs, q_len),
                           .most_splits = (2 * device_.n_multiprocessors() + n_tasks - 1) / n_tasks});
}

std::optional<RecordKey> RecordSizes::key_of(const Program& program, const Batch& batch) const {
  if (batch.n_seqs() == 0 || batch.n_tokens() % batch.n_seqs() != 0 || !batch.second_rows.empty() ||
      !batch.embeddings.empty() || batch.n_source_rows() > 0)
    return std::nullopt;
  const int q_len = batch.n_tokens() / batch.n_seqs(), n_max = is_recorded(program, q_len) ? most_sequences(q_len) : 0;
  if (batch.n_seqs() > n_max) return std::nullopt;
  for (int seq = 0; seq < batch.n_seqs(); ++seq)
    if (batch.q_len(seq) != q_len) return std::nullopt;
  const int n_seqs = bucket_of(program, batch.n_seqs(), q_len, n_max);
  return RecordKey{program.id, n_seqs, q_len, context(program, n_seqs, q_len, longest_of(batch))};
}

// Contexts of the same step size need the same kernels and plans. Where one launch runs all layers, also the steps that
// verify drafts of one sequence: without a record, their first step takes several times as long, so drafts would seem
// not to pay.
void RecordSizes::each_at_load(const Program& program, const std::function<void(int n_seqs)>& before_size,
                               const std::function<void(const RecordKey& key, bool runs_first)>& f) const {
  const auto key = [&](int n_seqs, int q_len, int most_kv) {
    return RecordKey{program.id, n_seqs, q_len, context(program, n_seqs, q_len, std::min(most_kv, limits_.max_kv_len))};
  };
  const int n_max = std::min(most_sequences(1), program.has_pair ? kMaxHeadSequences : INT_MAX);
  for (const int bucket : kBuckets) {
    if (is_cluster_bucket(bucket) && !fused_.replays_on_clusters(program, bucket)) continue;
    const int n_seqs = std::min(bucket, n_max);
    before_size(n_seqs);
    for (const int longest : kContexts) f(key(n_seqs, 1, longest), n_seqs == 1 || longest == kContexts[0]);
    if (n_seqs == n_max) break;
  }
  const auto is_fused = [&](int q_len) {
    return fused_.replays_on_clusters(program, q_len) || fused_.longest_on_grid(program, 1, q_len) > 0;
  };
  for (int q_len = 2; !program.has_pair && is_fused(q_len) && is_recorded(program, q_len); ++q_len)  // not a draft head
    if (most_sequences(q_len) > 0) f(key(1, q_len, kContexts[0]), true);
}

}  // namespace ingot::cuda
