// The values of config.json about quantization, for each method: read correctly, or refused by name with an alternative
// (bad-input rows S11, S22). quantized_tensors_test.cc tests whether the tensors agree.
#include "io/huggingface/quantization.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "base/file.h"
#include "io/huggingface/directory.h"
#include "io/refused.h"
#include "io/safetensors_bytes.h"

namespace ingot {
namespace {

using testing::HasSubstr;

HfQuantization read(const std::string& json) {
  const auto read = HfQuantization::read(JsonDocument::parse(json, "config.json").root());
  EXPECT_TRUE(read) << json;
  return *read;
}

QuantScheme scheme_of(const std::string& json, const char* module = "model.layers.0.mlp.up_proj") {
  const HfQuantization quantization = read(json);
  const QuantScheme* scheme = quantization.find(module);
  EXPECT_NE(scheme, nullptr) << json;
  return scheme != nullptr ? *scheme : QuantScheme{};
}

void expect_scheme_refused(const std::string& json, const char* expected) {
  SCOPED_TRACE(json);
  const std::string message = refusal([&] { HfQuantization::read(JsonDocument::parse(json, "config.json").root()); });
  EXPECT_THAT(message, testing::StartsWith("config.json: "));
  EXPECT_THAT(message, HasSubstr(expected));
}

std::string mlx(const std::string& members) { return R"({"quantization": {)" + members + "}}"; }
std::string hf(const std::string& members) { return R"({"quantization_config": {)" + members + "}}"; }
std::string gptq(const std::string& members) { return hf(R"("quant_method": "gptq", )" + members); }
std::string awq(const std::string& members) { return hf(R"("quant_method": "awq", )" + members); }
std::string fp8(const std::string& members) { return hf(R"("quant_method": "fp8")" + members); }
std::string ct(const std::string& format, const std::string& weights, const std::string& more = "") {
  return hf(R"("quant_method": "compressed-tensors", "format": ")" + format +
            R"(", "config_groups": {"group_0": {"targets": ["Linear"], "weights": {)" + weights + "}}}" + more);
}

TEST(HfQuantization, NothingSaidIsNothing) {
  for (const char* json : {"{}", R"({"quantization_config": null})", R"({"text_config": {}})"})
    EXPECT_FALSE(HfQuantization::read(JsonDocument::parse(json, "c").root())) << json;
}

TEST(HfQuantization, Mlx) {
  for (const int bits : {2, 3, 4, 5, 6, 8})
    for (const int group : {32, 64, 128}) {
      const QuantScheme scheme =
          scheme_of(mlx(fmt::format(R"("group_size": {}, "bits": {}, "mode": "affine")", group, bits)));
      EXPECT_EQ(scheme,
                (QuantScheme{.layout = QuantLayout::kMlxAffine, .bits = bits, .group = group, .symmetric = false}));
    }
  EXPECT_EQ(scheme_of(mlx(R"("group_size": 32, "bits": 4, "mode": "mxfp4")")).layout, QuantLayout::kMlxMxfp4);
  EXPECT_EQ(scheme_of(mlx(R"("group_size": 32, "bits": 8, "mode": "mxfp8")")).layout, QuantLayout::kMlxMxfp8);
  EXPECT_EQ(scheme_of(mlx(R"("group_size": 16, "bits": 4, "mode": "nvfp4")")).layout, QuantLayout::kMlxNvfp4);
  EXPECT_EQ(read(hf(R"("group_size": 64, "bits": 4)")).method(), "MLX");
  EXPECT_EQ(read(R"({"text_config": {"quantization": {"group_size": 64, "bits": 4}}})").method(), "MLX");
}

TEST(HfQuantization, MlxOverrides) {
  const HfQuantization q = read(
      mlx(R"("group_size": 32, "bits": 4, "mode": "mxfp4", "a.b": {"group_size": 64, "bits": 8}, "c": false, "d": true,
                                       "e": {"bits": 2}, "f": {"mode": "nvfp4"})"));
  EXPECT_EQ(*q.find("a.b"),
            (QuantScheme{.layout = QuantLayout::kMlxAffine, .bits = 8, .group = 64, .symmetric = false}));
  EXPECT_EQ(q.find("c"), nullptr);
  EXPECT_EQ(q.find("d")->layout, QuantLayout::kMlxMxfp4);
  EXPECT_EQ(q.find("e")->group, 64);  // mlx's own default
  EXPECT_EQ(q.find("f")->group, 16);
  EXPECT_EQ(q.find("else")->layout, QuantLayout::kMlxMxfp4);
  EXPECT_EQ(q.overrides().size(), 5u);
}

TEST(HfQuantization, MlxThatMakesNoSense) {  // S11
  for (const char* bits : {"0", "1", "7", "9", "33", "-4", "4.5", "\"4\"", "[4]", "true", "1e300"})
    expect_scheme_refused(mlx(fmt::format(R"("group_size": 64, "bits": {})", bits)), "'quantization.bits'");
  for (const char* group : {"0", "7", "16", "63", "65", "256", "-1", "\"64\"", "2147483648"})
    expect_scheme_refused(mlx(fmt::format(R"("group_size": {}, "bits": 4)", group)), "'quantization.group_size'");
  expect_scheme_refused(mlx(R"("group_size": 64, "bits": 7)"), "7 is not supported: expected 2, 3, 4, 5, 6, 8");
  expect_scheme_refused(mlx(R"("bits": 4)"), "'group_size' is missing");
  expect_scheme_refused(mlx(R"("group_size": 64)"), "'bits' is missing");
  expect_scheme_refused(mlx(R"("group_size": 64, "bits": 4, "mode": "nf4")"),
                        "'nf4' is not supported: expected affine, mxfp4, mxfp8 or nvfp4");
  expect_scheme_refused(mlx(R"("group_size": 64, "bits": 4, "mode": "mxfp4")"), "64 is not supported: expected 32");
  expect_scheme_refused(mlx(R"("group_size": 16, "bits": 8, "mode": "nvfp4")"), "8 is not supported: expected 4");
  expect_scheme_refused(mlx(R"("group_size": 64, "bits": 4, "model.x": {"bits": 7})"), "bits");
  expect_scheme_refused(R"({"quantization": 4})", "quantization");
}

TEST(HfQuantization, Gptq) {
  EXPECT_EQ(
      scheme_of(gptq(R"("bits": 4, "group_size": 128, "desc_act": true, "sym": false)")),
      (QuantScheme{.layout = QuantLayout::kGptq, .bits = 4, .group = 128, .symmetric = false, .zeros_less_one = true}));
  EXPECT_EQ(scheme_of(gptq(R"("bits": 8, "group_size": -1, "checkpoint_format": "gptq_v2")")),
            (QuantScheme{.layout = QuantLayout::kGptq, .bits = 8}));
  for (const char* bits : {"0", "1", "5", "6", "7", "16", "\"4\""})
    expect_scheme_refused(gptq(fmt::format(R"("bits": {}, "group_size": 128)", bits)), "bits");
  for (const char* group : {"0", "-2", "2097152", "1.5"})
    expect_scheme_refused(gptq(fmt::format(R"("bits": 4, "group_size": {})", group)), "group_size");
  expect_scheme_refused(gptq(R"("group_size": 128)"), "'bits' is missing");
  expect_scheme_refused(gptq(R"("bits": 4)"), "'group_size' is missing");
  for (const char* format : {"marlin", "bitblas", "gptq_v3"})
    expect_scheme_refused(gptq(fmt::format(R"("bits": 4, "group_size": 128, "checkpoint_format": "{}")", format)),
                          format);
  expect_scheme_refused(gptq(R"("bits": 4, "group_size": 128, "is_marlin_format": true)"), "Marlin");
}

TEST(HfQuantization, GptqModulesOfTheirOwn) {
  const HfQuantization q = read(gptq(R"("bits": 4, "group_size": 128, "sym": false, "dynamic": {
      "-:.*lm_head": {}, "+:.*\\.1\\.mlp": {"bits": 8, "group_size": 32}, ".*\\.up_proj$": {"group_size": -1, "sym": true, "desc_act": true}, "+:.*up": {"bits": 3}})"));
  const QuantScheme common{
      .layout = QuantLayout::kGptq, .bits = 4, .group = 128, .symmetric = false, .zeros_less_one = true};
  auto with = [&](int bits, int group, bool symmetric) {
    QuantScheme scheme = common;
    scheme.bits = bits, scheme.group = group, scheme.symmetric = symmetric;
    return scheme;
  };
  EXPECT_EQ(*q.find("model.layers.0.mlp.down_proj"), common);
  EXPECT_EQ(q.find("lm_head"), nullptr);
  EXPECT_EQ(*q.find("model.layers.1.mlp.up_proj"), with(8, 32, false));  // the first match
  EXPECT_EQ(*q.find("model.layers.2.mlp.up_proj"), with(4, 0, true));
  EXPECT_EQ(*q.find("model.layers.2.mlp.up_proj.x"), with(3, 128, false));
  EXPECT_EQ(*read(gptq(R"("bits": 4, "group_size": 128, "dynamic": null)")).find("m"),
            *read(gptq(R"("bits": 4, "group_size": 128)")).find("m"));
  auto refused = [](const char* dynamic, const char* expected) {
    expect_scheme_refused(gptq(fmt::format(R"("bits": 4, "group_size": 128, "dynamic": {})", dynamic)), expected);
  };
  refused(R"({"a": {"bits": 5}})", "5 is not supported: expected 2, 3, 4, 8");
  refused(R"({"a": {"group_size": 0}})", "0 is not a group size");
  refused(R"({"+:(a": {}})", "dynamic");
  refused(R"({"a": 4})", "dynamic");
  refused("[]", "dynamic");
}

TEST(HfQuantization, Awq) {
  EXPECT_EQ(scheme_of(awq(R"("bits": 4, "group_size": 128, "version": "GEMM")")),
            (QuantScheme{.layout = QuantLayout::kAwq, .bits = 4, .group = 128, .symmetric = false}));
  EXPECT_EQ(scheme_of(awq(R"("w_bit": 4, "q_group_size": 64)")).group, 64);
  EXPECT_EQ(scheme_of(awq(R"("bits": 4, "group_size": 64, "version": "gemv")")).layout, QuantLayout::kAwqRows);
  for (const char* version : {"gemv_fast", "marlin", "exllama", "ipex"})
    expect_scheme_refused(awq(fmt::format(R"("bits": 4, "group_size": 128, "version": "{}")", version)), version);
  expect_scheme_refused(awq(R"("bits": 4, "group_size": 128, "backend": "llm-awq")"), "llm-awq");
  expect_scheme_refused(awq(R"("bits": 3, "group_size": 128)"), "3 is not supported: expected 4");
}

TEST(HfQuantization, Fp8) {
  EXPECT_EQ(scheme_of(fp8(R"(, "weight_block_size": [128, 64], "activation_scheme": "dynamic", "fmt": "e4m3")")),
            (QuantScheme{.layout = QuantLayout::kFloat8, .block_rows = 128, .block_cols = 64}));
  EXPECT_EQ(scheme_of(fp8("")), (QuantScheme{.layout = QuantLayout::kFloat8}));
  EXPECT_EQ(scheme_of(hf(R"("quant_method": "fbgemm_fp8")")).layout, QuantLayout::kFloat8);
  for (const char* block : {"[128]", "[128, 128, 1]", "[0, 128]", "[128, -1]", "128", "[\"a\", 1]", "[128, 99999999]"})
    expect_scheme_refused(fp8(fmt::format(R"(, "weight_block_size": {})", block)), "weight_block_size");
  expect_scheme_refused(fp8(R"(, "fmt": "e5m2")"), "e5m2");
}

TEST(HfQuantization, CompressedTensors) {
  EXPECT_EQ(
      scheme_of(ct("pack-quantized",
                   R"("num_bits": 4, "type": "int", "symmetric": false, "strategy": "group", "group_size": 128)")),
      (QuantScheme{.layout = QuantLayout::kPacked, .bits = 4, .group = 128, .symmetric = false}));
  EXPECT_EQ(scheme_of(ct("pack-quantized", R"("num_bits": 8, "strategy": "channel")")),
            (QuantScheme{.layout = QuantLayout::kPacked}));
  EXPECT_EQ(scheme_of(ct("int-quantized", R"("num_bits": 8, "type": "int", "strategy": "channel")")).layout,
            QuantLayout::kInt8);
  EXPECT_EQ(scheme_of(ct("naive-quantized", R"("num_bits": 8, "type": "int", "strategy": "tensor")")).layout,
            QuantLayout::kInt8);
  EXPECT_EQ(scheme_of(ct("float-quantized", R"("num_bits": 8, "type": "float", "strategy": "tensor")")).layout,
            QuantLayout::kFloat8);
  EXPECT_EQ(scheme_of(ct("float-quantized",
                         R"("num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128])"))
                .block_cols,
            128);
  EXPECT_EQ(scheme_of(ct("pack-quantized", R"("num_bits": 4, "group_size": 32)",
                         R"(, "sparsity_config": {"format": "dense"}, "transform_config": {})"))
                .group,
            32);
  for (int bits = 2; bits <= 8; ++bits)
    EXPECT_EQ(scheme_of(ct("pack-quantized", fmt::format(R"("num_bits": {}, "strategy": "channel")", bits))).bits,
              bits);
  EXPECT_EQ(scheme_of(ct("int-quantized", R"("num_bits": 8, "symmetric": false, "strategy": "channel")")),
            (QuantScheme{.layout = QuantLayout::kInt8, .symmetric = false}));
  EXPECT_EQ(scheme_of(ct("nvfp4-pack-quantized",
                         R"("num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16)")),
            (QuantScheme{.layout = QuantLayout::kPackedNvfp4, .bits = 4, .group = 16}));
  EXPECT_EQ(
      scheme_of(ct("mxfp4-pack-quantized", R"("num_bits": 4, "type": "float", "strategy": "group", "group_size": 32)")),
      (QuantScheme{.layout = QuantLayout::kPackedMxfp4, .bits = 4, .group = 32}));
  EXPECT_EQ(
      scheme_of(ct("mxfp8-quantized", R"("num_bits": 8, "type": "float", "strategy": "group", "group_size": 32)")),
      (QuantScheme{.layout = QuantLayout::kFloat8, .block_rows = 1, .block_cols = 32}));
  expect_scheme_refused(
      ct("nvfp4-pack-quantized", R"("num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 32)"),
      "32 is not supported: expected 16");
  expect_scheme_refused(ct("nvfp4-pack-quantized", R"("num_bits": 4, "type": "int", "group_size": 16)"),
                        "'int' is not supported");
  expect_scheme_refused(
      ct("mxfp4-pack-quantized", R"("num_bits": 4, "type": "float", "strategy": "channel", "group_size": 32)"),
      "'channel' is not supported");
  expect_scheme_refused(
      ct("mxfp8-quantized", R"("num_bits": 8, "type": "float", "symmetric": false, "group_size": 32)"), "symmetric");
  expect_scheme_refused(ct("mxfp4-pack-quantized", R"("num_bits": 8, "type": "float", "group_size": 32)"),
                        "8 is not supported: expected 4");
  const std::string weights = R"("num_bits": 8, "type": "float", "strategy": "tensor")";
  for (const char* format : {"mxfp6-pack-quantized", "marlin-24", "dense", ""})
    expect_scheme_refused(ct(format, weights), "pack-quantized");
  expect_scheme_refused(ct("pack-quantized", weights), "pack-quantized weights are integers");
  expect_scheme_refused(ct("int-quantized", weights), "contradict the format int-quantized");
  expect_scheme_refused(ct("float-quantized", R"("num_bits": 8, "type": "int", "strategy": "tensor")"),
                        "contradict the format float-quantized");
  for (const char* bits : {"0", "1", "9", "4.5"})
    expect_scheme_refused(ct("pack-quantized", fmt::format(R"("num_bits": {})", bits)), "num_bits");
  expect_scheme_refused(ct("int-quantized", R"("num_bits": 4)"), "4 is not supported: expected 8");
  expect_scheme_refused(ct("float-quantized", R"("num_bits": 8, "type": "float", "strategy": "tensor_group")"),
                        "tensor_group");
  expect_scheme_refused(ct("float-quantized", R"("num_bits": 8, "type": "float", "strategy": "block")"),
                        "'block_structure' is missing");
  expect_scheme_refused(ct("float-quantized", R"("num_bits": 8, "type": "float", "symmetric": false)"), "symmetric");
  expect_scheme_refused(ct("pack-quantized", R"("num_bits": 4, "group_size": 32)",
                           R"(, "transform_config": {"config_groups": {"R1": {}}})"),
                        "transform_config");
  expect_scheme_refused(ct("pack-quantized", R"("num_bits": 4, "group_size": 32)",
                           R"(, "sparsity_config": {"format": "sparse-24-bitmask"})"),
                        "sparse-24-bitmask");
  expect_scheme_refused(hf(R"("quant_method": "compressed-tensors", "format": "pack-quantized")"),
                        "'config_groups' is missing");
}

TEST(HfQuantization, ModelOpt) {
  const QuantScheme nvfp4{.layout = QuantLayout::kModelOptNvfp4, .bits = 4, .group = 16},
      fp8{.layout = QuantLayout::kFloat8};
  const QuantScheme mxfp4{.layout = QuantLayout::kModelOptMxfp4, .bits = 4, .group = 32};
  const std::pair<const char*, QuantScheme> algorithms[] = {
      {"FP8", fp8},
      {"FP8_PER_CHANNEL_PER_TOKEN", fp8},
      {"fp8_pb_wo", {.layout = QuantLayout::kFloat8, .block_rows = 128, .block_cols = 128}},  // as some versions write it
      {"MXFP8", {.layout = QuantLayout::kFloat8, .block_rows = 1, .block_cols = 32}},
      {"mxfp4", mxfp4},
      {"W4A8_MXFP4_FP8", mxfp4},
      {"NVFP4", nvfp4},
      {"W4A16_NVFP4", nvfp4},
      {"W4A8_NVFP4_FP8", nvfp4},
      {"NVFP4_AWQ", nvfp4}};
  for (const auto& [name, scheme] : algorithms) {
    const std::string algorithm =
        fmt::format(R"("quant_algo": "{}", "kv_cache_quant_algo": "FP8", "ignore": ["lm_head"])", name);
    EXPECT_EQ(scheme_of(hf(R"("quant_method": "modelopt", )" + algorithm)), scheme) << name;
    EXPECT_EQ(scheme_of(R"({"producer": {"name": "modelopt"}, "quantization": {)" + algorithm + "}}"), scheme)
        << name;  // hf_quant_config.json
  }
  EXPECT_EQ(read(hf(R"("quant_algo": "FP8", "quant_library": "modelopt")")).method(), "modelopt");
  EXPECT_EQ(scheme_of(hf(R"("quant_algo": "NVFP4", "group_size": 16)")), nvfp4);
  expect_scheme_refused(hf(R"("quant_algo": "NVFP4", "group_size": 32)"), "32 is not supported: expected 16");
  expect_scheme_refused(hf(R"("quant_algo": "MXFP4", "group_size": 16)"), "16 is not supported: expected 32");
  for (const char* name : {"W4A16_AWQ", "W4A8_AWQ", "W8A8_SQ_PER_CHANNEL", "NVFP4_SVD", "INT4", "", "evil\\u001b[2J"})
    expect_scheme_refused(hf(fmt::format(R"("quant_algo": "{}")", name)), "is not supported: supported are MLX");
  expect_scheme_refused(hf(R"("quant_algo": 8)"), "quant_algo");
  expect_scheme_refused(hf(R"("quant_method": "modelopt")"), "'modelopt' are not supported");
}

TEST(HfQuantization, ModelOptsMixedModules) {
  const HfQuantization q = read(hf(R"("quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {
      "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"}, "model.layers.0.mlp.experts": {"quant_algo": "NVFP4", "group_size": 16},
      "model.layers.0.mlp.experts.7": {"quant_algo": "MXFP8"}})"));
  EXPECT_EQ(q.find("model.layers.0.self_attn.q_proj")->layout, QuantLayout::kFloat8);
  EXPECT_EQ(q.find("model.layers.0.self_attn.q_proj_2"), nullptr);
  EXPECT_EQ(q.find("model.layers.0.self_attn"), nullptr);
  EXPECT_EQ(q.find("model.layers.0.mlp.experts.6.up_proj")->layout, QuantLayout::kModelOptNvfp4);
  EXPECT_EQ(q.find("model.layers.0.mlp.experts.7.up_proj")->block_cols, 32);
  EXPECT_EQ(q.find("model.layers.1.mlp.experts.6.up_proj"), nullptr);
  expect_scheme_refused(hf(R"("quant_algo": "MIXED_PRECISION")"), "'quantized_layers' is missing");
  expect_scheme_refused(hf(R"("quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": {"quant_algo": "W8A16"}})"),
                        "'W8A16' is not supported");
  expect_scheme_refused(hf(R"("quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": {}})"),
                        "'quant_algo' is missing");
  expect_scheme_refused(hf(R"("quant_algo": "MIXED_PRECISION", "quantized_layers": ["a"])"), "quantized_layers");
}

// A directory whose config.json has no quantization may have ModelOpt's own file; config.json takes precedence.
TEST(HfQuantization, OfADirectory) {
  namespace fs = std::filesystem;
  const fs::path directory = fs::path(testing::TempDir()) / "hf_quantization_directory";
  fs::create_directories(directory);
  const auto write = [&](const char* name, const std::string& text) {
    write_file((directory / name).string(), span_of(text));
  };
  const auto read_all = [&] { return HfQuantization::read(HfDirectory(directory.string())); };
  write("config.json", "{}");
  EXPECT_FALSE(read_all());
  write("hf_quant_config.json",
        R"({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}})");
  ASSERT_TRUE(read_all());
  EXPECT_EQ(read_all()->method(), "modelopt");
  write("config.json", gptq(R"("bits": 4, "group_size": 128)"));
  EXPECT_EQ(read_all()->method(), "gptq");
  write("config.json", "{}");
  write("hf_quant_config.json", R"({"quantization": {"quant_algo": "INT3"}})");
  EXPECT_THAT(refusal(read_all),
              testing::AllOf(HasSubstr("hf_quant_config.json"), HasSubstr("'INT3' is not supported")));
  write("hf_quant_config.json", "{");
  EXPECT_THAT(refusal(read_all), HasSubstr("hf_quant_config.json"));
  fs::remove_all(directory);
}

TEST(HfQuantization, GroupsAreFoundByName) {
  auto group = [](const char* targets, int bits) {
    return fmt::format(
        R"({{"targets": {}, "format": "pack-quantized", "weights": {{"num_bits": {}, "strategy": "channel"}}}})",
        targets, bits);
  };
  const auto q = read(
      hf(R"("quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": {"a": )" +
         group(R"(["Linear"])", 4) + R"(, "b": )" + group(R"(["re:.*layers\\.[02]\\..*down_proj", "re:model"])", 8) +
         R"(, "c": )" + group(R"(["model.layers.2.mlp.down_proj"])", 2) +
         R"(, "d": {"targets": ["Attention"], "weights": null}})"));
  EXPECT_EQ(q.find("layers.0.mlp.down_proj")->bits, 8);
  EXPECT_EQ(q.find("model.layers.1.mlp.up_proj")->bits, 8);  // bound only to the start, as in re.match
  EXPECT_EQ(q.find("a.model.layers.1.mlp.up_proj")->bits, 4);
  EXPECT_EQ(q.find("model.layers.2.mlp.down_proj")->bits, 2);
  EXPECT_EQ(q.find("layers.1.mlp.down_proj")->bits, 4);
  const auto named = read(
      hf(R"("quant_method": "compressed-tensors", "config_groups": {"c": )" + group(R"(["x.down_proj"])", 2) + "}"));
  EXPECT_EQ(named.find("x.up_proj"), nullptr);
  expect_scheme_refused(
      hf(R"("quant_method": "compressed-tensors", "config_groups": {"c": )" + group(R"(["re:(a"])", 4) + "}"),
      "config_groups.c.targets[0]");
  const auto slow =
      read(hf(R"("quant_method": "compressed-tensors", "config_groups": {"c": )" + group(R"(["re:(a+)+$"])", 4) + "}"));
  EXPECT_THAT(refusal([&] { slow.find(std::string(64, 'a') + "!"); }), HasSubstr("(a+)+$"));
}

TEST(HfQuantization, OthersAreRefusedByName) {  // S22
  for (const char* method : {"bitsandbytes", "hqq", "aqlm", "torchao", "quanto", "eetq", "vptq", "auto-round",
                             "modelopt", "bitnet", "GPTQ", ""}) {
    expect_scheme_refused(hf(fmt::format(R"("quant_method": "{}")", method)), fmt::format("'{}'", method).c_str());
    expect_scheme_refused(hf(fmt::format(R"("quant_method": "{}")", method)),
                          "use one of these, the model's unquantized checkpoint, or a GGUF file of it");
  }
  expect_scheme_refused(hf(R"("quant_method": "evil\u001b[2J")"), "evil");
  expect_scheme_refused(hf(R"("quant_method": 4)"), "quant_method");
  EXPECT_EQ(scheme_of(hf(R"("quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"])")).layout,
            QuantLayout::kMxfp4Blocks);
}

}  // namespace
}  // namespace ingot
