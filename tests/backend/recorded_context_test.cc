// Which steps share a recorded graph on a GPU. It needs no GPU and no CUDA.
#include <gtest/gtest.h>

#include <set>

#include "backend/cuda/recorded/recorded_context.h"

namespace ingot::cuda {
namespace {

constexpr int kSome[] = {1, 127, 128, 129, 1000, 1024, 1025, 2048, 2049, 4096, 4097, 5000, 5001, 32768, 40000, 131072};

// Every limit of every kind, for every length that is possible.
template <class F>
void for_each_case(F&& f) {
  for (const int n_seqs : {1, 2, 8, 14, 64})
    for (const int on_clusters : {0, 4096})
      for (const int on_grid : {0, 2048, 5000, 32768, INT_MAX})
        for (const int most_splits : {1, 5, 33, 264})
          for (const int max_kv_len : kSome) {
            const ContextLimits limits{max_kv_len, n_seqs, on_clusters, on_grid, most_splits};
            SCOPED_TRACE(testing::Message() << n_seqs << " sequences, " << on_clusters << " on clusters, " << on_grid
                                            << " on the grid, " << most_splits << " splits, at most " << max_kv_len);
            f(limits);
          }
}

// A step runs where its length allows, and no graph is planned for more than the longest possible context.
TEST(RecordedContext, AGraphRunsWhereItsStepsWould) {
  for_each_case([](const ContextLimits& limits) {
    for (const int kv_len : kSome) {
      if (kv_len > limits.max_kv_len) break;
      const int context = recorded_context(kv_len, limits);
      ASSERT_LE(context, limits.max_kv_len) << kv_len;
      if (kv_len <= limits.on_clusters || kv_len <= limits.on_grid) {
        ASSERT_GE(context, kv_len);
        const int on_one = kv_len <= limits.on_clusters ? limits.on_clusters : limits.on_grid;
        ASSERT_LE(context, on_one) << kv_len;
      } else {
        ASSERT_GT(context, limits.on_grid) << kv_len;
        if (limits.n_seqs == 1) {
          ASSERT_GT(context, limits.on_clusters) << kv_len;
        }
      }
    }
  });
}

// Keys of a longer sequence are split as often as those of a sequence with this context.
TEST(RecordedContext, AGraphSplitsKeysAsOftenAsItsStepsWould) {
  for_each_case([](const ContextLimits& limits) {
    for (const int kv_len : kSome) {
      if (kv_len > limits.max_kv_len) break;
      if (kv_len <= limits.on_clusters || kv_len <= limits.on_grid) continue;
      const auto splits = [&](int length) { return std::min((length - 1) / kContexts[0] + 1, limits.most_splits); };
      ASSERT_GE(splits(recorded_context(kv_len, limits)), splits(kv_len)) << kv_len;
    }
  });
}

TEST(RecordedContext, FewGraphs) {
  for_each_case([](const ContextLimits& limits) {
    std::set<int> contexts, fused;
    for (const int kv_len : kSome) {
      if (kv_len > limits.max_kv_len) break;
      contexts.insert(recorded_context(kv_len, limits));
      if (kv_len <= limits.on_clusters || kv_len <= limits.on_grid) fused.insert(recorded_context(kv_len, limits));
    }
    ASSERT_LE(contexts.size(), std::size(kContexts));
    ASSERT_LE(fused.size(), 2u);  // one for clusters, one for the grid
  });
}

// llama-3.1-8b with 9,000 tokens on an H200: eight sequences run on the grid up to 2,048 tokens.
TEST(RecordedContext, AServerWithLongContextsUsesTheGridForShortOnes) {
  const ContextLimits eight{.max_kv_len = 9000, .n_seqs = 8, .on_grid = 2048, .most_splits = 5};
  EXPECT_EQ(recorded_context(1, eight), 2048);
  EXPECT_EQ(recorded_context(1500, eight), 2048);
  EXPECT_EQ(recorded_context(2048, eight), 2048);
  EXPECT_EQ(recorded_context(2049, eight), 4096);
  EXPECT_EQ(recorded_context(9000, eight), 4096);  // keys are not split further
}

// One sequence of a model with many heads of keys must not stay on a cluster, which uses a part of the GPU.
TEST(RecordedContext, ALongSequenceLeavesTheCluster) {
  const ContextLimits one{.max_kv_len = 32768, .on_clusters = 4096, .most_splits = 17};
  EXPECT_EQ(recorded_context(100, one), 4096);
  EXPECT_EQ(recorded_context(4097, one), 32768);
}

}  // namespace
}  // namespace ingot::cuda
