// Steps of one token whose layers the GPU runs on one thread block cluster: small decoders, against plain launches of the same verbs with a
// cache of their own, over several positions. That the cluster took them shows in a row that only it never writes. Skipped where the
// build has no CUDA or the machine no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "backend/cuda/create_cuda.h"
#include "backend/recorded_steps.h"
#include "base/error.h"
#include "ops_rig.h"

namespace ingot {
namespace {

struct LayersCase {
  const char* name;
  Format format;
  int past;
  bool fits = true;  // a cluster takes it
  int64_t dim = 320, ffn = 608;
  int n_heads = 6, n_kv_heads = 2, head_dim = 64, n_layers = 3;
  bool biases = false, head_norms = false, output_bias = false;
  RopeLayout layout = RopeLayout::kHalfSplit;
  int window = 0;
  Activation act = Activation::kSilu;
  DType kv = DType::kF16;
};

const LayersCase kCases[] = {
    {.name = "q4_0, no past", .format = Format::Q4_0, .past = 0},
    {.name = "q4_0, as a small model is", .format = Format::Q4_0, .past = 126, .dim = 576, .ffn = 1536, .n_heads = 9, .n_kv_heads = 3, .n_layers = 5},
    {.name = "q4_0, one key head", .format = Format::Q4_0, .past = 4090, .dim = 512, .ffn = 1024, .n_heads = 8, .n_kv_heads = 1},
    {.name = "q4_0, as many heads as can be", .format = Format::Q4_0, .past = 33, .dim = 256, .ffn = 512, .n_heads = 24, .n_kv_heads = 8, .biases = true},
    {.name = "q4_0, columns beyond its warps", .format = Format::Q4_0, .past = 65, .dim = 256, .ffn = 2048, .n_heads = 4, .n_kv_heads = 4},
    {.name = "q4_1, biases", .format = Format::Q4_1, .past = 700, .dim = 512, .ffn = 1024, .n_heads = 8, .biases = true},
    {.name = "q8_0, norms of heads", .format = Format::Q8_0, .past = 32, .head_norms = true, .layout = RopeLayout::kInterleaved},
    {.name = "q8_0, bf16 cache", .format = Format::Q8_0, .past = 15, .dim = 576, .ffn = 1536, .n_heads = 9, .n_kv_heads = 3, .kv = DType::kBF16},
    {.name = "q5_k, gelu, fp8 cache", .format = Format::Q5_K, .past = 1500, .dim = 256, .ffn = 512, .n_heads = 8, .act = Activation::kGeluTanh, .kv = DType::kE4M3},
    {.name = "q4_0, window", .format = Format::Q4_0, .past = 90, .fits = false, .window = 40},
    {.name = "q4_0, bias of the output", .format = Format::Q4_0, .past = 17, .fits = false, .output_bias = true},
    {.name = "q4_0, heads of 128", .format = Format::Q4_0, .past = 17, .fits = false, .head_dim = 128},
    {.name = "q6_k, scales of 16", .format = Format::Q6_K, .past = 40, .fits = false, .dim = 256, .ffn = 768, .n_heads = 4},
    {.name = "f16", .format = Format::F16, .past = 17, .fits = false},
};

class Decoder {
 public:
  Decoder(Backend& backend, const LayersCase& c, uint64_t seed) : backend_(backend), c_(c), rig_(backend, seed) {
    kv_ = &rig_.cache_and_batch({{c.past, kSteps}}, {.n_layers = c.n_layers, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim, .dtype = c.kv});
    embedding_ = &rig_.weight(Format::F16, kTokens, c.dim);
    output_ = &rig_.weight(Format::F16, kVocab, c.dim);
    x_ = rig_.output(1, c.dim), selected_ = rig_.output(1, c.dim), logits_ = rig_.output(1, kVocab), angles_ = rig_.output(1, c.head_dim);
    const auto narrow = [&](int64_t cols) { return backend.alloc(DType::kF16, 1, cols); };
    normed_ = narrow(c.dim), q_ = narrow(q_dim()), k_ = narrow(kv_dim()), v_ = narrow(kv_dim()), attended_ = narrow(q_dim()), hidden_ = narrow(c.ffn);
    inv_freq_ = rig_.values(1, c.head_dim / 2, 0.1f, 0.3f);
    final_norm_ = rig_.norm(c.dim);
    for (int i = 0; i < c.n_layers; ++i) {
      Layer& l = layers_.emplace_back();
      l = {&rig_.weight(c.format, q_dim(), c.dim), &rig_.weight(c.format, kv_dim(), c.dim), &rig_.weight(c.format, kv_dim(), c.dim),
           &rig_.weight(c.format, c.dim, q_dim()), &rig_.weight(c.format, c.ffn, c.dim), &rig_.weight(c.format, c.ffn, c.dim),
           &rig_.weight(c.format, c.dim, c.ffn)};
      l.attn_norm = rig_.norm(c.dim), l.ffn_norm = rig_.norm(c.dim);
      if (c.head_norms) l.q_norm = rig_.norm(c.head_dim), l.k_norm = rig_.norm(c.head_dim);
      if (c.biases) l.bq = rig_.values(1, q_dim()), l.bk = rig_.values(1, kv_dim()), l.bv = rig_.values(1, kv_dim());
      if (c.output_bias) l.bo = rig_.values(1, c.dim);
    }
  }

  void begin(int step) { rig_.begin({{c_.past + step, 1}}, kTokens); }

  void body() {
    backend_.embed(x_, *embedding_, 1.0f);
    backend_.rope_angles(angles_, inv_freq_, 1.0f);
    for (int i = 0; i < c_.n_layers; ++i) {
      const Layer& l = layers_[i];
      backend_.norm(normed_, x_, l.attn_norm);
      backend_.qkv({.x = normed_, .wq = l.wq, .wk = l.wk, .wv = l.wv, .bq = l.bq, .bk = l.bk, .bv = l.bv, .q_norm = l.q_norm, .k_norm = l.k_norm,
                    .rope = {.angles = angles_, .layout = c_.layout}, .n_heads = c_.n_heads, .n_kv_heads = c_.n_kv_heads,
                    .head_dim = c_.head_dim, .kv = kv_, .layer = i, .q = q_, .k = k_, .v = v_});
      backend_.attention(attended_, q_, *kv_, {.layer = i, .n_heads = c_.n_heads, .n_kv_heads = c_.n_kv_heads, .head_dim = c_.head_dim,
                                               .scale = 0.125f, .window = c_.window});
      backend_.matmul_add(x_, attended_, *l.wo, l.bo);
      backend_.norm(normed_, x_, l.ffn_norm);
      backend_.gate_up(hidden_, normed_, *l.w_gate, *l.w_up, {}, {}, c_.act);
      backend_.matmul_add(x_, hidden_, *l.w_down);
    }
    backend_.gather_rows(selected_, x_);
    backend_.norm_matmul(logits_, selected_, final_norm_, *output_);
  }

  std::vector<float> logits() const {
    std::vector<float> host(kVocab);
    backend_.download(host.data(), logits_);
    return host;
  }
  void poison() {
    const std::vector<uint16_t> nan(c_.ffn, 0x7E00);
    backend_.upload(hidden_, nan.data());
    const std::vector<float> none(kVocab, NAN);
    backend_.upload(logits_, none.data());
  }
  bool hidden_is_poisoned() const {
    std::vector<uint16_t> host(c_.ffn);
    backend_.download(host.data(), hidden_);
    return std::ranges::all_of(host, [](uint16_t bits) { return bits == 0x7E00; });
  }

  static constexpr int kSteps = 4, kVocab = 200;

 private:
  static constexpr int kTokens = 32;
  int64_t q_dim() const { return int64_t{c_.n_heads} * c_.head_dim; }
  int64_t kv_dim() const { return int64_t{c_.n_kv_heads} * c_.head_dim; }

  struct Layer {
    const Weight *wq, *wk, *wv, *wo, *w_gate, *w_up, *w_down;
    NormArgs attn_norm{}, ffn_norm{}, q_norm{}, k_norm{};
    Tensor bq{}, bk{}, bv{}, bo{};
  };
  Backend& backend_;
  const LayersCase& c_;
  OpRig rig_;
  KvCache* kv_;
  const Weight *embedding_, *output_;
  Tensor x_, selected_, logits_, angles_, normed_, q_, k_, v_, attended_, hidden_, inv_freq_;
  NormArgs final_norm_;
  std::vector<Layer> layers_;
};

double relative_error(const std::vector<float>& got, const std::vector<float>& want) {
  double squares = 0, error = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    squares += double{want[i]} * want[i];
    error += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
  }
  return std::sqrt(error / squares);
}

class CudaLayers : public testing::TestWithParam<LayersCase> {
 protected:
  void SetUp() override {
    try {
      backend = create_cuda_backend({.device = "cuda"});
    } catch (const UsageError&) {
      GTEST_SKIP() << "no GPU";
    }
    backend->reserve({.max_tokens = 8192, .max_seqs = 8, .max_logits = 8, .max_kv_len = 8192, .max_width = 4096, .max_heads = 64, .head_dim = 128, .n_vocab = 200});
  }
  std::unique_ptr<Backend> backend;
};

// A replay does what its verbs do one by one, to the last bit.
TEST_P(CudaLayers, ReplaysAreChecked) {
  dynamic_cast<RecordedSteps&>(*backend).check_replays();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Decoder decoder(*backend, GetParam(), seed);
  for (int step = 0; step < Decoder::kSteps; ++step) {
    decoder.begin(step);
    for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(backend->run([&] { decoder.body(); })) << "step " << step << ", run " << i;
  }
}

TEST_P(CudaLayers, EqualPlainLaunches) {
  const bool has_clusters = backend->description().find("NVIDIA H") != std::string::npos;
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  Decoder plain(*backend, GetParam(), seed), recorded(*backend, GetParam(), seed);  // the same weights and tokens
  for (int step = 0; step < Decoder::kSteps; ++step) {
    plain.begin(step);
    plain.body();
    const std::vector<float> want = plain.logits();
    recorded.begin(step);
    for (int i = 0; i < 3; ++i) {  // plain, recorded and played, played
      recorded.poison();
      backend->run([&] { recorded.body(); });
      const std::vector<float> got = recorded.logits();
      ASSERT_LE(relative_error(got, want), 2e-2) << "step " << step << ", run " << i;  // f16 between products; NaN fails too
      ASSERT_EQ(recorded.hidden_is_poisoned(), GetParam().fits && has_clusters) << "step " << step << ", run " << i;
    }
  }
}

// As little as has all of a layer's hand-overs, those from layer to layer too: compute-sanitizer makes each of their waits some hundred times longer.
TEST(SmallestCudaLayers, ForSanitizers) {
  std::unique_ptr<Backend> backend;
  try {
    backend = create_cuda_backend({.device = "cuda"});
  } catch (const UsageError&) {
    GTEST_SKIP() << "no GPU";
  }
  backend->reserve({.max_tokens = 64, .max_seqs = 1, .max_logits = 1, .max_kv_len = 64, .max_width = 256, .max_heads = 4, .head_dim = 64, .n_vocab = 200});
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const Format format : {Format::Q4_0, Format::Q8_0}) {
    const LayersCase c{.name = "smallest", .format = format, .past = 20, .dim = 256, .ffn = 256, .n_heads = 4, .n_layers = 2, .head_norms = true};
    Decoder plain(*backend, c, seed), recorded(*backend, c, seed);
    plain.begin(0);
    plain.body();
    const std::vector<float> want = plain.logits();
    recorded.begin(0);
    backend->run([&] { recorded.body(); });
    EXPECT_LE(relative_error(recorded.logits(), want), 2e-2);
  }
}

INSTANTIATE_TEST_SUITE_P(, CudaLayers, testing::ValuesIn(kCases), [](const auto& i) {
  std::string name = i.param.name;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
});

}  // namespace
}  // namespace ingot
