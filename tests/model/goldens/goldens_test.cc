// Tiny random models against Hugging Face transformers (tools/goldens/make_models.py): logits at every position, and 64
// greedy tokens, for any chunks of the prompt.
#include <gtest/gtest.h>

#include "backend/cpu/isa.h"
#include "backend/sampler.h"
#include "model/golden_models.h"

namespace ingot {
namespace {

class Goldens : public testing::TestWithParam<std::string> {};

TEST_P(Goldens, RefLogitsEqualTransformers) {
  const Golden golden = read_golden(GetParam());
  Ranks runner = load_golden(golden.name, {.device = "ref"});
  const double error = largest_difference(all_logits(runner, golden.tokens, 512), golden.logits);
  EXPECT_LT(error, 1e-4);
  RecordProperty("architecture", runner.config().arch->gguf_name);  // for tools/models_table.py
  RecordProperty("error", fmt::format("{:.1e}", error));
}

TEST_P(Goldens, ChunksDoNotChangeLogits) {
  const Golden golden = read_golden(GetParam());
  Ranks runner = load_golden(golden.name, {.device = "ref"}, 4);
  const std::vector<float> whole = all_logits(runner, golden.tokens, 512);
  for (int chunk : {1, 7, 16})
    EXPECT_LT(largest_difference(all_logits(runner, golden.tokens, chunk), whole), 1e-5) << chunk;
}

TEST_P(Goldens, RefGreedyEqualsTransformers) {
  const Golden golden = read_golden(GetParam());
  Ranks runner = load_golden(golden.name, {.device = "ref"});
  std::vector<int32_t> tokens = golden.tokens;
  tokens.insert(tokens.end(), golden.greedy.begin(), golden.greedy.end());
  std::vector<int32_t> greedy;
  for_each_logits(runner, tokens, 1, static_cast<int>(golden.tokens.size()) - 1,
                  [&](int position, std::span<const float> row) {
                    if (position + 1 < static_cast<int>(tokens.size())) greedy.push_back(argmax(row));
                  });
  EXPECT_EQ(greedy, golden.greedy);
}

// F16 and F32 files: nothing is rounded with --deterministic or in steps of few tokens. Prompts are multiplied in
// integers of 14 bits, with an error like that of transformers in half precision. In other files, activations become
// int8 or bf16. If that changes a router's choice of experts, a whole row differs, but most rows do not.
TEST_P(Goldens, CpuLogitsAreNearTransformers) {
  const Golden golden = read_golden(GetParam());
  const auto json = nlohmann::json::parse(read_file((kModels / (golden.name + ".json")).string()));
  const std::string type = json["types"].value("*", "");
  const bool is_exact = json["types"].size() == 1 && (type == "F32" || type == "F16");
  for (const int chunk : {512, 7, 1}) {
    Ranks runner = load_golden(golden.name, {.device = "cpu", .n_threads = 2});
    const std::vector<float> logits = all_logits(runner, golden.tokens, chunk);
    if (is_exact) {
      EXPECT_LT(largest_difference(logits, golden.logits), chunk > 7 ? 0.08 : 1e-4) << chunk;
      Ranks exact = load_golden(golden.name, {.device = "cpu", .n_threads = 2, .deterministic = true});
      const double error = largest_difference(all_logits(exact, golden.tokens, chunk), golden.logits);
      EXPECT_LT(error, 1e-4) << chunk;
      RecordProperty("error", fmt::format("{:.1e}", error));
      continue;
    }
    ASSERT_EQ(logits.size(), golden.logits.size());
    const size_t n_vocab = logits.size() / golden.tokens.size();
    size_t n_far = 0;
    for (size_t t = 0; t < golden.tokens.size(); ++t) {
      double row = 0;
      for (size_t i = t * n_vocab; i < (t + 1) * n_vocab; ++i)
        row = std::max(row, std::abs(double{logits[i]} - golden.logits[i]));
      n_far += !(row < 0.5);
    }
    EXPECT_LE(n_far, golden.tokens.size() / 5) << chunk;
  }
}

// The bound is a fraction of the whole rounding error. NAME.int8.npy has the logits of transformers with the inputs of
// its matrices rounded to int8 as the CPU kernels round them, so most of the error is the same. A sum in another order
// may still round a value to the neighbouring code, which changes later values as much as any rounding.
class RoundedGoldens : public Goldens {};  // models with only Q8_0 matrices

TEST_P(RoundedGoldens, Int8ActivationsExplainTheRest) {
  const Golden golden = read_golden(GetParam());
  const std::vector<float> rounded = read_npy(kModels / (golden.name + ".int8.npy"));
  const auto squares = [&](const std::vector<float>& a) {
    double sum = 0;
    for (size_t i = 0; i < rounded.size(); ++i) sum += (double{a.at(i)} - rounded[i]) * (double{a.at(i)} - rounded[i]);
    return sum;
  };
  const double cost = squares(golden.logits);
  ASSERT_GT(cost, 0);
  double error = 0;
  for (const auto* kernels : cpu::available_kernels())
    for (const int chunk : {512, 7, 1}) {
      Ranks runner = load_golden(golden.name, {.device = "cpu", .n_threads = 2, .isa = kernels->isa});
      const std::vector<float> logits = all_logits(runner, golden.tokens, chunk);
      EXPECT_LT(squares(logits), cost / 4) << kernels->isa << " " << chunk;
      error = std::max(error, largest_difference(logits, rounded));
    }
  RecordProperty("error", fmt::format("{:.1e}", error));  // for tools/models_table.py
}

std::vector<std::string> rounded_names() {
  std::vector<std::string> names = golden_names();
  std::erase_if(names, [](const std::string& name) { return !fs::exists(kModels / (name + ".int8.npy")); });
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, Goldens, testing::ValuesIn(golden_names()), [](const auto& i) { return i.param; });
INSTANTIATE_TEST_SUITE_P(Models, RoundedGoldens, testing::ValuesIn(rounded_names()),
                         [](const auto& i) { return i.param; });

}  // namespace
}  // namespace ingot
