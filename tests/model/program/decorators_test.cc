// check_nan and traces of ops (backend/trace.h) on whole models. They see every op and change no result. check_nan
// names the op that wrote the first NaN.
#include <gmock/gmock.h>

#include <list>
#include <map>
#include <set>

#include "base/error.h"
#include "model/config/altup.h"
#include "model/golden_models.h"

namespace ingot {
namespace {

using testing::HasSubstr;

std::unique_ptr<WeightSource> source_of(const std::string& name) {
  return gguf_source(std::make_shared<const Gguf>(Gguf::open((kModels / (name + ".gguf")).string())));
}

Ranks load_decorated(const std::string& name, RunnerOptions options, std::unique_ptr<WeightSource> source = nullptr,
                     KvTypes kv_dtype = DType::kF32) {
  const Config config = config_from_gguf(Gguf::open((kModels / (name + ".gguf")).string()));
  options.n_ctx = n_ctx_of(name), options.max_logits = 512, options.kv_dtype = kv_dtype;
  return Ranks(config, source ? std::move(source) : source_of(name), options, nullptr);
}

// The logits of the golden's tokens, in steps of 7.
std::vector<float> logits_of(Ranks runner, const Golden& golden) { return all_logits(runner, golden.tokens, 7); }

class TemporaryTrace {
 public:
  TemporaryTrace() : file(std::make_shared<TraceFile>(path())) {}
  ~TemporaryTrace() { fs::remove(path()); }
  TemporaryTrace(const TemporaryTrace&) = delete;
  TemporaryTrace& operator=(const TemporaryTrace&) = delete;

  // How often each op ran, from the spans of the file. Closes the file first.
  std::map<std::string, int> ops() {
    EXPECT_EQ(file.use_count(), 1);
    file.reset();
    std::map<std::string, int> counts;
    for (const auto& line : nlohmann::json::parse(read_file(path()))) {
      if (line["ph"] != "X") continue;
      EXPECT_GE(line["dur"].get<double>(), 0);
      EXPECT_TRUE(line["args"].contains("rows") && line["args"].contains("cols")) << line;
      ++counts[line["name"]];
    }
    return counts;
  }

  std::shared_ptr<TraceFile> file;

 private:
  static std::string path() {
    std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    std::ranges::replace(name, '/', '_');
    return (fs::path(testing::TempDir()) / ("decorators_" + name + ".json")).string();
  }
};

// Each block of the model ran once in each step, under the name of its op.
void expect_all_ops(const std::map<std::string, int>& ops, const Config& c, int n_steps) {
  const auto count = [&](const char* op) { return ops.contains(op) ? ops.at(op) : 0; };
  const auto layers_with = [&](std::string_view kind) {
    int n = 0;
    for (int i = 0; i < c.n_layers; ++i)
      for (const PartKind* part : parts_of(c, i)) n += part->name == kind;
    return n;
  };
  int n_experts = 0;
  int n_apart = 0;  // layers whose keys another op writes, or no op
  for (int i = 0; i < c.n_layers; ++i) n_experts += has_experts(c.layer(i));
  for (int i = 0; i < c.n_layers; ++i) n_apart += c.layer(i).kv_layer >= 0;
  const int n_recurrent = c.n_recurrent_layers(), n_rwkv = layers_with("rwkv7"),
            n_attention = layers_with("attention") + layers_with("latent_attention");
  const bool has_inputs = c.part<LayerInputsConfig>().width > 0;
  EXPECT_EQ(count("embed"), n_steps * (has_inputs ? 2 : 1));
  EXPECT_EQ(count("rope_angles"), n_attention == 0 ? 0 : n_steps * (c.local_theta > 0 ? 2 : 1));
  EXPECT_EQ(count("attention"), n_steps * n_attention);
  const int n_three = layers_with("kda") + layers_with("gated_delta");  // with three convolutions
  EXPECT_EQ(count("short_conv"), n_steps * (n_recurrent - n_rwkv + 2 * n_three));
  EXPECT_EQ(count("rg_lru"), n_steps * layers_with("rg_lru"));
  EXPECT_EQ(count("rank_one_rule"), n_steps * layers_with("kda"));
  EXPECT_EQ(count("mix_tokens"), n_steps * 2 * n_rwkv);
  EXPECT_EQ(count("wkv7"), n_steps * n_rwkv);
  EXPECT_EQ(count("matmuls"),  // RWKV-7's feed-forward has one, too
            n_steps * (3 * n_rwkv + 2 * layers_with("kda") + layers_with("gated_delta") + layers_with("delta_net")));
  EXPECT_EQ(count("delta_rule"), n_steps * (layers_with("delta_net") + layers_with("gated_delta")));
  EXPECT_EQ(count("ssm_scan"), n_steps * layers_with("mamba2"));
  EXPECT_EQ(count("selective_scan"), n_steps * layers_with("mamba1"));
  EXPECT_EQ(count("kv_write") + count("qkv"), n_steps * (n_attention - n_apart));
  EXPECT_EQ(count("gather_rows"), n_steps);
  EXPECT_GE(count("moe") + count("moe_combine"), n_steps * n_experts);
  const auto& deviations = c.part<AltUpConfig>().deviations;
  const auto n_sparse = static_cast<int>(std::ranges::count_if(deviations, [](float d) { return std::isfinite(d); }));
  EXPECT_EQ(count("keep_above"), n_steps * n_sparse);
  EXPECT_GE(count(c.arch->gated ? "gate_up" : "norm_matmul"), n_steps * (layers_with("feed_forward") - n_sparse));
}

class Decorators : public testing::TestWithParam<std::string> {};

TEST_P(Decorators, ChangeNoLogits) {
  const Golden golden = read_golden(GetParam());
  const int n_steps = (static_cast<int>(golden.tokens.size()) + 6) / 7;
  for (const char* device : {"cpu", "ref"}) {
    SCOPED_TRACE(device);
    RunnerOptions options{.backend = {.device = device, .n_threads = 1}};
    const std::vector<float> plain = logits_of(load_decorated(golden.name, options), golden);
    options.check_nan = true;
    EXPECT_EQ(logits_of(load_decorated(golden.name, options), golden), plain);
    for (const bool check_nan : {false, true}) {
      TemporaryTrace trace;
      options.check_nan = check_nan, options.trace = trace.file;
      const std::vector<float> traced = logits_of(load_decorated(golden.name, options), golden);
      options.trace = nullptr;
      EXPECT_EQ(traced, plain);
      expect_all_ops(trace.ops(), load_decorated(golden.name, options).config(), n_steps);
    }
  }
}

// Every layer of attention rotates its queries and the keys that it writes, or qkv() does both. Latents stay as they
// are.
TEST_P(Decorators, SeeEachRotationForKeysOfNibbles) {
  const Golden golden = read_golden(GetParam());
  for (const char* device : {"cpu", "ref"}) {
    SCOPED_TRACE(device);
    TemporaryTrace trace;
    RunnerOptions options{.backend = {.device = device, .n_threads = 1}, .trace = trace.file};
    logits_of(load_decorated(golden.name, options, nullptr, DType::kQ4_0), golden);
    options.trace = nullptr;
    const Config config = config_from_gguf(Gguf::open((kModels / (golden.name + ".gguf")).string()));
    int n_latent = 0;
    for (int i = 0; i < config.n_layers; ++i)
      for (const PartKind* part : parts_of(config, i)) n_latent += std::string_view(part->name) == "latent_attention";
    std::map<std::string, int> ops = trace.ops();
    const int n_steps = (static_cast<int>(golden.tokens.size()) + 6) / 7;
    EXPECT_EQ(ops["hadamard"], ops["kv_write"] + ops["attention"] - ops["qkv"] - 2 * n_steps * n_latent);
  }
}

// A source that puts a NaN into one tensor of F32.
class WithNan final : public WeightSource {
 public:
  WithNan(std::unique_ptr<WeightSource> inner, std::string victim)
      : inner_(std::move(inner)), victim_(std::move(victim)) {}
  std::string name() const override { return inner_->name(); }
  void release(const HostTensor& tensor) override { inner_->release(tensor); }
  size_t total_bytes() const override { return inner_->total_bytes(); }
  bool find(const std::string& name, int64_t n_out, int64_t n_in, HostTensor& out) override {
    if (!inner_->find(name, n_out, n_in, out)) return false;
    if (name != victim_) return true;
    EXPECT_EQ(out.format, Format::F32);
    auto& copy = copies_.emplace_back(out.data, out.data + out.n_out * row_bytes(out.format, out.n_in));
    const float nan = std::nanf("");
    std::memcpy(copy.data() + 3 * sizeof nan, &nan, sizeof nan);
    out.data = copy.data();
    return true;
  }

 private:
  std::unique_ptr<WeightSource> inner_;
  const std::string victim_;
  std::list<std::vector<uint8_t>> copies_;
};

std::string nan_complaint(const Golden& golden, const char* device, const std::string& victim,
                          std::shared_ptr<TraceFile> trace) {
  const BackendOptions backend{.device = device, .n_threads = 1};
  const RunnerOptions options{.backend = backend, .check_nan = true, .trace = std::move(trace)};
  try {
    logits_of(load_decorated(golden.name, options, std::make_unique<WithNan>(source_of(golden.name), victim)), golden);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_P(Decorators, ANanIsFoundInTheOpThatWroteIt) {
  const Golden golden = read_golden(GetParam());
  for (const char* device : {"cpu", "ref"}) {
    SCOPED_TRACE(device);
    const Config config = config_from_gguf(Gguf::open((kModels / (golden.name + ".gguf")).string()));
    const char* norm = config.arch->final_norm_is_embed ? "token_embd_norm.weight" : "output_norm.weight";
    EXPECT_THAT(nan_complaint(golden, device, norm, nullptr), HasSubstr("norm_matmul (op "));
    TemporaryTrace trace;
    EXPECT_THAT(nan_complaint(golden, device, norm, trace.file),
                HasSubstr("wrote NaN at row 0, column 3 of ["));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Decorators, testing::ValuesIn(golden_names()), [](const auto& i) { return i.param; });

TEST(DecoratedOps, TheFirstThatWritesANanIsNamed) {
  const auto expect = [](const char* model, const char* victim, const char* op) {
    for (const char* device : {"cpu", "ref"})
      EXPECT_THAT(nan_complaint(read_golden(model), device, victim, nullptr), testing::StartsWith(op))
          << model << " " << victim << " " << device;
  };
  expect("llama", "blk.0.attn_norm.weight", "qkv (op 3 of the run)");
  expect("llama", "blk.1.ffn_norm.weight", "gate_up (op ");
  expect("qwen35", "blk.0.attn_norm.weight", "norm_matmul (op 3 of the run)");
  expect("qwen35", "blk.0.ssm_a", "delta_rule (op ");
  expect("deepseek3", "blk.0.attn_norm.weight", "norm_matmul (op 3 of the run)");
  expect("deepseek3", "blk.0.attn_kv_a_norm.weight", "norm (op ");
}

// Every architecture that generates text has a model here. The embedder's tests run the architectures that compute
// vectors, and zamba2_test.cc runs the one that has only directories.
TEST(DecoratedOps, EveryArchitectureHasAModel) {
  std::set<std::string> missing, seen{"zamba2"};
  for (const std::string& name : golden_names())
    seen.insert(config_from_gguf(Gguf::open((kModels / (name + ".gguf")).string())).arch->gguf_name);
  for (const Arch& arch : all_archs())
    if (!seen.contains(arch.gguf_name) && !arch.bidirectional) missing.insert(arch.gguf_name);
  EXPECT_EQ(missing, std::set<std::string>{});
}

}  // namespace
}  // namespace ingot
