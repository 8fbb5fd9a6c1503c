// The keys of recurrent layers, in both dialects: which layers have which mixer, values that other versions write, and
// values that are refused in one line that names the key.
#include <gmock/gmock.h>

#include <functional>
#include <limits>
#include <map>

#include "base/error.h"
#include "io/gguf/gguf.h"
#include "io/gguf/writer.h"
#include "model/config/kind.h"
#include "model/hf_models.h"
#include "model/layers/mamba2.h"
#include "model/layers/short_conv.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

// What reading a directory with changed keys says; "" if it is read.
template <class F>
std::string hf_complaint(const HfCopy& copy, const F& edit, Config* config = nullptr) {
  const std::string before = copy.read("config.json");
  copy.edit("config.json", edit);
  std::string message;
  try {
    const Config read = config_from_hf(read_hf_config_of(HfDirectory(copy.path().string())));
    if (config != nullptr) *config = read;
  } catch (const Error& error) {
    message = error.what();
  }
  copy.write("config.json", before);
  return message;
}

std::string layers_with_states(const Config& c) {
  std::string layers;
  for (int i = 0; i < c.n_layers; ++i) layers += keeps_states(c, i) ? 's' : 'a';
  return layers;
}

TEST(ShortConvConfig, LayersOfDirectories) {
  const HfCopy copy("lfm2");
  Config c;
  ASSERT_EQ(hf_complaint(copy, [](Json&) {}, &c), "");
  EXPECT_EQ(layers_with_states(c), "sas");
  EXPECT_EQ(c.part<ShortConvConfig>().width, 3);
  EXPECT_EQ(c.ffn_dim, 28);  // 36 * 2 / 3 * 1.2, in steps of 7
  const auto old = [](Json& json) { json.erase("layer_types"), json["full_attn_idxs"] = {0, 2}; };
  ASSERT_EQ(hf_complaint(copy, old, &c), "");
  EXPECT_EQ(layers_with_states(c), "asa");
  ASSERT_EQ(hf_complaint(copy, [](Json& json) { json.erase("layer_types"); }, &c), "");
  EXPECT_EQ(layers_with_states(c), "aaa");
  ASSERT_EQ(hf_complaint(copy, [](Json& json) { json["block_auto_adjust_ff_dim"] = false; }, &c), "");
  EXPECT_EQ(c.ffn_dim, 36);
  ASSERT_EQ(hf_complaint(copy, [](Json& json) { json["block_ff_dim"] = 30; }, &c), "");
  EXPECT_EQ(c.ffn_dim, 28);
  ASSERT_EQ(hf_complaint(copy, [](Json& json) { json["tie_embedding"] = false; }, &c), "");
  EXPECT_EQ(c.tied_output, false);
}

TEST(ShortConvConfig, RefusesKeysOfDirectories) {
  const HfCopy copy("lfm2");
  const auto with = [&](const char* key, const Json& value) {
    return hf_complaint(copy, [&](Json& json) { json[key] = value; });
  };
  EXPECT_THAT(with("layer_types", {"conv", "conv"}), HasSubstr("2 elements for 3 layers"));
  EXPECT_THAT(with("layer_types", {"conv", "rnn", "conv"}), HasSubstr("layers of type 'rnn' are not supported"));
  EXPECT_THAT(with("conv_bias", true), HasSubstr("'conv_bias': is true, which is not supported"));
  for (const Json& value : {Json(1), Json(17), Json("3"), Json(-1)})
    EXPECT_THAT(with("conv_L_cache", value), HasSubstr("conv_L_cache")) << value;
  for (const Json& value : {Json(0), Json(-1.5), Json(1e30), Json("2")})
    EXPECT_THAT(with("block_ffn_dim_multiplier", value), HasSubstr("block_ffn_dim_multiplier")) << value;
  EXPECT_THAT(with("block_multiple_of", 0), HasSubstr("block_multiple_of"));
  EXPECT_THAT(hf_complaint(copy,
                           [](Json& json) {
                             json.erase("layer_types");
                             json["full_attn_idxs"] = {0, 3};
                           }),
              HasSubstr("full_attn_idxs"));
}

TEST(Mamba2Config, KeysOfDirectories) {
  const HfCopy copy("mamba2");
  const auto with = [&](const char* key, const Json& value, Config* c = nullptr) {
    return hf_complaint(copy, [&](Json& json) { json[key] = value; }, c);
  };
  Config c;
  ASSERT_EQ(with("time_step_limit", {0.5, 2}, &c), "");
  EXPECT_EQ(c.part<Mamba2Config>().min_step, 0.5f);
  EXPECT_EQ(c.part<Mamba2Config>().max_step, 2.0f);
  ASSERT_EQ(with("time_step_limit", nullptr, &c), "");
  EXPECT_EQ(c.part<Mamba2Config>().max_step, std::numeric_limits<float>::infinity());
  EXPECT_THAT(with("time_step_limit", {2, 0.5}), HasSubstr("2 to 0.5 are no limits"));
  EXPECT_THAT(with("time_step_limit", {-1, 2}), HasSubstr("time_step_limit"));
  EXPECT_THAT(with("time_step_limit", {0, 1, 2}), HasSubstr("3 numbers: expected 2"));
  EXPECT_THAT(with("num_heads", 5), HasSubstr("5 heads of 8 columns are not the 32 columns"));
  EXPECT_THAT(with("n_groups", 3), HasSubstr("4 is not a multiple of the 3 groups"));
  EXPECT_THAT(with("use_bias", true), HasSubstr("'use_bias': is true, which is not supported"));
  for (const char* key : {"num_heads", "n_groups", "state_size", "conv_kernel"})
    for (const Json& value : {Json(0), Json(1 << 30), Json("4"), Json(-1)})
      EXPECT_THAT(with(key, value), HasSubstr(key)) << value;
}

// Python's json module writes an infinite limit as the word Infinity.
TEST(Mamba2Config, ReadsInfinity) {
  const HfCopy copy("mamba2");
  Json json = Json::parse(copy.read("config.json"));
  json["time_step_limit"] = {0.25, "END"}, json["name"] = "Infinity \" Infinity";
  std::string text = json.dump();
  text.replace(text.find("\"END\""), 5, "Infinity");
  copy.write("config.json", text);
  const Config c = config_from_hf(read_hf_config_of(HfDirectory(copy.path().string())));
  EXPECT_EQ(c.part<Mamba2Config>().min_step, 0.25f);
  EXPECT_EQ(c.part<Mamba2Config>().max_step, std::numeric_limits<float>::infinity());
}

// What reading a GGUF file of the architecture says.
std::string gguf_complaint(const std::string& arch, const std::map<std::string, uint32_t>& numbers,
                           const std::function<void(GgufWriter&)>& edit = nullptr, Config* config = nullptr) {
  GgufWriter w;
  w.set("general.architecture", arch);
  for (const auto& [key, value] : numbers) w.set(arch + "." + key, value);
  w.set(arch + ".attention.layer_norm_rms_epsilon", 1e-5f);
  if (edit) edit(w);
  w.add_tensor("token_embd.weight", 0, {64, 3}, std::vector<uint8_t>(64 * 3 * 4));
  try {
    const Config read = config_from_gguf(Gguf::parse(w.to_bytes(), "test.gguf"));
    if (config != nullptr) *config = read;
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ShortConvConfig, KeysOfGguf) {
  const std::map<std::string, uint32_t> numbers = {{"block_count", 3},          {"context_length", 128},
                                                   {"embedding_length", 64},    {"feed_forward_length", 96},
                                                   {"attention.head_count", 4}, {"shortconv.l_cache", 3}};
  const auto heads = [](std::vector<uint32_t> list) {
    return [list](GgufWriter& w) { w.set("lfm2.attention.head_count_kv", list); };
  };
  Config c;
  ASSERT_EQ(gguf_complaint("lfm2", numbers, heads({0, 2, 0}), &c), "");
  EXPECT_EQ(layers_with_states(c), "sas");
  EXPECT_EQ(c.n_kv_heads, 2);
  EXPECT_THAT(gguf_complaint("lfm2", numbers, heads({0, 2})), HasSubstr("lfm2.attention.head_count_kv"));
  auto wide = numbers;
  wide["shortconv.l_cache"] = 17;
  EXPECT_THAT(gguf_complaint("lfm2", wide, heads({0, 2, 0})), HasSubstr("17 is out of range: expected 2 to 16"));
}

TEST(Mamba2Config, KeysOfGguf) {
  const std::map<std::string, uint32_t> numbers = {{"block_count", 3},        {"context_length", 128},
                                                   {"embedding_length", 64},  {"ssm.conv_kernel", 4},
                                                   {"ssm.inner_size", 128},   {"ssm.state_size", 16},
                                                   {"ssm.time_step_rank", 8}, {"ssm.group_count", 2}};
  Config c;
  ASSERT_EQ(gguf_complaint("mamba2", numbers, nullptr, &c), "");
  EXPECT_EQ(c.part<Mamba2Config>().head_dim, 16);
  EXPECT_EQ(layers_with_states(c), "sss");
  const auto with = [&](const char* key, uint32_t value) {
    auto changed = numbers;
    changed[key] = value;
    return gguf_complaint("mamba2", changed);
  };
  EXPECT_THAT(with("ssm.inner_size", 100), HasSubstr("100 is not a multiple of ssm.time_step_rank 8"));
  EXPECT_THAT(with("ssm.group_count", 3), HasSubstr("8 is not a multiple of ssm.group_count 3"));
  for (const char* key : {"ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.time_step_rank",
                          "ssm.group_count"}) {
    EXPECT_THAT(with(key, 0), HasSubstr(key));
    EXPECT_THAT(with(key, 1u << 30), HasSubstr(key));
    auto missing = numbers;
    missing.erase(key);
    EXPECT_THAT(gguf_complaint("mamba2", missing), HasSubstr(key));
  }
}

}  // namespace
}  // namespace ingot
