// Plans of attention for an H200, without a GPU. The parts of divided keys must fit the scratch that is planned.
#include <gtest/gtest.h>

#include <array>
#include <random>

#include "backend/cuda/attention/part_bytes.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/kernels.h"
#include "test_seed.h"

namespace ingot::cuda {
namespace {

constexpr DeviceLimits kH200 = {
    .major = 9, .n_multiprocessors = 132, .most_shared = size_t{227} << 10, .has_hopper_code = true};

// A prompt of q_len tokens, and n_decodes sequences with one token each.
AttentionPlan plan_of(int head_dim, int q_len, int n_decodes, int most_kv) {
  const DeviceKv kv = {.n_layers = 1, .n_blocks = 64, .n_kv_heads = 8, .block_size = 16, .head_dim = head_dim};
  AttentionStep step{.n_tokens = q_len + n_decodes, .n_seqs = 1 + n_decodes, .max_q_len = q_len, .most_kv = most_kv};
  step.n_of_len[1] = n_decodes;
  ++step.n_of_len[q_len <= AttentionStep::kFewTokens ? q_len : 0];
  return plan_attention(kv, {.n_heads = 32, .n_kv_heads = 8, .head_dim = head_dim}, step, kH200);
}

TEST(CudaAttentionPlan, PartsFitTheirScratch) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 2000; ++i) {
    const int head_dim = std::array{64, 96, 128, 256}[random() % 4], q_len = 2 + static_cast<int>(random() % 2047),
              n_decodes = static_cast<int>(random() % 600), most_kv = 1 + static_cast<int>(random() % 131072);
    EXPECT_LE(plan_of(head_dim, q_len, n_decodes, most_kv).part_bytes, most_part_bytes(head_dim, 132))
        << head_dim << " columns, " << q_len << " tokens beside " << n_decodes << " decodes, " << most_kv << " keys";
  }
}

TEST(CudaAttentionPlan, APromptAloneAlwaysHasRoomForItsParts) {
  for (const int head_dim : {64, 96, 128, 256})
    for (const int q_len : {5, 17, 64, 200}) EXPECT_GT(plan_of(head_dim, q_len, 0, 32768).many.n_splits, 1) << q_len;
}

TEST(CudaAttentionPlan, PromptsLeaveRoomForManyDecodes) {
  for (const int head_dim : {64, 128, 256})
    for (const int n_decodes : {17, 128, 256}) {
      EXPECT_GT(plan_of(head_dim, 2048 - n_decodes, n_decodes, 2000).n_prompt_blocks, 0) << n_decodes;
      EXPECT_LT(plan_of(head_dim, 2048 - n_decodes, n_decodes, 2000).n_prompt_blocks, 132) << n_decodes;
    }
}

TEST(CudaAttentionPlan, PromptsUseAllMultiprocessorsBesideFewDecodesOrIfTheyAreShort) {
  EXPECT_EQ(plan_of(128, 2047, 1, 2000).n_prompt_blocks, 0);
  EXPECT_EQ(plan_of(128, 200, 256, 2000).n_prompt_blocks, 0);
  EXPECT_EQ(plan_of(128, 2048, 0, 2000).n_prompt_blocks, 0);
}

}  // namespace
}  // namespace ingot::cuda
