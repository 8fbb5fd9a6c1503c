// Every key of config.json, in both generations: missing, of the wrong type, and out of range. Each case gives an Error
// that names the file and the key (bad-input rows S16 to S19, S22).
#include "io/huggingface/config.h"

#include <gtest/gtest.h>

#include "model/hf_models.h"
#include "model/config/kind.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;
using Edit = std::function<void(Json&)>;

class HfConfigTest : public testing::Test {
 protected:
  Config read() { return config_from_hf(read_hf_config(HfDirectory(copy_.path().string()))); }

  Config read_with(const Edit& edit, const std::string& file = "config.json") {
    const std::string before = copy_.read(file);
    copy_.edit(file, edit);
    try {
      const Config config = read();
      copy_.write(file, before);
      return config;
    } catch (...) {
      copy_.write(file, before);
      throw;
    }
  }

  std::string complaint(const Edit& edit, const std::string& file = "config.json") {
    try {
      read_with(edit, file);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  // Expects a message that names the file and the key.
  void expect_refused(const char* key, const Json& value, const char* expected = "") {
    const std::string message = complaint([&](Json& json) { json[key] = value; });
    EXPECT_NE(message.find("config.json"), std::string::npos) << key << " = " << value << ": " << message;
    EXPECT_NE(message.find(key), std::string::npos) << key << " = " << value << ": " << message;
    EXPECT_NE(message.find(expected), std::string::npos) << key << " = " << value << ": " << message;
  }

  HfCopy copy_{"llama_tied_llama3"};
};

TEST_F(HfConfigTest, ReadsOldKeys) {
  const Config c = read();
  EXPECT_STREQ(c.arch->hf_name, "llama");
  EXPECT_EQ(c.n_layers, 2);
  EXPECT_EQ(c.dim, 32);
  EXPECT_EQ(c.n_heads, 4);
  EXPECT_EQ(c.n_kv_heads, 1);
  EXPECT_EQ(c.head_dim, 32);
  EXPECT_EQ(c.rot_dim, 32);
  EXPECT_EQ(c.ffn_dim, 96);
  EXPECT_EQ(c.n_vocab, 261);
  EXPECT_FLOAT_EQ(c.norm_eps, 1e-5f);
  EXPECT_FLOAT_EQ(c.rope_theta, 20000.0f);
  EXPECT_EQ(c.rope_scaling.kind, RopeScalingKind::kLlama3);
  EXPECT_FLOAT_EQ(c.rope_scaling.factor, 8);
  EXPECT_EQ(c.rope_scaling.original_context, 32);
  EXPECT_EQ(c.rope_layout, RopeLayout::kHalfSplit);
  EXPECT_EQ(c.tied_output, true);
  EXPECT_EQ(c.sliding_window, 0);
}

TEST_F(HfConfigTest, BothGenerationsOfRopeKeysAreTheSame) {
  const Config old = read(), now = read_with([](Json& json) {
    json["rope_parameters"] = json["rope_scaling"];
    json["rope_parameters"]["rope_theta"] = json["rope_theta"];
    json.erase("rope_theta");
    json.erase("rope_scaling");
  }), typed = read_with([](Json& json) {
    json["rope_scaling"]["type"] = json["rope_scaling"]["rope_type"];
    json["rope_scaling"].erase("rope_type");
  });
  for (const Config& c : {now, typed}) {
    EXPECT_EQ(c.rope_theta, old.rope_theta);
    EXPECT_EQ(c.rope_scaling.kind, old.rope_scaling.kind);
    EXPECT_EQ(c.rope_scaling.factor, old.rope_scaling.factor);
    EXPECT_EQ(c.rope_scaling.low_freq_factor, old.rope_scaling.low_freq_factor);
    EXPECT_EQ(c.rope_scaling.high_freq_factor, old.rope_scaling.high_freq_factor);
    EXPECT_EQ(c.rope_scaling.original_context, old.rope_scaling.original_context);
  }
}

TEST_F(HfConfigTest, HasTheDefaultsOfTransformers) {
  const Config c = read_with([](Json& json) {
    for (const char* key : {"head_dim", "num_key_value_heads", "rope_theta", "rope_scaling", "tie_word_embeddings"})
      json[key] = nullptr;
  });
  EXPECT_EQ(c.head_dim, 8);
  EXPECT_EQ(c.n_kv_heads, 4);
  EXPECT_FLOAT_EQ(c.rope_theta, 10000);
  EXPECT_EQ(c.rope_scaling.kind, RopeScalingKind::kNone);
  EXPECT_EQ(c.tied_output, false);
}

TEST_F(HfConfigTest, YarnMultipliesAsTransformersDoes) {
  auto yarn = [&](const Edit& edit) {
    return read_with([&](Json& json) {
             json["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 64}};
             edit(json["rope_scaling"]);
           }).rope_scaling;
  };
  EXPECT_FLOAT_EQ(yarn([](Json&) {}).magnitude, 1.1386294f);  // 1 + 0.1 ln 4
  EXPECT_FLOAT_EQ(yarn([](Json& r) { r["attention_factor"] = 0.75; }).magnitude, 0.75f);
  EXPECT_FLOAT_EQ(yarn([](Json& r) { r["mscale"] = 1.0, r["mscale_all_dim"] = 1.0; }).magnitude, 1.0f);
  EXPECT_FLOAT_EQ(yarn([](Json& r) { r["factor"] = nullptr; }).factor, 4.0f);  // 256 / 64
  EXPECT_FALSE(yarn([](Json& r) { r["truncate"] = false; }).truncate);
}

TEST_F(HfConfigTest, AcceptsIntegersThatAreWrittenAsReals) {
  EXPECT_EQ(read_with([](Json& json) { json["hidden_size"] = 32.0; }).dim, 32);
}

TEST_F(HfConfigTest, RequiredKeysAreNamed) {
  for (const char* key : {"model_type", "num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size",
                          "vocab_size", "max_position_embeddings", "rms_norm_eps"}) {
    const std::string message = complaint([&](Json& json) { json.erase(key); });
    EXPECT_NE(message.find(key), std::string::npos) << message;
    EXPECT_NE(message.find("config.json"), std::string::npos) << message;
    expect_refused(key, nullptr);
  }
}

TEST_F(HfConfigTest, NumbersAreChecked) {  // S17
  for (const char* key : {"num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
                          "intermediate_size", "vocab_size", "max_position_embeddings", "head_dim"})
    for (const Json& bad :
         {Json("32"), Json(1e10), Json(-1), Json(0), Json(9223372036854775808u), Json({32}), Json(true), Json(1.5)})
      expect_refused(key, bad);
  for (const char* key : {"rms_norm_eps", "rope_theta"})
    for (const Json& bad : {Json("1"), Json(0), Json(-1.0), Json(1e300), Json({1.0}), Json(false)})
      expect_refused(key, bad);
  expect_refused("num_key_value_heads", 3);
  expect_refused("num_key_value_heads", 8);
  const std::string message = complaint([](Json& json) { json["head_dim"] = nullptr, json["hidden_size"] = 30; });
  EXPECT_NE(message.find("'hidden_size' at offset"), std::string::npos) << message;
  expect_refused("tie_word_embeddings", "no");
}

TEST_F(HfConfigTest, BrokenJsonHasAPlace) {  // S16
  const std::string good = copy_.read("config.json");
  const std::string bad_texts[] = {
      "",        good.substr(0, good.size() / 2), good + ",", "{\"a\": NaN}", "{\"a\": 1,}",
      "{} // x", std::string(100000, '[')};
  for (const std::string& bad : bad_texts) {
    copy_.write("config.json", bad);
    try {
      read();
      ADD_FAILURE() << bad.substr(0, 40);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("config.json"), std::string::npos) << error.what();
    }
  }
}

TEST_F(HfConfigTest, AHugeFileIsNotRead) {  // S16
  std::error_code error;
  fs::resize_file(copy_.path() / "config.json", 300'000'000, error);  // sparse
  if (error) GTEST_SKIP() << "this file system has no files of 300 MB: " << error.message();
  try {
    read();
    ADD_FAILURE();
  } catch (const Error& refused) {
    EXPECT_NE(std::string(refused.what()).find("config.json"), std::string::npos) << refused.what();
    EXPECT_NE(std::string(refused.what()).find("64000000"), std::string::npos) << refused.what();
  }
}

TEST_F(HfConfigTest, RopeKindsAreNamed) {  // S19
  for (const char* kind : {"axial", "mrope", "quadratic"}) {
    const std::string message = complaint([&](Json& json) {
      json["rope_scaling"] = {{"rope_type", kind}, {"factor", 2.0}};
    });
    EXPECT_NE(message.find(kind), std::string::npos) << message;
    EXPECT_NE(message.find("supported are default, linear, dynamic, llama3, yarn, longrope and proportional"),
              std::string::npos)
        << message;
  }
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    const std::string message = complaint([&](Json& json) { json["rope_scaling"].erase(key); });
    EXPECT_NE(message.find(key), std::string::npos) << message;
    for (const Json& bad : {Json(0), Json(-1), Json("2")}) {
      const std::string other = complaint([&](Json& json) { json["rope_scaling"][key] = bad; });
      EXPECT_NE(other.find(key), std::string::npos) << other;
    }
  }
  EXPECT_NE(complaint([](Json& json) { json["rope_scaling"]["high_freq_factor"] = 1.0; }).find("high_freq_factor"),
            std::string::npos);
  auto by_layer = [&](const char* type, const Json& rope) {
    return complaint([&](Json& json) { json["rope_scaling"] = {{"full_attention", Json::object()}, {type, rope}}; });
  };
  EXPECT_NE(by_layer("chunked_attention", Json::object()).find("chunked_attention"), std::string::npos);
  EXPECT_NE(by_layer("sliding_attention", {{"rope_type", "linear"}, {"factor", 2.0}}).find("sliding_attention"),
            std::string::npos);
  EXPECT_EQ(by_layer("sliding_attention", {{"rope_theta", 1e4}}), "");
  for (const char* kind : {"longrope", "su"}) {
    auto longrope = [&](const Json& factors) {
      return complaint([&](Json& json) {
        json["rope_scaling"] = {
            {"type", kind}, {"short_factor", std::vector<double>(16, 1.0)}, {"long_factor", factors}};
      });
    };
    EXPECT_EQ(longrope(std::vector<double>(16, 1.5)), "");
    for (const Json& bad : {Json(std::vector<double>(15, 1.0)), Json(1.0), Json(std::vector<double>(16, 0.0)), Json()})
      EXPECT_NE(longrope(bad).find("long_factor"), std::string::npos) << bad;
  }
  for (const Json& bad : {Json(0.0), Json(1.5), Json(0.03), Json(0.1)}) expect_refused("partial_rotary_factor", bad);
  EXPECT_EQ(read_with([](Json& json) { json["partial_rotary_factor"] = 0.25; }).rot_dim, 8);
}

TEST_F(HfConfigTest, WindowsFollowTheArchitecture) {
  auto qwen = [](Json& json) {
    json["model_type"] = "qwen2";
    json["sliding_window"] = 64;
  };
  auto mistral = [](Json& json) {
    json["model_type"] = "mistral";
    json["sliding_window"] = 64;
  };
  EXPECT_EQ(read_with(mistral).sliding_window, 64);
  EXPECT_EQ(read_with(qwen).sliding_window, 0);
  EXPECT_EQ(read_with([&](Json& json) {
              qwen(json), json["use_sliding_window"] = true, json["max_window_layers"] = 0;
            }).sliding_window,
            64);
  EXPECT_EQ(read_with([&](Json& json) {
              qwen(json), json["use_sliding_window"] = true, json["max_window_layers"] = 28;
            }).sliding_window,
            0);
  const Config mixed =
      read_with([&](Json& json) { qwen(json), json["use_sliding_window"] = true, json["max_window_layers"] = 1; });
  EXPECT_EQ(mixed.layer(0).window, 0);
  EXPECT_EQ(mixed.layer(1).window, 64);
  const Json full = "full_attention", sliding = "sliding_attention";
  EXPECT_EQ(read_with([&](Json& json) { mistral(json), json["layer_types"] = {full, full}; }).sliding_window, 0);
  EXPECT_EQ(read_with([&](Json& json) { qwen(json), json["layer_types"] = {sliding, sliding}; }).sliding_window, 64);
  EXPECT_EQ(read_with([&](Json& json) { mistral(json), json["layer_types"] = {full, sliding}; }).layer(0).window, 0);
  EXPECT_EQ(read_with([&](Json& json) { mistral(json), json["layer_types"] = {sliding, full}; }).layer(0).window, 64);
  EXPECT_NE(complaint([&](Json& json) {
              json["layer_types"] = {full, sliding};
            }).find("sliding_window"),
            std::string::npos);
  for (const Json& bad : {Json({full}), Json({full, full, full}), Json({full, "linear_attention"}),
                          Json({full, "chunked_attention"}), Json({1, 2}), Json("full_attention")})
    expect_refused("layer_types", bad);  // S18
}

TEST_F(HfConfigTest, WhatIsNotSupportedIsNamed) {  // S22
  for (const char* method : {"bitsandbytes", "hqq", "torchao"})
    expect_refused("quantization_config", {{"quant_method", method}}, method);
  expect_refused("quantization_config", {{"quant_method", "aqlm"}}, "unquantized checkpoint");
  expect_refused("quantization", {{"group_size", 64}, {"bits", 7}}, "bits");
  EXPECT_EQ(read_with([](Json& json) { json["quantization_config"] = nullptr; }).n_layers, 2);
  expect_refused("hidden_act", "gelu");
  expect_refused("model_type", "mamba\x1b[2J", "supported are llama, mistral, mixtral, qwen2");
  EXPECT_EQ(read_with([](Json& json) {
              json["auto_map"] = {{"AutoModel", "evil.py"}};
            }).n_layers,
            2);  // S20: not followed
}

// OLMo 3 scales the rope of its full-attention layers. In EXAONE 4, only layers with a window have rope, if there are
// such layers.
TEST_F(HfConfigTest, RopeFollowsTheWindow) {
  auto ropes = [&](const char* type, const Edit& edit) {
    const Config c = read_with([&](Json& json) {
      json["model_type"] = type;
      json["num_hidden_layers"] = 5;
      edit(json);
    });
    std::string out;
    for (const LayerConfig& layer : c.layers)
      out += layer.rope == LayerRope::kNone ? '-' : layer.rope == LayerRope::kLocal ? 'l' : 'm';
    return std::pair(out, c.local_theta);
  };
  EXPECT_EQ(ropes("olmo3", [](Json& json) { json["sliding_window"] = 16; }), std::pair(std::string("lllml"), 20000.0f));
  EXPECT_EQ(ropes("olmo2", [](Json& json) { json["sliding_window"] = nullptr; }),
            std::pair(std::string("mmmmm"), 0.0f));
  EXPECT_EQ(ropes("exaone4", [](Json& json) { json["sliding_window"] = 16; }).first, "mmm-m");
  EXPECT_EQ(ropes("exaone4", [](Json& json) { json["sliding_window"] = nullptr; }).first, "mmmmm");
  const Json full = "full_attention", sliding = "sliding_attention";
  EXPECT_EQ(ropes("exaone4", [&](Json& json) {
    json["sliding_window"] = 16;
    json["sliding_window_pattern"] = "LLLG";  // a word next to the list
    json["layer_types"] = {sliding, full, sliding, sliding, full};
  }).first, "m-mm-");
  expect_refused("sliding_window_pattern", "LLLG");
}

TEST_F(HfConfigTest, WhichLayersAreDense) {
  auto experts = [&](const Json& types) {
    const Config c = read_with([&](Json& json) {
      json["n_routed_experts"] = 4, json["num_experts_per_tok"] = 2, json["first_k_dense_replace"] = 1;
      json["mlp_layer_types"] = types;
    });
    return std::pair(c.layer(0).has(kExpertsPart), c.layer(1).has(kExpertsPart));
  };
  EXPECT_EQ(experts(nullptr), std::pair(false, true));
  EXPECT_EQ(experts({"sparse", "sparse"}), std::pair(true, true));
  EXPECT_EQ(experts({"sparse", "dense"}), std::pair(true, false));
  for (const Json& bad : {Json({"sparse"}), Json({"sparse", "moe"}), Json({1, 2}), Json("sparse")})
    expect_refused("mlp_layer_types", bad);
}

TEST_F(HfConfigTest, HowMuchOfAHeadTurns) {
  EXPECT_EQ(read_with([](Json& json) { json["rotary_dim"] = 8; }).rot_dim, 8);
  EXPECT_EQ(read_with([](Json& json) { json["rotary_dim"] = 8, json["partial_rotary_factor"] = 0.5; }).rot_dim, 16);
  for (const Json& bad : {Json(0), Json(64), Json("8"), Json(7)})
    expect_refused(bad == 7 ? "partial_rotary_factor" : "rotary_dim", bad);
  expect_refused("clip_qkv", 8.0);
}

TEST_F(HfConfigTest, EndsComeFromBothFiles) {
  auto ends = [&] { return read_hf_ends(HfDirectory(copy_.path().string())); };
  EXPECT_EQ(ends(), (std::vector<int64_t>{260, 259}));
  fs::remove(copy_.path() / "generation_config.json");
  EXPECT_EQ(ends(), (std::vector<int64_t>{260}));
  copy_.edit("config.json", [](Json& json) { json["eos_token_id"] = {7, 8, 7}; });
  EXPECT_EQ(ends(), (std::vector<int64_t>{7, 8}));
  copy_.edit("config.json", [](Json& json) { json["text_config"] = {{"eos_token_id", 9}}; });
  EXPECT_EQ(ends(), (std::vector<int64_t>{7, 8, 9}));
  for (const Json& bad : {Json(-5), Json({1, "2"}), Json("</s>"), Json(1.5)}) {
    copy_.edit("config.json", [&](Json& json) { json["eos_token_id"] = bad; });
    EXPECT_THROW(ends(), Error) << bad;
  }
}

// The message for a config.json of a golden directory with another value of a key, or ""; `rope`: in rope_parameters.
std::string refusal(const char* golden, const char* key, const Json& value, bool rope = false) {
  HfCopy copy(golden);
  copy.edit("config.json", [&](Json& json) { (rope ? json["rope_parameters"] : json)[key] = value; });
  try {
    config_from_hf(read_hf_config_of(HfDirectory(copy.path().string())));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(HfFamilyConfig, BadKeysAreNamed) {
  const auto expect = [](const std::string& message, const char* key, const char* what) {
    EXPECT_NE(message.find(std::string("config.json: '") + key), std::string::npos) << message;
    EXPECT_NE(message.find(what), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  };
  // Layers 0 to 3: with a window, without, with, without.
  expect(refusal("gemma4_e", "num_kv_shared_layers", 4), "num_kv_shared_layers", "4");
  expect(refusal("gemma4_e", "num_kv_shared_layers", 3), "num_kv_shared_layers", "layer 1 has no earlier layer");
  expect(refusal("gemma4_e", "layer_types", {"full_attention"}), "layer_types", "1 elements for 4 layers");
  expect(refusal("gemma4_e", "per_layer_config", {{"7", {{"head_dim", 8}}}}), "per_layer_config", "'7' is no layer");
  expect(refusal("gemma4_e", "per_layer_config", {{"1", {{"sliding_window", 8}}}}), "per_layer_config",
         "not supported");
  expect(refusal("gemma4_e", "per_layer_config", {{"1", {{"num_key_value_heads", 3}}}}), "num_attention_heads",
         "layer 1");
  expect(refusal("gemma4_e", "vocab_size_per_layer_input", 9), "vocab_size_per_layer_input", "9");
  expect(refusal("gemma3n", "intermediate_size", {24, 24, 24}), "intermediate_size", "3 elements for 4 layers");
  expect(refusal("gemma3n", "intermediate_size", {24, 24, 24, 24, 24}), "intermediate_size", "more elements than");
  expect(refusal("gemma3n", "intermediate_size", {24, 24, 0, 24}), "intermediate_size", "0");
  expect(refusal("gemma3n", "altup_active_idx", 1), "altup_active_idx", "stream 0");
  expect(refusal("gemma3n", "altup_active_idx", 4), "altup_active_idx", "4");
  expect(refusal("gemma3n", "altup_num_inputs", 9), "altup_num_inputs", "9");
  expect(refusal("gemma3n", "activation_sparsity_pattern", {0.5, 0.5}), "activation_sparsity_pattern",
         "2 elements for 4 layers");
  expect(refusal("gemma3n", "activation_sparsity_pattern", {0.5, 0.5, 1.0, 0.0}), "activation_sparsity_pattern",
         "1 is out of range");
  expect(refusal("gemma3n", "vocab_size_per_layer_input", 260), "vocab_size_per_layer_input", "260");
  expect(refusal("cohere2_moe", "expert_selection_fn", "sinkhorn"), "expert_selection_fn", "sinkhorn");
  expect(refusal("cohere2_moe", "shared_expert_combination_strategy", "max"), "shared_expert_combination_strategy",
         "max");
  expect(refusal("laguna", "num_attention_heads_per_layer", {4, 4}), "num_attention_heads_per_layer",
         "2 elements for 3");
  expect(refusal("laguna", "moe_router_logit_softcapping", 5.0), "moe_router_logit_softcapping", "not supported");
  expect(refusal("laguna", "moe_apply_router_weight_on_input", true), "moe_apply_router_weight_on_input",
         "not supported");
  expect(refusal("muse_glimmer", "layer_rope_theta", {1e4}), "layer_rope_theta", "1 elements for 4 layers");
  expect(refusal("llama4", "moe_layers", {0, 1, 2, 3, 1}), "moe_layers", "more elements than the model's 4 layers");
  expect(refusal("glm4", "mrope_section", {1, 1, 2}, true), "mrope_section", "adds up to 4: expected 3");
}

TEST(HfFamilyConfig, PerLayerKeysReplaceTheGlobalOnes) {
  HfCopy copy("gemma4_moe");
  const auto read = [&] { return config_from_hf(read_hf_config_of(HfDirectory(copy.path().string()))); };
  const Config listed = read();
  copy.edit("config.json", [](Json& json) {  // the keys of published files
    json.erase("per_layer_config");
    json["global_head_dim"] = 24, json["num_global_key_value_heads"] = 1;
  });
  const Config global = read();
  for (const Config* c : {&listed, &global}) {
    EXPECT_EQ(c->head_dim, 24);
    EXPECT_EQ(c->n_kv_heads, 1);
    EXPECT_EQ(c->layers[0].heads, (LayerHeads{4, 2, 12}));
    EXPECT_EQ(c->layers[1].heads, std::nullopt);
    EXPECT_EQ(c->local_rot_dim, 12);
  }
}

TEST(HfDeltaConfig, LayersAndBadKeys) {
  const HfCopy copy("qwen35");
  const std::string before = copy.read("config.json");
  const auto complaint = [&](const Edit& edit, Config* config = nullptr) -> std::string {
    copy.write("config.json", before);
    copy.edit("config.json", edit);
    try {
      const Config read = config_from_hf(read_hf_config_of(HfDirectory(copy.path().string())));
      if (config != nullptr) *config = read;
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  Config c;
  ASSERT_EQ(complaint([](Json& json) { json["layer_types"] = nullptr; }, &c), "");  // all but every fourth
  EXPECT_EQ(c.n_recurrent_layers(), 3);
  EXPECT_FALSE(keeps_states(c, 3));
  ASSERT_EQ(complaint([](Json& json) { json["layer_types"] = nullptr, json["full_attention_interval"] = 2; }, &c), "");
  EXPECT_EQ(c.n_recurrent_layers(), 2);
  ASSERT_EQ(complaint([](Json& json) { json["rope_parameters"].erase("partial_rotary_factor"); }, &c), "");
  EXPECT_EQ(c.rot_dim, c.head_dim / 4);
  for (const char* key : {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
                          "linear_value_head_dim", "linear_conv_kernel_dim"}) {
    EXPECT_NE(complaint([&](Json& json) { json[key] = nullptr; }).find(key), std::string::npos) << key;
    for (const Json& value : {Json(0), Json(1 << 30), Json("4"), Json(-1)})
      EXPECT_NE(complaint([&](Json& json) { json[key] = value; }).find(key), std::string::npos) << key << " " << value;
  }
  EXPECT_NE(complaint([](Json& json) {
              json["linear_num_value_heads"] = 5;
            }).find("not a multiple of linear_num_key_heads 2"),
            std::string::npos);
  const std::string qwen = complaint([](Json& json) { json["model_type"] = "qwen3"; });
  EXPECT_NE(qwen.find("have no linear_attention"), std::string::npos) << qwen;
  EXPECT_EQ(complaint([](Json& json) { json["model_type"] = "llama"; }, &c), "");  // all its layers are equal
  EXPECT_EQ(c.n_recurrent_layers(), 0);
}

}  // namespace
}  // namespace ingot
