// The placement of blocks: dense models move whole layers off the GPU, models with experts move experts first.
#include "model/devices/split_plan.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

namespace ingot {
namespace {

constexpr size_t kMebibyte = 1 << 20;

// Layers of `attention` and `feed_forward` MiB; the embedding and the head have 50 MiB each.
std::vector<BlockNeeds> model(int n_layers, size_t attention, size_t feed_forward, bool experts) {
  std::vector<BlockNeeds> blocks = {{-1, 50 * kMebibyte, 50 * kMebibyte, 0}};
  for (int i = 0; i < n_layers; ++i) {
    blocks.push_back({i, attention * kMebibyte, attention * kMebibyte, attention * kMebibyte});
    blocks.push_back({i, feed_forward * kMebibyte, feed_forward * kMebibyte,
                      feed_forward * kMebibyte / (experts ? 16 : 1), experts});
  }
  blocks.push_back({-1, 50 * kMebibyte, 50 * kMebibyte, 50 * kMebibyte});
  return blocks;
}
std::vector<BlockNeeds> dense() { return model(8, 20, 80, false); }      // 900 MiB
std::vector<BlockNeeds> experts() { return model(8, 20, 320, true); }  // 2820 MiB

// A letter for each block, in the order of a step: the embedding, each layer's two, the head. 'h': the host.
std::string split_name(const std::optional<Split>& split, size_t n_gpus) {
  if (!split) return "none";
  std::string text;
  for (size_t i = 0; i < split->device.size(); ++i) {
    if (i % 2 == 1) text += ' ';
    text += split->device[i] == static_cast<int>(n_gpus) ? 'h' : static_cast<char>('0' + split->device[i]);
  }
  return text;
}

struct PlanRow {
  const char* what;
  std::vector<BlockNeeds> blocks;
  std::vector<size_t> gpus;  // MiB
  size_t host;               // MiB
  SplitWishes wishes;
  const char* expected;
};

std::vector<bool> on_host(std::initializer_list<int> blocks) {
  std::vector<bool> all(18);
  for (const int block : blocks) all[static_cast<size_t>(block)] = true;
  return all;
}

const PlanRow kRows[] = {
    {"all fits", dense(), {900}, 0, {}, "0 00 00 00 00 00 00 00 00 0"},
    {"the embedding alone is enough", dense(), {850}, 50, {}, "h 00 00 00 00 00 00 00 00 0"},
    {"a dense model loses its first layers", dense(), {650}, 9999, {}, "h hh hh 00 00 00 00 00 00 0"},
    {"a layer beside the head does not fit", dense(), {140}, 9999, {}, "h hh hh hh hh hh hh hh hh h"},
    {"nothing fits the GPU", dense(), {10}, 9999, {}, "h hh hh hh hh hh hh hh hh h"},
    {"nothing fits the host", dense(), {650}, 249, {}, "none"},
    {"experts leave before layers", experts(), {1600}, 9999, {}, "0 0h 0h 0h 0h 00 00 00 00 0"},
    {"all experts", experts(), {270}, 9999, {}, "0 0h 0h 0h 0h 0h 0h 0h 0h 0"},
    {"all experts, and some layers", experts(), {180}, 9999, {}, "h hh hh 0h 0h 0h 0h 0h 0h 0"},
    {"layers as wished", dense(), {9999}, 9999, {.gpu_layers = 3}, "h hh hh hh hh hh 00 00 00 0"},
    {"more than there are", dense(), {9999}, 9999, {.gpu_layers = 99}, "0 00 00 00 00 00 00 00 00 0"},
    {"none", dense(), {9999}, 9999, {.gpu_layers = 0}, "h hh hh hh hh hh hh hh hh h"},
    {"wishes need not fit", dense(), {1}, 1, {.gpu_layers = 8}, "0 00 00 00 00 00 00 00 00 0"},
    {"experts as wished", experts(), {9999}, 9999, {.host_experts = 2}, "0 0h 0h 00 00 00 00 00 00 0"},
    {"both", experts(), {9999}, 9999, {.gpu_layers = 6, .host_experts = 1}, "h hh hh 0h 00 00 00 00 00 0"},
    {"layers wished, experts chosen", experts(), {1000}, 9999, {.gpu_layers = 6}, "h hh hh 0h 0h 0h 0h 00 00 0"},
    {"patterns", experts(), {9999}, 9999, {.gpu_layers = 8, .host_experts = 0, .on_host = on_host({4, 7, 8})},
     "0 00 0h 00 hh 00 00 00 00 0"},
    {"two GPUs", dense(), {500, 500}, 0, {}, "0 00 00 00 00 11 11 11 11 1"},
    {"GPUs of different memory", dense(), {300, 700}, 0, {}, "0 00 00 11 11 11 11 11 11 1"},
    {"layers of each GPU", dense(), {999, 999}, 0, {.gpu_layers = 8, .layers_of_gpu = {5, 3}},
     "0 00 00 00 00 00 11 11 11 1"},
    {"three GPUs and the host", dense(), {200, 200, 200}, 999, {}, "h hh hh hh 00 00 11 11 22 2"},
};

TEST(SplitPlan, Table) {
  for (const PlanRow& row : kRows) {
    SplitLimits limits{.gpu_bytes = {}, .host_bytes = row.host * kMebibyte};
    for (const size_t mib : row.gpus) limits.gpu_bytes.push_back(mib * kMebibyte);
    EXPECT_EQ(split_name(plan_split(row.blocks, limits, row.wishes), row.gpus.size()), row.expected) << row.what;
  }
}

// For all sizes, the chosen split fits, and no split of its family with more blocks on the GPU is faster.
TEST(SplitPlan, MoreMemoryIsNeverSlower) {
  for (const bool has_experts : {false, true}) {
    const auto blocks = has_experts ? experts() : dense();
    double last_ms = 1e9;
    for (size_t mib = 0; mib <= 3000; mib += 10) {
      const auto split = plan_split(blocks, {{mib * kMebibyte}, 9999 * kMebibyte}, {});
      ASSERT_TRUE(split) << mib;
      size_t on_gpu = 0;
      for (size_t i = 0; i < blocks.size(); ++i)
        if (split->device[i] == 0) on_gpu += blocks[i].gpu_bytes;
      EXPECT_LE(on_gpu, mib * kMebibyte);
      const double ms = estimated_ms(*split, blocks, 1);
      EXPECT_LE(ms, last_ms) << mib;
      last_ms = ms;
    }
    EXPECT_EQ(plan_split(blocks, {{3000 * kMebibyte}, 9999 * kMebibyte}, {})->n_devices(), 1);
  }
}

}  // namespace
}  // namespace ingot
