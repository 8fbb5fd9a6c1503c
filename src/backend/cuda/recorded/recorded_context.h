// The context for which a recorded step plans attention. Steps with equal launches should share a graph.
#pragma once
#include <algorithm>
#include <climits>

namespace ingot::cuda {

inline constexpr int kMaxRecordedTokens = 8;  // of a sequence in a recorded step, if it does not run on clusters

// A recorded step plans for contexts up to one of these lengths, but not beyond the longest possible context.
inline constexpr int kContexts[] = {128, 1024, 4096, 32 << 10, 64 << 10, INT_MAX};

// The smallest of kContexts that is at least kv_len, but not more than the longest possible context.
inline int context_of(int kv_len, int max_kv_len) {
  return std::min(*std::ranges::lower_bound(kContexts, kv_len), std::max(max_kv_len, kv_len));
}

struct ContextLimits {
  int max_kv_len = 0;                // the longest possible context
  int n_seqs = 1;                    // of the step
  int on_clusters = 0, on_grid = 0;  // the longest contexts with which all layers run there in one launch; 0: none
  int most_splits = 1;               // of a sequence's keys, kContexts[0] or more in each
};

// The largest context with the same launches as kv_len. On clusters and on the grid, launches do not depend on the
// context. Else, from some length on, the keys are not split further. But a graph that plans for a length of clusters
// or of the grid runs there. Several sequences may stay on clusters, because their clusters fill the GPU.
inline int recorded_context(int kv_len, const ContextLimits& limits) {
  for (const int longest : {limits.on_clusters, limits.on_grid})
    if (kv_len <= longest) return std::min(longest, std::max(limits.max_kv_len, kv_len));
  const int context = context_of(kv_len, limits.max_kv_len),
            too_short = std::max(limits.on_grid, limits.n_seqs == 1 ? limits.on_clusters : 0);
  for (const int candidate : kContexts)
    if (candidate / kContexts[0] >= limits.most_splits && candidate > too_short) return std::min(context, candidate);
  return context;
}

}  // namespace ingot::cuda
