#include "model/files/weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <list>
#include <random>

#include "backend/blocks/experts.h"
#include "backend/cpu/packed_weight.h"
#include "backend/ref/ref_backend.h"
#include "base/error.h"
#include "io/gguf/gguf.h"
#include "io/gguf/writer.h"
#include "model/files/checkpoint.h"
#include "model/config/layer_inputs.h"
#include "model/config/altup.h"
#include "model/layers/delta_net.h"
#include "model/layers/kda.h"
#include "model/layers/latent_attention.h"
#include "model/layers/mamba1.h"
#include "model/layers/mamba2.h"
#include "model/layers/rg_lru.h"
#include "model/layers/rwkv7.h"
#include "model/layers/shared_transformer.h"
#include "model/layers/short_conv.h"
#include "model/program/shapes.h"
#include "test_seed.h"

namespace ingot {
namespace {

Config tiny(const char* arch) {
  Config c;
  c.arch = &find_gguf_arch(arch);
  c.name = arch;
  c.n_layers = 2;
  c.dim = 64;
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.head_dim = c.rot_dim = 16;
  c.ffn_dim = 96;
  c.n_vocab = 37;
  c.n_ctx_train = 64;
  c.norm_eps = 1e-5f;
  c.rope_layout = c.arch->gguf_rope;
  c.n_token_types = c.arch->encoder ? 2 : 0;
  const std::string name = arch;
  if (name.ends_with("moe") || name == "qwen3next" || name == "gpt-oss" || name == "minimax-m2" || values_are_keys(c))
    c.experts = {.n = 5, .n_used = 2, .ffn_dim = 32};
  if (name == "qwen2moe" || name == "qwen3next" || name == "qwen35moe" || name == "glm4moe" || values_are_keys(c))
    c.experts.shared_dim = 64;
  if (state_mixer(*c.arch) != nullptr) {
    c.parts.set(DeltaConfig{.n_key_heads = 2,
                            .n_value_heads = 4,
                            .key_dim = 8,
                            .value_dim = 24,
                            .conv_width = 4,
                            .tiled = c.arch->tiles_value_heads});
    c.parts.set(ShortConvConfig{.width = 3, .n_channels = c.dim});
    c.parts.set(Mamba2Config{.n_heads = 8, .head_dim = 16, .n_groups = 2, .state_dim = 24, .conv_width = 4});
    c.parts.set(Mamba1Config{.inner = 96, .state_dim = 8, .dt_rank = 4, .conv_width = 4, .has_norms = name == "jamba"});
    c.parts.set(KdaConfig{.n_heads = 4, .head_dim = 16, .conv_width = 4});
    c.parts.set(RgLruConfig{.n_heads = 4, .head_dim = 16, .conv_width = 4});
    c.layers.assign(2, {});
    if (kv_mixer(*c.arch) != nullptr)
      c.layers[1].parts = {{kv_mixer(*c.arch)}, {c.experts.n > 0 ? &kExpertsPart : &kFeedForwardPart}};
  }
  if (name == "rwkv7")
    c.parts.set(Rwkv7Config{.head_dim = 16, .decay_rank = 8, .rate_rank = 16, .value_rank = 4, .gate_rank = 24});
  if (name == "zamba2") {
    c.parts.set(SharedTransformerConfig{.n_blocks = 1, .adapter_rank = 4, .adapts_attention = true, .layers = {1}});
    c.layers[1].parts = arch_parts(*c.arch, 1, false);
  }
  if (name == "gemma3n") {
    c.parts.set(AltUpConfig{.n_streams = 3, .laurel_rank = 8});
    c.parts.set(LayerInputsConfig{.width = 8, .n_rows = 20});
  }
  if (values_are_keys(c)) {
    set_latents(c, {.q_rank = 32, .kv_rank = 32, .nope_dim = 32, .rope_dim = 8, .value_dim = 12});
    c.rot_dim = 8;
  }
  return c;
}

// A source with one tensor missing, or with another shape.
class Broken final : public WeightSource {
 public:
  Broken(const Config& c, std::string victim, bool missing)
      : inner_(dummy_source(c, Format::F32, 1)), victim_(std::move(victim)), missing_(missing) {}
  std::string name() const override { return "broken.gguf"; }
  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    if (name == victim_ && missing_) return false;
    const bool found = inner_->find(name, n_out, n_in, out);
    if (name == victim_) std::swap(out.n_out, out.n_in);
    return found;
  }
  size_t total_bytes() const override { return inner_->total_bytes(); }

 private:
  std::unique_ptr<WeightSource> inner_;
  std::string victim_;
  bool missing_;
};

std::string tensor_complaint(const std::string& victim, bool missing) {
  const auto backend = create_ref_backend();
  const Config config = tiny("llama");
  Broken source(config, victim, missing);
  try {
    load_weights(source, config, *backend, nullptr);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The memory of weights can be computed before loading, for any format of the checkpoint.
TEST(Weights, TakeWhatTheirShapesSay) {
  const std::string data = INGOT_TEST_DATA;
  for (const char* path :
       {"/models/llama_k.gguf", "/models/qwen2_tied.gguf", "/models/qwen35.gguf", "/hf/qwen3next", "/hf/phi3",
        "/hf/deepseek3", "/hf/gpt_oss", "/hf/granitemoe", "/quantized/models/awq", "/quantized/models/base_bf16",
        "/quantized/models/ct_fp8", "/quantized/models/ct_int4", "/quantized/models/ct_nvfp4", "/quantized/models/fp8",
        "/quantized/models/gptq", "/quantized/models/gpt_oss_mxfp4", "/quantized/models/mlx_4bit",
        "/quantized/models/mlx_mixed", "/quantized/models/modelopt_nvfp4"}) {
    const auto checkpoint = open_checkpoint(data + path);
    for (const auto& backend : {create_ref_backend(), create_backend({.device = "cpu", .n_threads = 1})}) {
      const auto source = checkpoint->weights();
      const WeightBytes bytes = weight_bytes(*source, checkpoint->config(), *backend);
      const Weights weights = load_weights(*source, checkpoint->config(), *backend, nullptr);
      EXPECT_EQ(backend->allocated_bytes(), bytes.allocated) << path << " " << backend->name();
      if (backend->name() == "cpu") {
        const Weight& embedding = weights.model.embedding;  // a tied one is in panels
        EXPECT_EQ(bytes.borrowed, embedding.codes != nullptr ? embedding.bytes() : 0) << path;
        EXPECT_EQ(embedding.codes == nullptr, weights.model.tied && cpu::packs_exactly(embedding.format)) << path;
      }
    }
  }
}

TEST(Weights, EveryArchitectureLoads) {
  for (const Arch& arch : all_archs()) {
    const auto backend = create_ref_backend();
    const Config config = tiny(arch.gguf_name);
    const auto source = dummy_source(config, Format::Q8_0, 1);
    size_t last = 0;
    const Weights weights = load_weights(*source, config, *backend, [&](size_t done, size_t total) {
      EXPECT_GT(done, last);
      EXPECT_LE(done, total);
      last = done;
    });
    EXPECT_EQ(last, source->total_bytes());
    EXPECT_EQ(weights.layers.size(), 2u);
    EXPECT_EQ(static_cast<bool>(weights.model.output), !arch.encoder) << "tied to the embedding";
  }
}

TEST(Weights, NamesTheMissingTensor) {
  for (const char* name :
       {"token_embd.weight", "output_norm.weight", "blk.1.attn_k.weight", "blk.0.attn_norm.weight"}) {
    const std::string message = tensor_complaint(name, true);
    EXPECT_NE(message.find(name), std::string::npos) << message;
    EXPECT_NE(message.find("broken.gguf"), std::string::npos) << message;
  }
}

TEST(Weights, NamesBothShapes) {
  const std::string message = tensor_complaint("blk.1.ffn_up.weight", false);
  EXPECT_NE(message.find("[64, 96]"), std::string::npos) << message;
  EXPECT_NE(message.find("[96, 64]"), std::string::npos) << message;
}

// A source whose tensors all have one format, with random bytes or one bad number.
class Damaged final : public WeightSource {
 public:
  Damaged(const Config& c, Format matrices, std::function<void(std::string_view, std::vector<uint8_t>&)> damage)
      : inner_(dummy_source(c, matrices, 1)), damage_(std::move(damage)) {}
  std::string name() const override { return "damaged.gguf"; }
  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    if (!inner_->find(name, n_out, n_in, out)) return false;
    auto& copy = copies_.emplace_back(out.data, out.data + out.n_out * row_bytes(out.format, out.n_in));
    damage_(name, copy);
    out.data = copy.data();
    return true;
  }
  size_t total_bytes() const override { return inner_->total_bytes(); }

 private:
  std::unique_ptr<WeightSource> inner_;
  std::function<void(std::string_view, std::vector<uint8_t>&)> damage_;
  std::list<std::vector<uint8_t>> copies_;
};

Config wide() {  // rows that every format can hold
  Config c = tiny("llama");
  c.dim = 256;
  c.n_heads = 16;
  c.ffn_dim = 512;
  return c;
}

TEST(Weights, AnyBytesLoadInEveryFormat) {  // G37
  const uint64_t seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int f = 0; f < kFormatCount; ++f) {
    Damaged source(wide(), static_cast<Format>(f), [&](std::string_view name, std::vector<uint8_t>& bytes) {
      if (name.find("norm") == std::string_view::npos)
        for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    });
    for (const auto& backend : {create_ref_backend(), create_backend({.device = "cpu", .n_threads = 1})})
      EXPECT_EQ(load_weights(source, wide(), *backend, nullptr).layers.size(), 2u) << info(static_cast<Format>(f)).name;
  }
}

TEST(Weights, ANumberThatIsNotFiniteIsFoundWhenAsked) {  // G37
  const auto backend = create_ref_backend();
  auto damaged = [] {
    return std::make_unique<Damaged>(wide(), Format::Q8_0, [](std::string_view name, std::vector<uint8_t>& bytes) {
      const uint16_t nan = 0x7E00;
      if (name == "blk.1.ffn_up.weight") memcpy(&bytes[(3 * 256 + 64) / 32 * 34], &nan, 2);
    });
  };
  EXPECT_NO_THROW(load_weights(*damaged(), wide(), *backend, nullptr));
  try {
    load_weights(*checked_source(damaged()), wide(), *backend, nullptr);
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'blk.1.ffn_up.weight' has nan at row 3, column 64"), std::string::npos)
        << error.what();
  }
}

// A norm is used as it is stored, so norms in block formats are refused. Vectors of another length are refused too.
TEST(Weights, VectorsAreDense) {  // G36
  class QuantizedNorm final : public WeightSource {
   public:
    explicit QuantizedNorm(const Config& c) : inner_(dummy_source(c, Format::F32, 1)) {}
    std::string name() const override { return "odd.gguf"; }
    bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
      const bool found = inner_->find(name, n_out, n_in, out);
      if (name == "blk.0.attn_norm.weight") out.format = Format::Q4_0;
      return found;
    }
    size_t total_bytes() const override { return inner_->total_bytes(); }
    std::unique_ptr<WeightSource> inner_;
  };
  const auto backend = create_ref_backend();
  QuantizedNorm source(tiny("llama"));
  try {
    load_weights(source, tiny("llama"), *backend, nullptr);
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'blk.0.attn_norm.weight' is stored as Q4_0"), std::string::npos)
        << error.what();
  }
}

// Experts with one tensor each, as in the first Mixtral files; each expert has its own numbers.
class Scattered final : public WeightSource {
 public:
  explicit Scattered(const Config& c, Format of_last)
      : inner_(dummy_source(c, Format::F32, 1)), n_(c.experts.n), of_last_(of_last) {}
  std::string name() const override { return "scattered.gguf"; }
  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    int layer = 0, expert = 0;
    char kind[8];
    if (sscanf(name.c_str(), "blk.%d.ffn_%7[a-z].%d.weight", &layer, kind, &expert) != 3)
      return name.find("_exps.") == name.npos && inner_->find(name, n_out, n_in, out);
    const Format format = expert == n_ - 1 ? of_last_ : Format::F32;
    auto& bytes = copies_.emplace_back(n_out * row_bytes(format, n_in));
    if (format == Format::F32)
      std::fill_n(reinterpret_cast<float*>(bytes.data()), n_out * n_in, static_cast<float>(expert));
    out = {.format = format, .n_out = n_out, .n_in = n_in, .data = bytes.data()};
    return true;
  }
  size_t total_bytes() const override { return inner_->total_bytes(); }

 private:
  std::unique_ptr<WeightSource> inner_;
  const int n_;
  const Format of_last_;
  std::list<std::vector<uint8_t>> copies_;
};

TEST(Weights, ExpertsWithATensorEachAreStacked) {
  const auto backend = create_ref_backend();
  Config config = tiny("llama");
  config.experts = {.n = 3, .n_used = 2, .ffn_dim = 24};
  Scattered source(config, Format::F32);
  const Weights weights = load_weights(source, config, *backend, nullptr);
  for (const std::vector<Block>& parts : weights.layers) {
    const auto& experts = parts[1].get<ExpertsBlock>();
    for (const Weight* w : {&experts.w_gate, &experts.w_up, &experts.w_down}) {
      ASSERT_EQ(w->n_experts, 3);
      EXPECT_EQ(w->n_out * w->n_in, 24 * config.dim);
      for (int64_t row = 0; row < 3 * w->n_out; ++row)
        for (int64_t i = 0; i < w->n_in; ++i)
          ASSERT_EQ(reinterpret_cast<const float*>(w->row(row))[i], static_cast<float>(row / w->n_out)) << row;
    }
  }
  Scattered mixed(config, Format::F16);
  try {
    load_weights(mixed, config, *backend, nullptr);
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'blk.0.ffn_gate.2.weight' is stored as F16"), std::string::npos)
        << error.what();
  }
}

// The scales next to NVFP4 matrices in GGUF files, one for each stacked expert, are applied to the weights.
TEST(Weights, ScalesOfNvfp4AreApplied) {
  constexpr int64_t kIn = 128, kOut = 6, kExperts = 3;
  const auto source_of = [](std::vector<float> scales, uint32_t type = 0) {
    std::vector<uint8_t> blocks(kExperts * kOut * row_bytes(Format::NVFP4, kIn)), bytes(scales.size() * sizeof(float));
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<uint8_t>(i * 37 % 120);
    std::memcpy(bytes.data(), scales.data(), bytes.size());
    GgufWriter writer;
    writer.set("general.architecture", std::string("llama"));
    writer.add_tensor("blk.0.ffn_up_exps.weight", 40, {kIn, kOut, kExperts}, blocks);
    writer.add_tensor("blk.0.ffn_up_exps.scale", type, {scales.size() * (type == 0 ? 1 : 2)}, bytes);
    writer.add_tensor("blk.1.ffn_up_exps.weight", 40, {kIn, kOut, kExperts}, blocks);
    static std::list<std::vector<uint8_t>> files;
    return gguf_source(std::make_shared<const Gguf>(Gguf::parse(files.emplace_back(writer.to_bytes()), "m.gguf")));
  };
  const auto values_of = [](WeightSource& source, const char* name) {
    HostTensor found;
    EXPECT_TRUE(source.find(name, kExperts * kOut, kIn, found));
    std::vector<float> values(kExperts * kOut * kIn);
    for (int64_t row = 0; row < kExperts * kOut; ++row)
      decode_row(found.format, found.data + row * row_bytes(found.format, kIn), &values[row * kIn], kIn);
    source.release(found);
    return values;
  };
  for (const std::vector<float>& scales : {std::vector{2.0f, 0.25f, 1e-3f}, std::vector{0.75f}}) {
    const auto source = source_of(scales);
    const std::vector<float> plain = values_of(*source, "blk.1.ffn_up_exps.weight"),
                             scaled = values_of(*source, "blk.0.ffn_up_exps.weight");
    EXPECT_TRUE(source->unused().empty());
    for (size_t i = 0; i < plain.size(); ++i)
      ASSERT_NEAR(scaled[i], plain[i] * scales[i / (kOut * kIn) % scales.size()], 1e-6 * std::abs(plain[i])) << i;
  }
  for (const auto& source : {source_of({1, 2}), source_of({1, 2, 3, 4}), source_of({1, 2}, 1)}) {
    HostTensor found;
    try {
      source->find("blk.0.ffn_up_exps.weight", kExperts * kOut, kIn, found);
      ADD_FAILURE() << "was accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("m.gguf: tensor 'blk.0.ffn_up_exps.scale' has "), std::string::npos)
          << error.what();
    }
  }
}

// A source with one tensor that no model uses.
class Extra final : public WeightSource {
 public:
  Extra(const Config& c, std::string name) : inner_(dummy_source(c, Format::F32, 1)), extra_(std::move(name)) {}
  std::string name() const override { return "extra.gguf"; }
  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    return inner_->find(name, n_out, n_in, out);
  }
  size_t total_bytes() const override { return inner_->total_bytes(); }
  std::vector<std::string> unused() const override { return {extra_}; }

 private:
  std::unique_ptr<WeightSource> inner_;
  std::string extra_;
};

TEST(Weights, RefusesTensorsThatNothingUses) {
  const auto backend = create_ref_backend();
  const Config config = tiny("llama");
  for (const char* name :
       {"vision.patch.weight", "model.visual.blocks.0.norm1.weight", "mtp.fc.weight", "v.blk.0.ln1.weight",
        "output.weight", "model.layers.2.eh_proj.weight", "blk.2.nextn.eh_proj.weight", "language_model.lm_head.weight",
        "model.layers.1.self_attn.rotary_emb.inv_freq", "blk.0.attn_rot_embd.weight"}) {
    Extra source(config, name);
    EXPECT_NO_THROW(load_weights(source, config, *backend, nullptr)) << name;
  }
  for (const char* name : {"blk.1.ffn_up.scale", "blk.0.attn_norm.bias", "blk.1.attn_q_a.bias",
                           "model.layers.1.self_attn.q_a_proj.bias", "model.layers.0.mlp.extra.weight",
                           "blk.0.attn_output.weight2", "extra.weight", "model.embed_positions.weight"}) {
    Extra source(config, name);
    try {
      load_weights(source, config, *backend, nullptr);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  }
}

TEST(Weights, StepsReadTheExpertsThatTheirTokensChoose) {
  const auto backend = create_ref_backend();
  const Config config = tiny("qwen3moe");
  const Weights loaded = load_weights(*dummy_source(config, Format::F32, 1), config, *backend, nullptr);
  EXPECT_EQ(loaded.chosen_bytes, size_t{2} * 2 * 3 * 64 * 32 * 4);  // layers, experts, matrices of 64 x 32 floats
  Weights w;
  w.active_bytes = 1000, w.chosen_bytes = 400;
  EXPECT_EQ(bytes_of_step(w, {}, 3), 1000);
  const ExpertConfig experts{.n = 8, .n_used = 2};
  EXPECT_DOUBLE_EQ(bytes_of_step(w, experts, 1), 1000);
  EXPECT_DOUBLE_EQ(bytes_of_step(w, experts, 2), 600 + 400 * 1.75);  // 8 (1 - 0.75^2) of 8 experts, 2 at a time
  EXPECT_NEAR(bytes_of_step(w, experts, 1000), 600 + 400 * 4, 1e-9);
}

}  // namespace
}  // namespace ingot
