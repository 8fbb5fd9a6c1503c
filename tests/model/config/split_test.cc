// A model on several devices computes the same bits as on one, wherever its blocks are. Runs all models of
// tests/data/models on several CPU backends.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "model/golden_models.h"
#include "test_seed.h"

namespace ingot {
namespace {

Ranks load_split(const std::string& name, const std::string& devices, const Split& split) {
  auto file = std::make_shared<const Gguf>(Gguf::open((kModels / (name + ".gguf")).string()));
  const bool on_gpu = devices.find("cuda") != devices.npos;
  const RunnerOptions options{
      .backend = {.device = devices, .n_threads = 1, .activations = on_gpu ? "f32" : "", .deterministic = !on_gpu},
      .split = split,
      .n_ctx = n_ctx_of(name),
      .max_batch_tokens = 512,
      .max_logits = 512,
      .kv_dtype = DType::kF32};
  return Ranks(config_from_gguf(*file), gguf_source(file), options, nullptr);
}

// The CPU rounds activations to int8 before products with other types.
bool is_exact(const Golden& golden) {
  const auto json = nlohmann::json::parse(read_file((kModels / (golden.name + ".json")).string()));
  const std::string type = json["types"].value("*", "");
  return json["types"].size() == 1 && (type == "F32" || type == "F16");
}

std::string split_name(const Split& split) {
  std::string text;
  for (const int device : split.device) text += static_cast<char>('0' + device);
  return text;
}

Split layers_from(const PartNumbers& numbers, int first_on_0) {
  Split split(numbers);
  for (int i = 0; i < numbers.at(first_on_0); ++i) split.device[static_cast<size_t>(i)] = 1;
  return split;
}

// Pipeline stages, experts on another device, embedding and head on other devices, and random placements.
std::vector<Split> splits_of(const Config& c, unsigned seed) {
  const PartNumbers numbers(c);
  std::vector<Split> splits = {layers_from(numbers, c.n_layers / 2), layers_from(numbers, c.n_layers)};
  Split experts(numbers), ends = experts;
  for (int layer = 0; layer < c.n_layers; ++layer) experts.layer(layer, numbers.n_of(layer) - 1) = 1;
  ends.embedding() = 1, ends.head() = 2;
  splits.insert(splits.end(), {experts, ends});
  std::mt19937 random(seed);
  for (int i = 0; i < 2; ++i) {
    Split any(numbers);
    for (int& device : any.device) device = static_cast<int>(random() % 3);
    splits.push_back(any);
  }
  return splits;
}

class Splits : public testing::TestWithParam<std::string> {};

TEST_P(Splits, SameBitsAsOneDevice) {
  const Golden golden = read_golden(GetParam());
  if (is_on_one_device(golden.name)) GTEST_SKIP() << "layers share keys or inputs";
  Ranks whole = load_split(golden.name, "cpu", {});
  const unsigned seed = test_seed();
  for (const Split& split : splits_of(whole.config(), seed)) {
    SCOPED_TRACE(fmt::format("seed {}, blocks on devices {}", seed, split_name(split)));
    Ranks ranks = load_split(golden.name, "cpu,cpu,cpu", split);
    EXPECT_EQ(ranks.weights().n_parameters, whole.weights().n_parameters);
    EXPECT_EQ(ranks.weights().file_bytes, whole.weights().file_bytes);
    EXPECT_EQ(ranks.weights().active_bytes, whole.weights().active_bytes);
    EXPECT_EQ(ranks.weights().chosen_bytes, whole.weights().chosen_bytes);
    for (const int chunk : {512, 7, 1})
      EXPECT_EQ(all_logits(ranks, golden.tokens, chunk), all_logits(whole, golden.tokens, chunk)) << chunk;
  }
}

// Two kinds of backends: each continues with the results of the other.
TEST_P(Splits, RefAndCpuAreNearTransformers) {
  const Golden golden = read_golden(GetParam());
  if (is_on_one_device(golden.name)) GTEST_SKIP() << "layers share keys or inputs";
  if (!is_exact(golden)) GTEST_SKIP() << "activations are rounded";
  Ranks whole = load_split(golden.name, "cpu", {});
  for (const Split& split : splits_of(whole.config(), 1)) {
    if (split.n_devices() > 2) continue;
    SCOPED_TRACE(split_name(split));
    Ranks ranks = load_split(golden.name, "ref,cpu", split);
    EXPECT_LT(largest_difference(all_logits(ranks, golden.tokens, 7), golden.logits), 1e-4);
  }
}

// Blocks divided between a GPU and the CPU: whole prompts, and steps of one token, which are recorded together with
// their transfers.
class CudaSplits : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no GPU";
  }
};

TEST_P(CudaSplits, NearTransformers) {
  const Golden golden = read_golden(GetParam());
  if (is_on_one_device(golden.name)) GTEST_SKIP() << "layers share keys or inputs";
  const Config config = load_split(golden.name, "cuda", {}).config();
  for (const char* devices : {"cuda,cpu", "cpu,cuda"})  // either may have the head
    for (const Split& split : splits_of(config, 1)) {
      if (split.n_devices() > 2) continue;
      SCOPED_TRACE(fmt::format("{} {}", devices, split_name(split)));
      Ranks ranks = load_split(golden.name, devices, split);
      for (const int chunk : {512, 7, 1}) {
        const std::vector<float> logits = all_logits(ranks, golden.tokens, chunk);
        // The CPU multiplies F16 prompts in integers of 14 bits.
        const double bound = !is_exact(golden) ? 0.5 : chunk > 7 ? 0.08 : 1e-3;
        size_t n_far = 0;
        for (size_t i = 0; i < logits.size(); ++i) n_far += !(std::abs(double{logits[i]} - golden.logits[i]) < bound);
        EXPECT_LE(n_far, is_exact(golden) ? 0 : logits.size() / 5) << chunk;
      }
    }
}

// The GPU samples between steps whose experts are on the CPU.
TEST_P(CudaSplits, GreedyEqualsTransformers) {
  const Golden golden = read_golden(GetParam());
  if (is_on_one_device(golden.name)) GTEST_SKIP() << "layers share keys or inputs";
  if (!is_exact(golden)) GTEST_SKIP() << "activations are rounded";
  const Config config = load_split(golden.name, "cuda", {}).config();
  for (const Split& split : splits_of(config, 1)) {
    if (split.n_devices() > 2) continue;
    SCOPED_TRACE(split_name(split));
    Ranks ranks = load_split(golden.name, "cuda,cpu", split);
    Lockstep sequence(ranks);
    const SamplingParams params{.temperature = 0};
    std::vector<int32_t> next = golden.tokens, greedy;
    while (greedy.size() < golden.greedy.size()) {
      sequence.feed(next, static_cast<int>(next.size()) - 1);
      const SampleRow row{&params, sequence.length()};
      ranks.sample({&row, 1});
      next = {ranks.wait().at(0).token};
      greedy.push_back(next[0]);
    }
    EXPECT_EQ(greedy, golden.greedy);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaSplits, testing::ValuesIn(golden_names()), [](const auto& i) { return i.param; });
INSTANTIATE_TEST_SUITE_P(Models, Splits, testing::ValuesIn(golden_names()), [](const auto& i) { return i.param; });

}  // namespace
}  // namespace ingot
