#include "model/weights.h"

#include <gtest/gtest.h>

#include "backend/ref/ref_backend.h"
#include "base/error.h"
#include "model/shapes.h"

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
  return c;
}

// A source that lacks one tensor, or gives it another shape.
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

std::string complaint(const std::string& victim, bool missing) {
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
    EXPECT_TRUE(weights.model.output) << "tied to the embedding";
  }
}

TEST(Weights, NamesTheMissingTensor) {
  for (const char* name : {"token_embd.weight", "output_norm.weight", "blk.1.attn_k.weight", "blk.0.ffn_norm.weight"}) {
    const std::string message = complaint(name, true);
    EXPECT_NE(message.find(name), std::string::npos) << message;
    EXPECT_NE(message.find("broken.gguf"), std::string::npos) << message;
  }
}

TEST(Weights, NamesBothShapes) {
  const std::string message = complaint("blk.1.ffn_up.weight", false);
  EXPECT_NE(message.find("[64, 96]"), std::string::npos) << message;
  EXPECT_NE(message.find("[96, 64]"), std::string::npos) << message;
}

// A source with one tensor more than anything asks for.
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

TEST(Weights, RefusesScalesThatItWouldNotApply) {
  const auto backend = create_ref_backend();
  const Config config = tiny("llama");
  Extra harmless(config, "vision.patch.weight");
  EXPECT_NO_THROW(load_weights(harmless, config, *backend, nullptr));
  for (const char* name : {"blk.1.ffn_up.scale", "blk.0.attn_norm.bias"}) {
    Extra source(config, name);
    try {
      load_weights(source, config, *backend, nullptr);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace ingot
