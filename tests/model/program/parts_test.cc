// Layers of any parts: a mixer alone, mixers side by side, a feed-forward beside experts. Parts that read the same
// input add the outputs that each has alone. The numbers of parts follow the layers.
#include <gmock/gmock.h>

#include <list>
#include <numeric>
#include <random>

#include "model/golden_models.h"
#include "model/config/kind.h"
#include "model/devices/ranks.h"
#include "model/devices/split_choice.h"
#include "model/files/wrapped_source.h"
#include "model/layers/delta_net.h"
#include "model/program/decoder_program.h"
#include "model/program/kv_caches.h"
#include "model/program/shapes.h"
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
std::vector<float> stream_after(const Config& c, WeightSource& source, const std::vector<int>& steps) {
  const auto backend = create_backend({.device = "ref"});
  const Weights weights = load_weights(source, c, *backend, nullptr);
  DecoderCaches caches;
  std::vector<std::unique_ptr<KvCache>> kv;
  std::vector<int32_t> blocks;  // the same in each table
  for (KvShape shape : kv_shapes(c, {}, 16, DType::kF32)) {
    shape.n_blocks = 4;
    caches.kv.push_back(kv.emplace_back(backend->make_kv(shape)).get());
    blocks.insert(blocks.end(), {0, 1, 2, 3});
  }
  const StateShape shape = state_shape(c, 1);
  const auto states = shape ? backend->make_states(shape) : nullptr;
  caches.states = states.get();
  Program program = decoder_layers(c, weights, caches, backend.get(), 64);
  program.allocate(*backend, {.max_tokens = 16, .max_seqs = 1, .max_logits = 1, .max_kv_len = 64});
  std::vector<float> all;
  const std::vector<int32_t> slot = {0};
  for (int past = 0; const int n : steps) {
    std::vector<int32_t> tokens, positions;
    for (int i = 0; i < n; ++i) tokens.push_back((past + i) * 7 % 37), positions.push_back(past + i);
    const std::vector<int32_t> q_start = {0, n}, kv_len = {past + n}, before = {past == 0 ? -1 : 0};
    backend->run(program, {.tokens = tokens,
                           .positions = positions,
                           .q_start = q_start,
                           .kv_len = kv_len,
                           .block_table = blocks,
                           .max_blocks = 4,
                           .state_in = before,
                           .state_out = slot});
    const size_t size = all.size(), added = static_cast<size_t>(n) * 64;
    all.resize(size + added);
    backend->download(all.data() + size, program.x.slice_rows(0, n));
    past += n;
  }
  return all;
}

std::vector<float> stream_after(const Layers& layers, const std::vector<int>& steps) {
  const Config c = config_with(layers);
  return stream_after(c, *dummy_source(c, Format::F32, kSeed), steps);
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

// The first layer adds nothing, and the second has the first one's projections of keys and values.
class SameKeys final : public WrappedSource {
 public:
  explicit SameKeys(const Config& c) : WrappedSource(dummy_source(c, Format::F32, kSeed)) {}
  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    const bool is_key = name.starts_with("blk.1.attn_k.") || name.starts_with("blk.1.attn_v.");
    asked_for_keys_ = asked_for_keys_ || is_key;
    if (!inner().find(is_key ? "blk.0" + name.substr(5) : name, n_out, n_in, out)) return false;
    if (name == "blk.0.attn_output.weight")
      out.data = zeros_.emplace_back(static_cast<size_t>(n_out * n_in) * sizeof(float)).data();
    return true;
  }
  bool asked_for_keys_ = false;

 private:
  std::list<std::vector<uint8_t>> zeros_;
};

// A layer that reads the keys and values of an earlier layer has none of its own: no tensors, and no room in the cache.
TEST(Parts, ALayerMayReadTheKeysOfAnEarlierLayer) {
  Config own = config_with({{kAttends}, {kAttends, kPlain}, {kAttends}});
  Config shared = own;
  shared.layers[1].kv_layer = 0;
  EXPECT_EQ(n_layers_of(kv_shapes(own, {}, 16, DType::kF32)), 3);
  EXPECT_EQ(n_layers_of(kv_shapes(shared, {}, 16, DType::kF32)), 2);
  SameKeys of_own(own), of_shared(shared);
  for (const std::vector<int>& steps : {std::vector<int>{9}, {4, 1, 4}}) {
    const auto a = stream_after(own, of_own, steps), b = stream_after(shared, of_shared, steps);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-5) << i << ", seed " << kSeed;
  }
  EXPECT_TRUE(of_own.asked_for_keys_);
  EXPECT_FALSE(of_shared.asked_for_keys_);
}

// Layers of other heads or another window have a cache of their own.
TEST(Parts, LayersMayHaveOtherHeads) {
  const Layers layers = {{kAttends}, {kAttends, kPlain}, {kAttends}};
  Config mixed = config_with(layers);
  mixed.layers[1].heads = LayerHeads{.n_heads = 2, .n_kv_heads = 1, .head_dim = 32};
  mixed.layers[2].window = 6;
  const std::vector<KvCacheKind> caches = kv_caches(mixed);
  ASSERT_EQ(caches.size(), 3u);
  EXPECT_EQ(caches[0], (KvCacheKind{.n_kv_heads = 2, .head_dim = 16}));
  EXPECT_EQ(caches[1], (KvCacheKind{.n_kv_heads = 1, .head_dim = 32}));
  EXPECT_EQ(caches[2], (KvCacheKind{.n_kv_heads = 2, .head_dim = 16, .window = 6}));
  const auto stream = [](const Config& c, const std::vector<int>& steps) {
    return stream_after(c, *dummy_source(c, Format::F32, kSeed), steps);
  };
  const auto whole = stream(mixed, {13}), cut = stream(mixed, {4, 1, 8});
  for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(whole[i], cut[i], 1e-5) << i << ", seed " << kSeed;
  EXPECT_NE(whole, stream(config_with(layers), {13}));
  // If all layers have these heads, the model has them.
  Config each = config_with(layers), all = each;
  for (LayerConfig& layer : each.layers) layer.heads = mixed.layers[1].heads;
  all.n_heads = 2, all.n_kv_heads = 1, all.head_dim = 32;
  EXPECT_EQ(stream(each, {5, 8}), stream(all, {5, 8}));
}

// Cross attention: a token attends to the rows of its sequence's source, with one head. A step with a new source makes
// its keys, and later steps only read them.
struct CrossBlock {
  Tensor x, source;
  Weight wq, wk, wv, wo;  // [dim, dim] and [dim, source_dim]
  AttentionArgs attention;
  KvCache* kv = nullptr;
  Tensor q, k, v, attended;
  void lay_out(Buffers& buffers) {
    buffers.has_attention(attention);
    for (Tensor* rows : {&q, &attended}) buffers.scratch_act(*rows, x.cols);
    for (Tensor* rows : {&k, &v}) buffers.scratch(*rows, DType::kF32, source.rows, x.cols);
  }
};
void run_block(const CrossBlock& b, Backend& backend) {
  if (const Tensor source = backend.source_rows(b.source); source && source.rows > 0) {
    const Tensor k = backend.source_rows(b.k), v = backend.source_rows(b.v);
    backend.matmul(k, source, b.wk), backend.matmul(v, source, b.wv);
    backend.kv_write(*b.kv, b.attention.layer, k, v);
  }
  const Tensor x = backend.token_rows(b.x), q = backend.token_rows(b.q), attended = backend.token_rows(b.attended);
  backend.matmul(q, x, b.wq);
  backend.attention(attended, q, *b.kv, b.attention);
  backend.matmul_add(x, attended, b.wo);
}

constexpr Dim kDim = {[](const Config& c) -> int64_t { return c.dim; }};
constexpr Dim kSourceDim = {[](const Config& c) -> int64_t { return c.source_dim; }};
constexpr MatrixRow kCrossMatrices[] = {
    {.gguf_name = "blk.{}.cross_q.weight", .member = at<&CrossBlock::wq>, .n_out = kDim, .n_in = kDim},
    {.gguf_name = "blk.{}.cross_k.weight", .member = at<&CrossBlock::wk>, .n_out = kDim, .n_in = kSourceDim},
    {.gguf_name = "blk.{}.cross_v.weight", .member = at<&CrossBlock::wv>, .n_out = kDim, .n_in = kSourceDim},
    {.gguf_name = "blk.{}.cross_out.weight", .member = at<&CrossBlock::wo>, .n_out = kDim, .n_in = kDim},
};
const PartKind kCross = {
    .name = "cross",
    .make = [](const Config& c, int) -> Block {
      CrossBlock b;
      b.attention = {
          .n_heads = c.n_heads, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim, .scale = c.score_scale()};
      return b;
    },
    .rows = [] { return TensorRows{kCrossMatrices, {}}; },
    .keeps_kv = true,
    .reads_source = true};

Config config_with_source() {
  Config c = config_with({{{&kCross}}, {{&kCross}, kPlain}});
  c.n_heads = c.n_kv_heads = 1, c.head_dim = 64, c.source_dim = 32, c.max_source_rows = 40;
  return c;
}

std::vector<float> matrix(const Config& c, const std::string& name, int64_t n_out, int64_t n_in) {
  const auto source = dummy_source(c, Format::F32, kSeed);
  HostTensor host;
  EXPECT_TRUE(source->find(name, n_out, n_in, host)) << name;
  const auto* values = reinterpret_cast<const float*>(host.data);
  return {values, values + n_out * n_in};
}

// y = w x, in doubles.
std::vector<double> times(const std::vector<float>& w, const std::vector<double>& x) {
  std::vector<double> y(w.size() / x.size());
  for (size_t i = 0; i < w.size(); ++i) y[i / x.size()] += double{w[i]} * x[i % x.size()];
  return y;
}

// Adds what a layer of cross attention adds to a row of the stream.
void add_cross(const Config& c, int layer, std::vector<double>& x, const std::vector<std::vector<double>>& source) {
  const std::string prefix = fmt::format("blk.{}.cross_", layer);
  const auto of = [&](const char* name, int64_t n_in) { return matrix(c, prefix + name + ".weight", c.dim, n_in); };
  const std::vector<double> q = times(of("q", c.dim), x);
  std::vector<double> attended(static_cast<size_t>(c.dim));
  double total = 0;
  for (const std::vector<double>& row : source) {
    const std::vector<double> k = times(of("k", c.source_dim), row), v = times(of("v", c.source_dim), row);
    const double score = std::inner_product(q.begin(), q.end(), k.begin(), 0.0) / std::sqrt(64.0);
    total += std::exp(score);
    for (size_t i = 0; i < attended.size(); ++i) attended[i] += std::exp(score) * v[i];
  }
  for (double& value : attended) value /= total;
  const std::vector<double> out = times(of("out", c.dim), attended);
  for (size_t i = 0; i < x.size(); ++i) x[i] += out[i];
}

// Two sequences with sources of their own, in one batch, against the formula in doubles. The second step brings no
// source.
TEST(Parts, ALayerMayReadASource) {
  Config c = config_with_source();
  c.layers.pop_back(), c.n_layers = 1;
  const std::vector<KvCacheKind> kinds = kv_caches(c);
  ASSERT_EQ(kinds.size(), 2u);
  EXPECT_FALSE(kinds[0].of_source);
  EXPECT_TRUE(kinds[1].of_source);
  std::mt19937_64 random(kSeed);
  std::uniform_real_distribution<float> value(-1, 1);
  const std::vector<int32_t> source_len = {5, 21};
  std::vector<float> sources(26 * 32);
  for (float& x : sources) x = value(random);
  for (const char* device : {"ref", "cpu"}) {
    Ranks ranks(c, dummy_source(c, Format::F32, kSeed),
                {.backend = {.device = device, .n_threads = 2}, .n_ctx = 32, .max_seqs = 2, .max_logits = 8}, nullptr);
    EXPECT_EQ(ranks.info().source.dim, 32);
    EXPECT_EQ(ranks.info().source.n_blocks, 2 * 3);
    EXPECT_EQ(ranks.info().pools.size(), 1u);
    const std::vector<int32_t> block_table = {0, 0, 1, 1, /* of sources: */ 5, 5, 0, 3};
    for (int step = 0; step < 2; ++step) {
      const std::vector<int32_t> tokens = {4, 9, 30}, positions = {step, step, step + 1}, q_start = {0, 1, 3},
                                 kv_len = {step + 1, step + 2}, rows = {0, 1, 2}, start = {0, 5, 26}, none = {0, 0, 0};
      Batch batch{tokens, positions, q_start, kv_len, block_table, 2, rows};
      batch.source_len = source_len, batch.source_start = step == 0 ? start : none;
      if (step == 0) batch.sources = sources;
      ranks.forward(batch);
      const std::vector<float> logits = ranks.logits();
      const std::vector<float> embedding = matrix(c, "token_embd.weight", c.n_vocab, c.dim);  // and the output matrix
      for (size_t t = 0; t < 3; ++t) {
        std::vector<std::vector<double>> source;
        for (int row = t == 0 ? 0 : 5; row < (t == 0 ? 5 : 26); ++row)
          source.emplace_back(sources.begin() + row * 32, sources.begin() + (row + 1) * 32);
        std::vector<double> x(embedding.begin() + tokens[t] * c.dim, embedding.begin() + (tokens[t] + 1) * c.dim);
        add_cross(c, 0, x, source);
        const double rms = std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / c.dim + c.norm_eps);
        for (double& element : x) element /= rms;
        const std::vector<double> expected = times(embedding, x);
        for (size_t i = 0; i < expected.size(); ++i)
          ASSERT_NEAR(logits[t * expected.size() + i], expected[i], 2e-2) << device << ", step " << step << ", " << t;
      }
    }
  }
}

// The plan has room for the source of each sequence.
TEST(Parts, SourcesHaveRoomForEachSequence) {
  const Config c = config_with_source();
  EXPECT_EQ(kv_shapes(c, {}, 16, DType::kF32)[1].n_layers, 2);
  EXPECT_EQ(plan_memory(c, 0, size_t{1} << 30, {.n_ctx = 64, .max_seqs = 3}).kv[1].n_blocks, 3 * 3);
}

TEST(Parts, SharedKeysAreOnOneDevice) {
  Config c = config_with({{kAttends}, {kAttends, kPlain}});
  c.layers[1].kv_layer = 0;
  Split split(c);
  const auto load = [&] {
    Ranks ranks(c, dummy_source(c, Format::F32, kSeed),
                {.backend = {.device = "cpu,cpu", .n_threads = 2}, .split = split, .n_ctx = 32}, nullptr);
  };
  split.layer(1, 1) = 1;
  EXPECT_NO_THROW(load());
  split.layer(1, 0) = 1;
  try {
    load();
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("must be on one device"));
  }
}

TEST(Parts, HaveNumbersInTheOrderOfAStep) {
  const Config c = config_with({{kRemembers}, {kAttends, beside(kRemembers), kPlain, beside(kRoutes)}, {kPlain}});
  const PartNumbers numbers(c);
  EXPECT_EQ(numbers.n(), 1 + 1 + 2 + 1 + 1);
  EXPECT_EQ(numbers.at(1, 1), 3);
  EXPECT_EQ(numbers.n_of(1), 2);
  const int layers[] = {-1, 0, 1, 1, 2, 3};
  for (int i = 0; i < numbers.n(); ++i) EXPECT_EQ(numbers.layer_of(i), layers[i]) << i;
  EXPECT_EQ(n_layers_of(kv_shapes(c, {}, 16, DType::kF32)), 1);
  EXPECT_EQ(state_shape(c, 1).buffers.size(), 2u * 2);
}

// Any part may be on any device: the logits stay the same.
TEST(Parts, MayBeOnAnyDevice) {
  const Config c = config_with({{kRemembers}, {kAttends, beside(kRemembers), kPlain, beside(kRoutes)}, {kPlain}});
  std::mt19937_64 random(kSeed);
  const auto logits = [&](const Split& split) {
    RunnerOptions options{.backend = {.device = split.n_devices() > 1 ? "cpu,cpu" : "cpu", .n_threads = 2},
                          .split = split,
                          .n_ctx = 32,
                          .max_logits = 4};
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
