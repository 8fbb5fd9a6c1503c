// Layers of any parts: a mixer alone, mixers side by side, a feed-forward beside experts. Parts that read the same input
// add the outputs that each has alone. The numbers of parts follow the layers.
#include <gmock/gmock.h>

#include "golden_models.h"
#include "model/decoder_program.h"
#include "model/layers/delta_net.h"
#include "model/layers/kind.h"
#include "model/ranks.h"
#include "model/shapes.h"
#include "model/split_choice.h"
#include "test_seed.h"

namespace ingot {
namespace {

const uint64_t kSeed = test_seed();
using Layers = std::vector<std::vector<LayerPart>>;
const PartKind* kind_called(const char* name) {
  for (const PartKind* kind : all_kinds())
    if (std::string_view(kind->name) == name) return kind;
  return nullptr;
}
const LayerPart kAttends{&kAttentionPart}, kRemembers{kind_called("delta_net")}, kPlain{&kFeedForwardPart},
    kRoutes{&kExpertsPart};
LayerPart beside(LayerPart part) {
  part.beside = true;
  return part;
}

Config config_with(const Layers& layers) {
  Config c;
  c.arch = &find_gguf_arch("qwen3next");
  c.name = "parts";
  c.n_layers = static_cast<int>(layers.size());
  c.dim = 64, c.n_heads = 4, c.n_kv_heads = 2, c.head_dim = c.rot_dim = 16, c.ffn_dim = 96;
  c.n_vocab = 37, c.n_ctx_train = 64, c.norm_eps = 1e-5f;
  c.experts = {.n = 5, .n_used = 2, .ffn_dim = 32};
  c.parts.set(DeltaConfig{.n_key_heads = 2, .n_value_heads = 4, .key_dim = 8, .value_dim = 24, .conv_width = 4});
  for (const auto& parts : layers) c.layers.push_back({.parts = parts});
  return c;
}

// The residual stream after the layers, [n_tokens, dim], for tokens in steps of these sizes.
std::vector<float> stream_after(const Layers& layers, const std::vector<int>& steps) {
  const Config c = config_with(layers);
  const auto backend = create_backend({.device = "ref"});
  const auto source = dummy_source(c, Format::F32, kSeed);
  const Weights weights = load_weights(*source, c, *backend, nullptr);
  const auto kv = backend->make_kv(
      {.n_layers = std::max(1, c.n_kv_layers()), .n_kv_heads = 2, .head_dim = 16, .n_blocks = 4, .dtype = DType::kF32});
  const StateShape shape = state_shape(c, 1);
  const auto states = shape ? backend->make_states(shape) : nullptr;
  Program program = decoder_layers(c, weights, {kv.get(), states.get()}, backend.get(), 64);
  program.allocate(*backend, {.max_tokens = 16, .max_seqs = 1, .max_logits = 1, .max_kv_len = 64});
  std::vector<float> all;
  const std::vector<int32_t> blocks = {0, 1, 2, 3}, slot = {0};
  for (int past = 0; const int n : steps) {
    std::vector<int32_t> tokens, positions;
    for (int i = 0; i < n; ++i) tokens.push_back((past + i) * 7 % 37), positions.push_back(past + i);
    const std::vector<int32_t> q_start = {0, n}, kv_len = {past + n}, before = {past == 0 ? -1 : 0};
    backend->run(program, {.tokens = tokens, .positions = positions, .q_start = q_start, .kv_len = kv_len,
                           .block_table = blocks, .max_blocks = 4, .state_in = before, .state_out = slot});
    const size_t size = all.size(), added = static_cast<size_t>(n) * 64;
    all.resize(size + added);
    backend->download(all.data() + size, program.x.slice_rows(0, n));
    past += n;
  }
  return all;
}

void expect_sum(const std::vector<LayerPart>& together) {
  const std::vector<int> steps = {5, 1, 7};
  const std::vector<float> input = stream_after({}, steps), both = stream_after({together}, steps);
  std::vector<float> expected = input;
  for (const LayerPart& part : together) {
    const std::vector<float> alone = stream_after({{{part.kind}}}, steps);
    double change = 0;
    for (size_t i = 0; i < alone.size(); ++i) {
      change += std::abs(double{alone[i]} - input[i]);
      expected[i] += alone[i] - input[i];
    }
    EXPECT_GT(change, 1e-3) << part.kind->name << " changes the stream";
  }
  for (size_t i = 0; i < both.size(); ++i) ASSERT_NEAR(both[i], expected[i], 1e-4) << i << ", seed " << kSeed;
}

TEST(Parts, SideBySideAddWhatEachHasAlone) {
  expect_sum({kAttends, beside(kRemembers)});
  expect_sum({kRemembers, beside(kAttends)});
  expect_sum({kPlain, beside(kRoutes)});
  expect_sum({kAttends, beside(kPlain)});
  expect_sum({kAttends, beside(kRemembers), beside(kPlain)});
}

// One after another, the second part reads what the first has added.
TEST(Parts, InTurnReadEachOther) {
  const std::vector<int> steps = {6};
  EXPECT_NE(stream_after({{kAttends, kPlain}}, steps), stream_after({{kAttends, beside(kPlain)}}, steps));
}

TEST(Parts, StepsChangeNothing) {
  const Layers layers = {{kRemembers}, {kAttends, beside(kRemembers), kPlain, beside(kRoutes)}, {kPlain}, {kRemembers}};
  const std::vector<float> whole = stream_after(layers, {13}), cut = stream_after(layers, {4, 1, 8});
  ASSERT_EQ(whole.size(), cut.size());
  for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(whole[i], cut[i], 1e-5) << i << ", seed " << kSeed;
}

TEST(Parts, HaveNumbersInTheOrderOfAStep) {
  const Config c = config_with({{kRemembers}, {kAttends, beside(kRemembers), kPlain, beside(kRoutes)}, {kPlain}});
  const PartNumbers numbers(c);
  EXPECT_EQ(numbers.n(), 1 + 1 + 2 + 1 + 1);
  EXPECT_EQ(numbers.at(1, 1), 3);
  EXPECT_EQ(numbers.n_of(1), 2);
  const int layers[] = {-1, 0, 1, 1, 2, 3};
  for (int i = 0; i < numbers.n(); ++i) EXPECT_EQ(numbers.layer_of(i), layers[i]) << i;
  EXPECT_EQ(c.n_kv_layers(), 1);
  EXPECT_EQ(state_shape(c, 1).buffers.size(), 2u * 2);
}

// Any part may be on any device: the logits stay the same.
TEST(Parts, MayBeOnAnyDevice) {
  const Config c = config_with({{kRemembers}, {kAttends, beside(kRemembers), kPlain, beside(kRoutes)}, {kPlain}});
  std::mt19937_64 random(kSeed);
  const auto logits = [&](const Split& split) {
    RunnerOptions options{.backend = {.device = split.n_devices() > 1 ? "cpu,cpu" : "cpu", .n_threads = 2},
                          .split = split, .n_ctx = 32, .max_logits = 4};
    Ranks ranks(c, dummy_source(c, Format::F32, kSeed), options, nullptr);
    return all_logits(ranks, std::vector<int32_t>{1, 5, 9, 30}, 4);
  };
  const std::vector<float> alone = logits(Split(c));
  for (int round = 0; round < 8; ++round) {
    Split split(c);
    for (int& device : split.device) device = static_cast<int>(random() % 2);
    split.device[random() % split.device.size()] = 1;
    if (split.n_devices() == 1) continue;
    EXPECT_EQ(logits(split), alone) << "seed " << kSeed << ", round " << round;
  }
}

}  // namespace
}  // namespace ingot
