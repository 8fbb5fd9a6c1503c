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
#include "model/layers/delta_net.h"
#include "model/layers/kda.h"
#include "model/layers/mamba1.h"
#include "model/layers/mamba2.h"
#include "model/layers/rwkv7.h"
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

std::string kinds_of(const Config& c) {
  std::string names;
  for (int i = 0; i < c.n_layers; ++i)
    for (const LayerPart& part : c.layer(i).parts) names += std::string(names.empty() ? "" : " ") + part.kind->name;
  return names;
}

TEST(GraniteHybridConfig, KeysOfDirectories) {
  const HfCopy copy("granite_hybrid");
  const auto with = [&](const char* key, const Json& value, Config* c = nullptr) {
    return hf_complaint(copy, [&](Json& json) { json[key] = value; }, c);
  };
  Config c;
  ASSERT_EQ(with("layer_types", {"mamba", "attention"}, &c), "");  // names of published models
  EXPECT_EQ(kinds_of(c), "mamba2 experts attention experts");
  EXPECT_EQ(c.layer(1).rope, LayerRope::kNone);
  ASSERT_EQ(with("position_embedding_type", "rope", &c), "");
  EXPECT_EQ(c.layer(1).rope, LayerRope::kMain);
  ASSERT_EQ(with("num_local_experts", 0, &c), "");
  EXPECT_EQ(kinds_of(c), "mamba2 feed_forward attention feed_forward");
  EXPECT_EQ(c.ffn_dim, 12);  // shared_intermediate_size
  EXPECT_THAT(with("layer_types", {"mamba"}), HasSubstr("1 elements for 2 layers"));
  EXPECT_THAT(with("layer_types", {"mamba", "mlp"}), HasSubstr("layers of type 'mlp' are not supported"));
  EXPECT_THAT(with("position_embedding_type", "alibi"), HasSubstr("supported are absolute, rope and nope"));
  EXPECT_THAT(with("mamba_proj_bias", true), HasSubstr("'mamba_proj_bias': is true"));
  EXPECT_THAT(with("mamba_d_head", 7), HasSubstr("4 heads of 7 columns are not the 32 columns"));
}

TEST(BambaConfig, KeysOfDirectories) {
  const HfCopy copy("bamba");
  const auto with = [&](const char* key, const Json& value, Config* c = nullptr) {
    return hf_complaint(copy, [&](Json& json) { json[key] = value; }, c);
  };
  Config c;
  ASSERT_EQ(with("attn_layer_indices", {0}, &c), "");
  EXPECT_EQ(layers_with_states(c), "as");
  EXPECT_EQ(c.rot_dim, 4);
  EXPECT_THAT(with("attn_layer_indices", {2}), HasSubstr("attn_layer_indices"));
}

TEST(NemotronHConfig, KeysOfDirectories) {
  const HfCopy copy("nemotron_h");
  const auto with = [&](const char* key, const Json& value, Config* c = nullptr) {
    return hf_complaint(copy, [&](Json& json) { json[key] = value; }, c);
  };
  Config c;
  ASSERT_EQ(with("hybrid_override_pattern", "*M-M", &c), "");
  EXPECT_EQ(kinds_of(c), "attention mamba2 feed_forward mamba2");
  EXPECT_STREQ(c.arch->gguf_name, "nemotron_h");
  EXPECT_THAT(with("hybrid_override_pattern", "M-*X"), HasSubstr("'X' of layer 3 is not supported: supported are M"));
  EXPECT_THAT(with("hybrid_override_pattern", "M-*"), HasSubstr("3 elements for 4 layers"));
  EXPECT_THAT(with("hybrid_override_pattern", std::string(2000, 'M')), HasSubstr("at most 1024 are supported"));
  EXPECT_THAT(hf_complaint(copy, [](Json& json) { json.erase("hybrid_override_pattern"); }),
              HasSubstr("layers_block_type"));
  EXPECT_THAT(with("mamba_head_dim", 0), HasSubstr("mamba_head_dim"));

  const HfCopy experts("nemotron_h_moe");
  const auto listed = [&](const Json& types, Config* config = nullptr) {
    return hf_complaint(experts, [&](Json& json) { json["layers_block_type"] = types; }, config);
  };
  ASSERT_EQ(listed({"moe", "mlp", "mamba"}, &c), "");
  EXPECT_EQ(kinds_of(c), "experts feed_forward mamba2");
  EXPECT_STREQ(c.arch->gguf_name, "nemotron_h_moe");
  EXPECT_THAT(listed({"moe", "conv"}), HasSubstr("models of type 'nemotron_h' have no conv"));
}

TEST(FalconH1Config, RefusesKeysOfDirectories) {
  const HfCopy copy("falcon_h1");
  const auto with = [&](const char* key, const Json& value) {
    return hf_complaint(copy, [&](Json& json) { json[key] = value; });
  };
  for (const char* key : {"attention_bias", "mlp_bias", "projectors_bias", "mamba_proj_bias"})
    EXPECT_THAT(with(key, true), HasSubstr(std::string("'") + key + "': is true")) << key;
  EXPECT_THAT(with("mlp_multipliers", {1}), HasSubstr("1 numbers: expected 2"));
  EXPECT_THAT(with("ssm_multipliers", {1, 2, 3, 4, 5, 6}), HasSubstr("6 numbers: expected 5"));
  EXPECT_THAT(with("ssm_multipliers", {1, 2, 3, 4, 0}), HasSubstr("ssm_multipliers"));
  EXPECT_THAT(with("ssm_in_multiplier", -1), HasSubstr("ssm_in_multiplier"));
  const auto norms = [](Json& json) { json["mamba_rms_norm"] = json["mamba_norm_before_gate"] = true; };
  EXPECT_THAT(hf_complaint(copy, norms), HasSubstr("mamba_norm_before_gate"));
}

TEST(Mamba1Config, KeysOfDirectories) {
  const HfCopy copy("mamba");
  const auto with = [&](const char* key, const Json& value, Config* c = nullptr) {
    return hf_complaint(copy, [&](Json& json) { json[key] = value; }, c);
  };
  Config c;
  ASSERT_EQ(with("time_step_rank", "auto", &c), "");
  EXPECT_EQ(c.part<Mamba1Config>().dt_rank, 1);  // 16 columns / 16, rounded up
  EXPECT_EQ(c.part<Mamba1Config>().inner, 32);
  EXPECT_FALSE(c.part<Mamba1Config>().has_norms);
  EXPECT_THAT(with("use_bias", true), HasSubstr("'use_bias': is true, which is not supported"));
  for (const char* key : {"state_size", "conv_kernel", "expand", "time_step_rank"})
    for (const Json& value : {Json(0), Json(1 << 30), Json(-1)})
      EXPECT_THAT(with(key, value), HasSubstr(key)) << value;
}

TEST(JambaConfig, KeysOfDirectories) {
  const HfCopy copy("jamba");
  const auto with = [&](const char* key, const Json& value, Config* c = nullptr) {
    return hf_complaint(copy, [&](Json& json) { json[key] = value; }, c);
  };
  Config c;
  ASSERT_EQ(with("attn_layer_offset", 0, &c), "");
  EXPECT_EQ(kinds_of(c), "attention experts mamba1 feed_forward attention experts");
  EXPECT_EQ(c.layer(0).rope, LayerRope::kNone);
  ASSERT_EQ(with("num_experts", 1, &c), "");
  EXPECT_EQ(kinds_of(c), "mamba1 feed_forward attention feed_forward mamba1 feed_forward");
  for (const char* key : {"attn_layer_period", "attn_layer_offset", "expert_layer_period", "expert_layer_offset"})
    for (const Json& value : {Json(-1), Json(1 << 20), Json("2")})
      EXPECT_THAT(with(key, value), HasSubstr(key)) << value;
}

TEST(KimiLinearConfig, KeysOfDirectories) {
  const HfCopy copy("kimi_linear");
  Config c;
  const auto published = [](Json& json) {
    json.erase("layer_types"), json.erase("mlp_layer_types"), json["first_k_dense_replace"] = 1;
    json["linear_attn_config"] = {{"full_attn_layers", {1}}, {"kda_layers", {2}}, {"head_dim", 6}, {"num_heads", 2},
                                  {"short_conv_kernel_size", 4}};
  };
  ASSERT_EQ(hf_complaint(copy, published, &c), "");
  EXPECT_EQ(kinds_of(c), "latent_attention feed_forward kda experts");
  EXPECT_EQ(c.layer(0).rope, LayerRope::kNone);
  EXPECT_EQ(c.part<KdaConfig>().head_dim, 6);
  const auto with = [&](const char* key, const Json& value) {
    return hf_complaint(copy, [&](Json& json) { published(json), json["linear_attn_config"][key] = value; });
  };
  EXPECT_THAT(with("full_attn_layers", {0}), HasSubstr("full_attn_layers"));  // counted from 1
  EXPECT_THAT(with("full_attn_layers", {3}), HasSubstr("full_attn_layers"));
  EXPECT_THAT(with("head_dim", 1 << 20), HasSubstr("head_dim"));
  EXPECT_THAT(with("num_heads", "2"), HasSubstr("num_heads"));
  EXPECT_THAT(with("short_conv_kernel_size", 1), HasSubstr("short_conv_kernel_size"));
}

TEST(RecurrentGemmaConfig, KeysOfDirectories) {
  const HfCopy copy("recurrent_gemma");
  const auto with = [&](const char* key, const Json& value, Config* c = nullptr) {
    return hf_complaint(copy, [&](Json& json) { json[key] = value; }, c);
  };
  Config c;
  ASSERT_EQ(with("block_types", {"attention", "recurrent", "recurrent"}, &c), "");
  EXPECT_EQ(kinds_of(c), "attention feed_forward rg_lru feed_forward");
  EXPECT_EQ(c.ffn_dim, 16);                // the file counts gate and up
  EXPECT_EQ(c.embedding_scale, 4.90625f);  // the root of 24, as bf16
  EXPECT_THAT(with("block_types", {"attention", "mlp"}), HasSubstr("'mlp' is not supported: supported are recurrent"));
  EXPECT_THAT(with("block_types", Json::array()), HasSubstr("block_types"));
  EXPECT_THAT(with("lru_width", 15), HasSubstr("15 is not a multiple of num_attention_heads 2"));
  EXPECT_THAT(with("intermediate_size", 33), HasSubstr("33 is not an even number"));
  EXPECT_THAT(with("conv1d_width", 17), HasSubstr("conv1d_width"));
}

TEST(Lfm3Config, KeysOfDirectories) {
  const HfCopy copy("lfm3");
  const auto with = [&](const char* key, const Json& value, Config* c = nullptr) {
    return hf_complaint(copy, [&](Json& json) { json[key] = value; }, c);
  };
  Config c;
  ASSERT_EQ(with("sliding_window", 5, &c), "");
  EXPECT_EQ(kinds_of(c), "short_conv feed_forward attention feed_forward attention feed_forward");
  EXPECT_EQ(c.layer(1).window, 5);
  EXPECT_EQ(c.layer(1).rope, LayerRope::kLocal);
  EXPECT_EQ(c.layer(2).window, 0);
  EXPECT_EQ(c.layer(2).rope, LayerRope::kMain);
  EXPECT_THAT(with("use_attention_gate", false), HasSubstr("use_attention_gate"));
  EXPECT_THAT(with("use_sandwich_norm", false), HasSubstr("use_sandwich_norm"));
  EXPECT_THAT(with("layer_types", nullptr), HasSubstr("layer_types"));
  EXPECT_THAT(with("layer_types", {"conv", "sliding_attention"}), HasSubstr("layer_types"));
  EXPECT_THAT(with("conv_L_cache", 17), HasSubstr("conv_L_cache"));
}

TEST(OlmoHybridConfig, KeysOfDirectories) {
  const HfCopy copy("olmo_hybrid");
  const auto with = [&](const char* key, const Json& value, Config* c = nullptr) {
    return hf_complaint(copy, [&](Json& json) { json[key] = value; }, c);
  };
  Config c;
  ASSERT_EQ(with("linear_allow_neg_eigval", false, &c), "");
  EXPECT_EQ(kinds_of(c), "gated_delta feed_forward attention feed_forward");
  EXPECT_EQ(c.part<DeltaConfig>().share, 1);
  EXPECT_EQ(c.layer(1).rope, LayerRope::kNone);
  ASSERT_EQ(with("rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}}, &c), "");
  EXPECT_EQ(c.part<DeltaConfig>().share, 2);
  EXPECT_EQ(c.layer(1).rope, LayerRope::kMain);
  EXPECT_THAT(with("linear_num_value_heads", 3), HasSubstr("3 is not a multiple of linear_num_key_heads 2"));
  EXPECT_THAT(with("linear_conv_kernel_dim", 17), HasSubstr("linear_conv_kernel_dim"));
  EXPECT_THAT(with("linear_key_head_dim", 1 << 20), HasSubstr("linear_key_head_dim"));
  EXPECT_THAT(with("layer_types", {"linear_attention"}), HasSubstr("layer_types"));
  EXPECT_THAT(with("layer_types", {"linear_attention", "conv"}), HasSubstr("conv"));
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

// Layers of one part: heads of keys mark attention, columns of a feed-forward mark feed-forwards or experts.
TEST(NemotronHConfig, KeysOfGguf) {
  const std::map<std::string, uint32_t> numbers = {
      {"block_count", 3},        {"context_length", 128}, {"embedding_length", 64},   {"attention.head_count", 4},
      {"attention.key_length", 16}, {"ssm.conv_kernel", 4},  {"ssm.inner_size", 128}, {"ssm.state_size", 16},
      {"ssm.time_step_rank", 8}, {"ssm.group_count", 2}};
  const auto lists = [](std::vector<uint32_t> heads, std::vector<uint32_t> columns) {
    return [=](GgufWriter& w) {
      w.set("nemotron_h.attention.head_count_kv", heads);
      w.set("nemotron_h.feed_forward_length", columns);
    };
  };
  Config c;
  ASSERT_EQ(gguf_complaint("nemotron_h", numbers, lists({0, 2, 0}, {96, 0, 0}), &c), "");
  EXPECT_EQ(kinds_of(c), "feed_forward attention mamba2");
  EXPECT_EQ(c.ffn_dim, 96);
  EXPECT_EQ(c.layer(1).rope, LayerRope::kNone);
  EXPECT_THAT(gguf_complaint("nemotron_h", numbers, lists({0, 2}, {96, 0, 0})), HasSubstr("head_count_kv"));
  EXPECT_THAT(gguf_complaint("nemotron_h", numbers, lists({0, 2, 0}, {96, 0})), HasSubstr("feed_forward_length"));
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

TEST(Rwkv7Config, KeysOfDirectories) {
  const HfCopy copy("rwkv7");
  Config c;
  ASSERT_EQ(hf_complaint(copy, [](Json&) {}, &c), "");
  EXPECT_EQ(kinds_of(c), "rwkv7 channel_mix rwkv7 channel_mix");
  EXPECT_EQ(c.part<Rwkv7Config>().head_dim, 8);
  EXPECT_EQ(c.part<Rwkv7Config>().gate_rank, 6);
  EXPECT_FLOAT_EQ(c.part<Rwkv7Config>().head_eps, 64e-5f);
  EXPECT_EQ(c.ffn_dim, 24);
  EXPECT_EQ(c.n_ctx_train, 1 << 20);
  const auto with = [&](const char* key, const Json& value) {
    return hf_complaint(copy, [&](Json& json) { json[key] = value; });
  };
  EXPECT_THAT(with("attn", {{"layers", {0}}}), HasSubstr("'attn': lists layers with attention"));
  EXPECT_THAT(with("norm_first", false), HasSubstr("'norm_first': is false, which is not supported"));
  EXPECT_THAT(with("value_dim", {16, 32}), HasSubstr("'value_dim': 32 differs from hidden_size 16"));
  EXPECT_THAT(with("a_low_rank_dim", nullptr), HasSubstr("'a_low_rank_dim': is missing"));
  EXPECT_THAT(with("gate_low_rank_dim", 0), HasSubstr("gate_low_rank_dim"));
  EXPECT_THAT(with("head_dim", 6), HasSubstr("'head_dim': 6 does not divide hidden_size 16"));
  EXPECT_THAT(with("hidden_act", "silu"), HasSubstr("hidden_act"));
}

}  // namespace
}  // namespace ingot
