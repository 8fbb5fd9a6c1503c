// Builds the kind of layer of docs/add-a-layer.md (cmake/tests.cmake extracts its files), and runs a model of such
// layers: from both dialects, in chunks, from the prefix cache, with drafts that are cut back, and on several ranks.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/file.h"
#include "base/json.h"
#include "engine/collector.h"
#include "engine/engine.h"
#include "model/config/kind.h"
#include "model/devices/memory_plan.h"
#include "model/devices/parallel.h"
#include "model/devices/score.h"
#include "model/export/gguf_export.h"
#include "model/export/quantize.h"
#include "model/files/checkpoint.h"
#include "model/layers/convolution.h"
#include "model/safetensors_edit.h"
#include "test_seed.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
constexpr int kDim = 32, kFfn = 48, kVocab = 40, kWidth = 4, kLayers = 4;  // two convolutions and two attentions

class ToyModel {
 public:
  ToyModel() {
    fs::create_directories(path_);
    const nlohmann::json config = {{"model_type", "toy"},         {"hidden_size", kDim},
                                   {"intermediate_size", kFfn},   {"num_hidden_layers", kLayers},
                                   {"num_attention_heads", 4},    {"num_key_value_heads", 2},
                                   {"vocab_size", kVocab},        {"max_position_embeddings", 128},
                                   {"rms_norm_eps", 1e-5},        {"conv_width", kWidth},
                                   {"tie_word_embeddings", false}};
    write("config.json", config.dump());
    matrix("model.embed_tokens.weight", kVocab, kDim, 1);
    matrix("lm_head.weight", kVocab, kDim);
    ones("model.norm.weight");
    for (int layer = 0; layer < kLayers; ++layer)
      add_layer("model.layers." + std::to_string(layer) + ".", layer % 2 == 0);
    write("model.safetensors", safetensors_of(tensors_));
  }
  ~ToyModel() { fs::remove_all(path_); }

  std::string path() const { return path_.string(); }
  const std::vector<float>& values(const std::string& name) const { return values_.at(name); }

 private:
  void add_layer(const std::string& prefix, bool convolves) {
    ones(prefix + "input_layernorm.weight");
    ones(prefix + "post_attention_layernorm.weight");
    if (convolves) {
      matrix(prefix + "convolution.in_proj.weight", kDim, kDim);
      matrix(prefix + "convolution.out_proj.weight", kDim, kDim);
      matrix(prefix + "convolution.weight", kDim, kWidth);
    } else {
      for (const auto& [name, n] : {std::pair{"q", kDim}, {"k", kDim / 2}, {"v", kDim / 2}, {"o", kDim}})
        matrix(prefix + "self_attn." + name + "_proj.weight", n, kDim);
    }
    matrix(prefix + "mlp.gate_proj.weight", kFfn, kDim);
    matrix(prefix + "mlp.up_proj.weight", kFfn, kDim);
    matrix(prefix + "mlp.down_proj.weight", kDim, kFfn);
  }
  void matrix(const std::string& name, int64_t n_out, int64_t n_in, float deviation = 0) {
    std::normal_distribution<float> draw(0, deviation > 0 ? deviation : 1.0f / std::sqrt(static_cast<float>(n_in)));
    std::vector<float> numbers(static_cast<size_t>(n_out * n_in));
    for (float& number : numbers) number = draw(random_);
    add(name, {n_out, n_in}, std::move(numbers));
  }
  void ones(const std::string& name) { add(name, {kDim}, std::vector<float>(kDim, 1)); }
  void add(const std::string& name, std::vector<int64_t> shape, std::vector<float> numbers) {
    tensors_[name] = raw_tensor("F32", std::move(shape), numbers);
    values_[name] = std::move(numbers);
  }
  void write(const std::string& name, const std::string& bytes) {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }

  const fs::path path_ = fs::path(testing::TempDir()) /
                         ("toy_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
  std::mt19937_64 random_{test_seed()};
  RawTensors tensors_;
  std::map<std::string, std::vector<float>> values_;
};

const std::vector<int32_t> kTokens = {3, 17, 5, 0, 39, 22, 8, 8, 8, 31, 12, 6, 2, 27};

std::vector<float> logits_of(const Checkpoint& checkpoint, const RunnerOptions& options, int chunk) {
  const auto ranks = start_ranks(checkpoint.config(), checkpoint.weights(), options, nullptr);
  std::vector<float> all;
  for_each_logits(*ranks, kTokens, chunk, 0,
                  [&](int, std::span<const float> row) { all.insert(all.end(), row.begin(), row.end()); });
  return all;
}
RunnerOptions on(const char* device) {
  return {.backend = {.device = device, .n_threads = 1}, .n_ctx = 64, .max_logits = 16, .kv_dtype = DType::kF32};
}
void expect_near(const std::vector<float>& a, const std::vector<float>& b, double bound) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], bound) << "logit " << i;
}

using Row = std::vector<double>;
Row times(const std::vector<float>& w, const Row& x) {
  Row y(w.size() / x.size());
  for (size_t i = 0; i < y.size(); ++i)
    for (size_t j = 0; j < x.size(); ++j) y[i] += double{w[i * x.size() + j]} * x[j];
  return y;
}
Row normed(const Row& x) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  Row y = x;
  for (double& v : y) v /= std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
  return y;
}
double silu(double x) { return x / (1 + std::exp(-x)); }

// The formula of the kind, in double: a model whose only layer is a convolution with a feed-forward.
TEST(AddALayer, ComputesItsFormula) {
  const ToyModel toy;
  const auto checkpoint = open_checkpoint(toy.path());
  Config config = checkpoint->config();
  EXPECT_EQ(config.part<ConvolutionConfig>().width, kWidth);
  config.n_layers = 1, config.layers.resize(1);
  std::vector<Row> inputs;
  std::vector<float> expected;
  const std::string layer = "model.layers.0.";
  for (const int32_t token : kTokens) {
    Row x(kDim);
    for (int i = 0; i < kDim; ++i)
      x[i] = toy.values("model.embed_tokens.weight")[static_cast<size_t>(token * kDim + i)];
    inputs.push_back(times(toy.values(layer + "convolution.in_proj.weight"), normed(x)));
    Row channels(kDim);
    for (int c = 0; c < kDim; ++c) {
      for (int i = 0; i < kWidth; ++i)
        if (const int t = static_cast<int>(inputs.size()) - kWidth + i; t >= 0)
          channels[c] +=
              double{toy.values(layer + "convolution.weight")[static_cast<size_t>(c * kWidth + i)]} * inputs[t][c];
      channels[c] = silu(channels[c]);
    }
    const Row mixed = times(toy.values(layer + "convolution.out_proj.weight"), channels);
    for (int i = 0; i < kDim; ++i) x[i] += mixed[i];
    Row hidden = times(toy.values(layer + "mlp.gate_proj.weight"), normed(x));
    const Row up = times(toy.values(layer + "mlp.up_proj.weight"), normed(x));
    for (int i = 0; i < kFfn; ++i) hidden[i] = silu(hidden[i]) * up[i];
    const Row down = times(toy.values(layer + "mlp.down_proj.weight"), hidden);
    for (int i = 0; i < kDim; ++i) x[i] += down[i];
    for (const double logit : times(toy.values("lm_head.weight"), normed(x)))
      expected.push_back(static_cast<float>(logit));
  }
  for (const int chunk : {1, 3, 16}) {
    const auto source = checkpoint->weights();
    struct Part final : WeightSource {  // the tensors of other layers are not missed
      explicit Part(WeightSource& all) : inner(all) {}
      std::string name() const override { return inner.name(); }
      Dialect dialect() const override { return inner.dialect(); }
      bool find(const std::string& n, int64_t n_out, int64_t n_in, HostTensor& out) override {
        return inner.find(n, n_out, n_in, out);
      }
      size_t total_bytes() const override { return inner.total_bytes(); }
      WeightSource& inner;
    };
    Ranks ranks(config, std::make_unique<Part>(*source), on("ref"), nullptr);
    std::vector<float> all;
    for_each_logits(ranks, kTokens, chunk, 0,
                    [&](int, std::span<const float> row) { all.insert(all.end(), row.begin(), row.end()); });
    expect_near(all, expected, 1e-4);
  }
}

TEST(AddALayer, RunsInChunksOnEveryDevice) {
  const ToyModel toy;
  const auto checkpoint = open_checkpoint(toy.path());
  const std::vector<float> whole = logits_of(*checkpoint, on("ref"), 16);
  for (const char* device : {"ref", "cpu", "cpu,cpu"})
    for (const int chunk : {1, 5, 16}) expect_near(logits_of(*checkpoint, on(device), chunk), whole, 1e-3);
}

TEST(AddALayer, RunsFromBothDialects) {
  const ToyModel toy;
  const std::shared_ptr<const Checkpoint> directory = open_checkpoint(toy.path());
  const std::string file = toy.path() + "/toy.gguf";
  write_gguf(gguf_export(directory), {.n_threads = 1}, file);
  const auto gguf = open_checkpoint(file);
  EXPECT_EQ(gguf->config().part<ConvolutionConfig>().width, kWidth);
  expect_near(logits_of(*gguf, on("ref"), 16), logits_of(*directory, on("ref"), 16), 1e-5);
}

TEST(AddALayer, RefusesBadKeys) {
  const ToyModel toy;
  const std::string path = toy.path() + "/config.json";
  for (const nlohmann::json& bad :
       {nlohmann::json(nullptr), nlohmann::json(1), nlohmann::json(17), nlohmann::json("4")}) {
    auto config = nlohmann::json::parse(read_file(path));
    config["conv_width"] = bad;
    std::ofstream(path) << config.dump();
    try {
      open_checkpoint(toy.path())->config();
      ADD_FAILURE() << bad;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("conv_width"));
    }
  }
}

TEST(AddALayer, RunsOnSeveralRanks) {
  const ToyModel toy;
  const auto checkpoint = open_checkpoint(toy.path());
  const std::vector<float> alone = logits_of(*checkpoint, on("ref"), 16);
  for (const int n : {1, 2}) {
    RunnerOptions options = on("ref");
    options.parallel.n_ranks = n;
    expect_near(logits_of(*checkpoint, options, 4), alone, 1e-4);
  }
}

// A sequence that continues from a snapshot, and one whose drafts are cut back, have the tokens of one that does not.
TEST(AddALayer, KeepsItsStateInThePrefixCacheAndThroughDrafts) {
  const ToyModel toy;
  const auto checkpoint = open_checkpoint(toy.path());
  RunnerOptions options = on("ref");
  options.block_size = 4, options.n_snapshots = 8, options.n_kv_tokens = 512, options.max_seqs = 4;
  const auto tokens_of = [&](Engine& engine, const Tokens& prompt, int n, std::shared_ptr<Proposer> proposer = {}) {
    const auto sink = std::make_shared<Collector>();
    engine.submit({.prompt = prompt,
                   .sampling = {.temperature = 0, .n_logprobs = 0},
                   .max_tokens = n,
                   .sink = sink,
                   .proposer = std::move(proposer)});
    run(engine);
    return std::pair(sink->tokens, sink->finish->usage);
  };
  const auto plain = start_ranks(checkpoint->config(), checkpoint->weights(), options, nullptr),
             cached = start_ranks(checkpoint->config(), checkpoint->weights(), options, nullptr);
  Engine without(*plain, {.prefix_cache = false}), with(*cached, {.chunk = 5});
  const Tokens first = tokens_of(without, kTokens, 12).first;
  EXPECT_EQ(tokens_of(with, kTokens, 12).first, first);
  const auto [again, usage] = tokens_of(with, kTokens, 12);
  EXPECT_EQ(again, first);
  EXPECT_GT(usage.cached_tokens, 0);
  Tokens said = kTokens;
  said.insert(said.end(), first.begin(), first.end());
  EXPECT_EQ(tokens_of(with, said, 8).first, tokens_of(without, said, 8).first);
  // Of three drafts, the last is wrong, so each step cuts the sequence back.
  const auto drafts = fixed([&](std::span<const int32_t> history) {
    Tokens next;
    for (size_t i = history.size(); i < std::min(said.size(), history.size() + 3); ++i) next.push_back(said[i]);
    if (next.size() == 3) next.back() = (next.back() + 1) % kVocab;
    return next;
  });
  const auto [drafted, of_drafts] = tokens_of(without, kTokens, 12, drafts);
  EXPECT_EQ(drafted, first);
  EXPECT_GT(of_drafts.accepted_tokens, 0);
  EXPECT_GT(of_drafts.draft_tokens, of_drafts.accepted_tokens);
}

// A plan knows the states before anything is loaded, and what runs takes what was planned.
TEST(AddALayer, IsInMemoryPlans) {
  const ToyModel toy;
  const auto checkpoint = open_checkpoint(toy.path());
  const Config config = checkpoint->config();
  const auto ranks = start_ranks(config, checkpoint->weights(), on("ref"), nullptr);
  const MemoryPlan& plan = ranks->memory();
  EXPECT_EQ(plan.states.slot_bytes(), 2u * (kWidth - 1) * kDim * sizeof(float));
  EXPECT_EQ(plan.kv.at(0).n_layers, 2);
  EXPECT_THAT(plan.table(), testing::HasSubstr("states"));
  const auto source = checkpoint->weights();
  const auto backend = create_backend({.device = "cpu", .n_threads = 1});
  const auto plans =
      plans_that_fit(config, weight_bytes(*source, config, *backend), size_t{1} << 30, {}, backend.get());
  ASSERT_FALSE(plans.empty());
  for (const MemoryPlan& fits : plans) EXPECT_GT(fits.state_bytes, 0u);
}

}  // namespace
}  // namespace ingot
