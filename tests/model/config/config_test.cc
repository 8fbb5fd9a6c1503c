// Every required key: missing, of the wrong type, and out of range. Each case gives an Error that names the key
// (bad-input rows G17 to G23).
#include "model/config/config.h"
#include "model/config/kind.h"
#include "model/layers/delta_net.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "io/gguf/gguf.h"
#include "io/gguf/writer.h"

namespace ingot {
namespace {

using WriterEdit = std::function<void(GgufWriter&)>;

// The keys of a small llama model, without `skip`, and changed by `edit`.
std::vector<uint8_t> model_bytes(const std::string& skip, const WriterEdit& edit) {
  GgufWriter writer;
  auto set = [&](const char* key, auto value) {
    if (skip != key) writer.set(key, value);
  };
  set("general.architecture", std::string("llama"));
  set("llama.block_count", uint32_t{2});
  set("llama.context_length", uint32_t{128});
  set("llama.embedding_length", uint32_t{64});
  set("llama.feed_forward_length", uint32_t{96});
  set("llama.attention.head_count", uint32_t{4});
  set("llama.attention.head_count_kv", uint32_t{2});
  set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  if (edit) edit(writer);
  if (skip != "token_embd.weight") writer.add_tensor("token_embd.weight", 0, {64, 3}, std::vector<uint8_t>(64 * 3 * 4));
  return writer.to_bytes();
}

Config read(const std::vector<uint8_t>& bytes) { return config_from_gguf(Gguf::parse(bytes, "test.gguf")); }

std::string key_complaint(const std::string& skip, const WriterEdit& edit) {
  try {
    read(model_bytes(skip, edit));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Config, ReadsWhatIsThere) {
  const Config c = read(model_bytes("", [](GgufWriter& w) { w.set("llama.rope.freq_base", 5e5f); }));
  EXPECT_EQ(c.n_layers, 2);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.q_dim(), 64);
  EXPECT_EQ(c.kv_dim(), 32);
  EXPECT_EQ(c.rot_dim, 16);
  EXPECT_EQ(c.n_vocab, 3);
  EXPECT_FLOAT_EQ(c.rope_theta, 5e5f);
  EXPECT_EQ(c.rope_layout, RopeLayout::kInterleaved);
}

TEST(Config, RefusesTensorsOfMoreLayers) {
  const auto with = [](const char* tensor, uint32_t n_draft) {
    return key_complaint("", [&](GgufWriter& w) {
      w.set("llama.block_count", uint32_t{3});
      w.set("llama.nextn_predict_layers", n_draft);
      w.add_tensor(tensor, 0, {64}, std::vector<uint8_t>(64 * 4));
    });
  };
  EXPECT_EQ(with("blk.2.attn_norm.weight", 0), "");
  EXPECT_EQ(with("blk.2.attn_norm.weight", 1), "") << "a layer that drafts tokens";
  EXPECT_EQ(with("output_norm.weight", 0), "");
  for (const char* tensor : {"blk.3.attn_norm.weight", "blk.17.attn_norm.weight", "blk.99999.attn_norm.weight"})
    EXPECT_NE(with(tensor, 0).find(fmt::format("test.gguf: tensor '{}' belongs to layer", tensor)), std::string::npos);
}

// A model whose layers are gated delta nets, except for every fourth.
std::string delta_complaint(const std::string& skip, const WriterEdit& edit, Config* read_config = nullptr) {
  GgufWriter w;
  const auto set = [&](const char* key, auto value) {
    if (skip != key) w.set(std::string("qwen35.") + key, value);
  };
  w.set("general.architecture", std::string("qwen35"));
  for (const auto& [key, value] : {std::pair{"block_count", 6u},
                                   {"context_length", 128u},
                                   {"embedding_length", 64u},
                                   {"feed_forward_length", 96u},
                                   {"attention.head_count", 4u},
                                   {"attention.head_count_kv", 2u},
                                   {"ssm.group_count", 2u},
                                   {"ssm.time_step_rank", 6u},
                                   {"ssm.state_size", 24u},
                                   {"ssm.inner_size", 120u},
                                   {"ssm.conv_kernel", 4u}})
    set(key, uint32_t{value});
  set("attention.layer_norm_rms_epsilon", 1e-5f);
  if (edit) edit(w);
  w.add_tensor("token_embd.weight", 0, {64, 3}, std::vector<uint8_t>(64 * 3 * 4));
  try {
    const Config c = read(w.to_bytes());
    if (read_config != nullptr) *read_config = c;
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Config, GatedDeltaNets) {
  Config c;
  ASSERT_EQ(delta_complaint("", nullptr, &c), "");
  EXPECT_EQ(c.part<DeltaConfig>().value_dim, 20);
  EXPECT_EQ(c.part<DeltaConfig>().n_channels(), 2 * 48 + 120);
  EXPECT_TRUE(c.part<DeltaConfig>().tiled);
  EXPECT_EQ(c.n_recurrent_layers(), 5);
  EXPECT_FALSE(keeps_states(c, 3));
  delta_complaint("", [](GgufWriter& w) { w.set("qwen35.full_attention_interval", uint32_t{3}); }, &c);
  EXPECT_EQ(c.n_recurrent_layers(), 4);
  delta_complaint(
      "",
      [](GgufWriter& w) {
        w.set("qwen35.attention.recurrent_layers", std::vector<bool>{true, false, true, false, false, false});
      },
      &c);
  EXPECT_EQ(c.n_recurrent_layers(), 2);
  EXPECT_TRUE(keeps_states(c, 2));
  delta_complaint(
      "", [](GgufWriter& w) { w.set("qwen35.nextn_predict_layers", uint32_t{1}); },
      &c);  // a layer that only drafts tokens
  EXPECT_EQ(c.n_layers, 5);
}

TEST(Config, GatedDeltaNetsRefuseBadKeys) {
  for (const char* key :
       {"ssm.group_count", "ssm.time_step_rank", "ssm.state_size", "ssm.inner_size", "ssm.conv_kernel"}) {
    EXPECT_NE(delta_complaint(key, nullptr).find(key), std::string::npos) << key;
    for (const uint32_t value : {0u, 0xFFFFFFFFu}) {
      const std::string message =
          delta_complaint(key, [&](GgufWriter& w) { w.set(std::string("qwen35.") + key, value); });
      EXPECT_NE(message.find(key), std::string::npos) << key << " = " << value << ": " << message;
      EXPECT_NE(message.find("out of range"), std::string::npos) << message;
    }
  }
  EXPECT_NE(delta_complaint("", [](GgufWriter& w) { w.set("qwen35.ssm.time_step_rank", uint32_t{5}); })
                .find("not a multiple of ssm.group_count 2"),
            std::string::npos);
  EXPECT_NE(delta_complaint("", [](GgufWriter& w) { w.set("qwen35.ssm.inner_size", uint32_t{121}); })
                .find("not a multiple of ssm.time_step_rank 6"),
            std::string::npos);
  EXPECT_NE(delta_complaint("", [](GgufWriter& w) { w.set("qwen35.full_attention_interval", uint32_t{0}); })
                .find("full_attention_interval"),
            std::string::npos);
  EXPECT_NE(delta_complaint("", [](GgufWriter& w) { w.set("qwen35.nextn_predict_layers", uint32_t{6}); })
                .find("nextn_predict_layers"),
            std::string::npos);
}

// Lists with a number for each layer, where all layers are equal. In Ollama's hybrids, recurrent layers have no heads
// (0).
TEST(Config, ListsForLayers) {
  using List = std::vector<uint32_t>;
  const Config same = read(model_bytes("", [](GgufWriter& w) {
    w.set("llama.attention.head_count", List{4, 4});
    w.set("llama.attention.head_count_kv", List{1, 1});
    w.set("llama.feed_forward_length", List{40, 40});
  }));
  EXPECT_EQ(same.n_heads, 4);
  EXPECT_EQ(same.n_kv_heads, 1);
  EXPECT_EQ(same.ffn_dim, 40);
  const std::pair<const char*, List> bad[] = {{"attention.head_count_kv", {2, 0}},
                                              {"attention.head_count_kv", {0, 0}}, {"attention.head_count", {4, 4, 4}},
                                              {"attention.head_count_kv", {}}};
  for (const auto& [key, list] : bad) {
    const std::string message =
        key_complaint("", [&, key = key, list = list](GgufWriter& w) { w.set(std::string("llama.") + key, list); });
    EXPECT_NE(message.find(key), std::string::npos) << key << ": " << message;
  }
  const Config differ = read(model_bytes("", [](GgufWriter& w) {
    w.set("llama.attention.head_count_kv", List{2, 1});
    w.set("llama.feed_forward_length", List{96, 64});
  }));
  EXPECT_EQ(differ.n_kv_heads, 1);
  EXPECT_EQ(differ.layers[0].heads, (LayerHeads{differ.n_heads, 2, differ.head_dim}));
  EXPECT_EQ(differ.layers[1].heads, std::nullopt);
  EXPECT_EQ(differ.ffn_dim, 96);
  EXPECT_EQ(differ.layers[1].ffn_dim, 64);
  const std::pair<const char*, uint32_t> shared[] = {{"attention.shared_kv_layers", 2},
                                                     {"rope.dimension_count_swa", 3}};
  for (const auto& [key, value] : shared) {
    const std::string message =
        key_complaint("", [&, key = key, value = value](GgufWriter& w) { w.set(std::string("llama.") + key, value); });
    EXPECT_NE(message.find(key), std::string::npos) << key << ": " << message;
  }
  Config c;
  ASSERT_EQ(delta_complaint(
                "",
                [](GgufWriter& w) {
                  w.set("qwen35.attention.head_count_kv", List{0, 2, 2, 0, 0, 0});
                },
                &c),
            "");
  EXPECT_EQ(c.n_kv_heads, 2);
  EXPECT_EQ(c.n_recurrent_layers(), 4);
  EXPECT_TRUE(keeps_states(c, 0));
  EXPECT_FALSE(keeps_states(c, 1));
  for (const List& list : {List{0, 2, 1, 0, 0, 0}, List{0, 0, 0, 0, 0, 0}, List{2, 0}})
    EXPECT_NE(delta_complaint("", [&](GgufWriter& w) { w.set("qwen35.attention.head_count_kv", list); })
                  .find("attention.head_count_kv"),
              std::string::npos);
}

TEST(Config, DefaultsKvHeadsToHeads) {
  EXPECT_EQ(read(model_bytes("llama.attention.head_count_kv", nullptr)).n_kv_heads, 4);
}

TEST(Config, NamesTheMissingKey) {
  for (const char* key : {"general.architecture", "llama.block_count", "llama.context_length", "llama.embedding_length",
                          "llama.feed_forward_length", "llama.attention.head_count",
                          "llama.attention.layer_norm_rms_epsilon", "token_embd.weight"}) {
    const std::string message = key_complaint(key, nullptr);
    EXPECT_NE(message.find(key), std::string::npos) << key << ": " << message;
    EXPECT_NE(message.find("missing"), std::string::npos) << key << ": " << message;
    EXPECT_NE(message.find("test.gguf"), std::string::npos) << message;
  }
}

struct BadValue {
  const char* key;
  WriterEdit edit;
};

TEST(Config, RefusesBadValuesByKey) {
  auto set = [](const char* key, auto value) { return BadValue{key, [=](GgufWriter& w) { w.set(key, value); }}; };
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const BadValue cases[] = {
      set("llama.block_count", uint32_t{0}),
      set("llama.block_count", uint32_t{1025}),
      set("llama.block_count", uint32_t{1} << 31),
      set("llama.block_count", std::numeric_limits<uint32_t>::max()),
      set("llama.block_count", std::string("two")),
      set("llama.block_count", int32_t{-1}),
      set("llama.block_count", uint64_t{1} << 33),
      set("llama.block_count", 2.0f),
      set("llama.block_count", true),
      set("llama.block_count", std::vector<uint32_t>{2}),
      set("llama.embedding_length", uint32_t{0}),
      set("llama.embedding_length", uint32_t{66}),  // not a multiple of 4 heads
      set("llama.attention.head_count", uint32_t{0}),
      set("llama.attention.head_count_kv", uint32_t{0}),
      set("llama.attention.head_count_kv", uint32_t{8}),
      set("llama.attention.key_length", uint32_t{0}),
      set("llama.attention.value_length", uint32_t{8}),
      set("llama.feed_forward_length", uint32_t{0}),
      set("llama.context_length", uint32_t{0}),
      set("llama.context_length", uint64_t{1} << 40),
      set("llama.attention.layer_norm_rms_epsilon", nan),
      set("llama.attention.layer_norm_rms_epsilon", infinity),
      set("llama.attention.layer_norm_rms_epsilon", 0.0f),
      set("llama.attention.layer_norm_rms_epsilon", -1e-5f),
      set("llama.rope.freq_base", nan),
      set("llama.rope.freq_base", 0.0f),
      set("llama.rope.dimension_count", uint32_t{0}),
      set("llama.rope.dimension_count", uint32_t{7}),
      set("llama.rope.dimension_count", uint32_t{32}),
      set("llama.rope.scaling.type", std::string("quadratic")),
      set("llama.rope.scaling.type", uint32_t{1}),
      set("llama.attention.sliding_window", uint32_t{1} << 31),
      set("llama.attention.sliding_window_pattern", std::vector<bool>{true}),
      set("llama.attention.scale", 0.0f),
      set("llama.attn_logit_softcapping", -1.0f),
      set("llama.final_logit_softcapping", nan),
      set("llama.embedding_scale", 0.0f),
      set("llama.residual_scale", infinity),
      set("llama.logit_scale", 0.0f),
      set("llama.expert_count", uint32_t{1} << 20),
      set("llama.expert_count", std::vector<uint32_t>{8, 8}),
      set("llama.leading_dense_block_count", uint32_t{3}),
  };
  for (const BadValue& bad : cases) {
    const std::string message = key_complaint("", bad.edit);
    EXPECT_NE(message.find(bad.key), std::string::npos) << bad.key << ": " << message;
  }
}

TEST(Config, WindowsOfAnyWidth) {
  const auto window = [](uint32_t width) {
    return read(model_bytes("", [=](GgufWriter& w) { w.set("llama.attention.sliding_window", width); }))
        .layer(0)
        .window;
  };
  EXPECT_EQ(window(0), 0);  // none
  EXPECT_EQ(window(1), 1);
  EXPECT_EQ(window(1000), 1000);  // wider than the context, so each token sees all
}

// An architecture in which layers without a window have no rope. If no layer has a window, all layers have rope.
TEST(Config, RopeOfWindows) {
  const auto exaone = [](const WriterEdit& edit) {
    GgufWriter w;
    w.set("general.architecture", std::string("exaone4"));
    for (const auto& [key, value] : {std::pair{"block_count", 5u},
                                     {"context_length", 128u},
                                     {"embedding_length", 64u},
                                     {"feed_forward_length", 96u},
                                     {"attention.head_count", 4u}})
      w.set(std::string("exaone4.") + key, uint32_t{value});
    w.set("exaone4.attention.layer_norm_rms_epsilon", 1e-5f);
    edit(w);
    w.add_tensor("token_embd.weight", 0, {64, 3}, std::vector<uint8_t>(64 * 3 * 4));
    std::string ropes;
    const Config c = read(w.to_bytes());
    for (int i = 0; i < c.n_layers; ++i)
      ropes += c.layer(i).rope == LayerRope::kNone ? '-' : c.layer(i).window > 0 ? 'w' : 'r';
    return ropes;
  };
  EXPECT_EQ(exaone([](GgufWriter&) {}), "rrrrr");
  EXPECT_EQ(exaone([](GgufWriter& w) { w.set("exaone4.attention.sliding_window", uint32_t{16}); }), "www-w");
  EXPECT_EQ(exaone([](GgufWriter& w) {
    w.set("exaone4.attention.sliding_window", uint32_t{16});
    w.set("exaone4.attention.sliding_window_pattern", std::vector<bool>{false, true, true, false, true});
  }), "-ww-w");
}

TEST(Config, RefusesHeadsThatDoNotDivide) {
  const std::string message = key_complaint("", [](GgufWriter& w) {
    w.set("llama.embedding_length", uint32_t{60});
    w.set("llama.attention.head_count", uint32_t{5});
  });
  EXPECT_NE(message.find("attention.head_count"), std::string::npos) << message;
}

TEST(Config, RefusesABadScalingFactor) {
  for (float factor : {0.0f, -2.0f, std::numeric_limits<float>::quiet_NaN()}) {
    const std::string message = key_complaint("", [&](GgufWriter& w) {
      w.set("llama.rope.scaling.type", std::string("linear"));
      w.set("llama.rope.scaling.factor", factor);
    });
    EXPECT_NE(message.find("llama.rope.scaling.factor"), std::string::npos) << factor << ": " << message;
  }
}

TEST(Config, ExpertsAreChecked) {
  const auto experts = [](const WriterEdit& edit) {
    return key_complaint("", [=](GgufWriter& w) {
      w.set("llama.expert_count", uint32_t{8});
      w.set("llama.expert_used_count", uint32_t{2});
      edit(w);
    });
  };
  EXPECT_EQ(experts([](GgufWriter&) {}), "");
  auto refused = [&](const char* key, auto value) {
    const std::string message = experts([&](GgufWriter& w) { w.set(key, value); });
    EXPECT_NE(message.find(key), std::string::npos) << message;
  };
  refused("llama.expert_used_count", uint32_t{0});
  refused("llama.expert_used_count", uint32_t{9});
  refused("llama.expert_used_count", std::vector<uint32_t>{2, 0});
  refused("llama.expert_used_count", std::vector<uint32_t>{2});
  refused("llama.expert_feed_forward_length", uint32_t{0});
  refused("llama.expert_weights_scale", 0.0f);
  refused("llama.expert_weights_norm", std::string("yes"));
  refused("llama.expert_gating_func", uint32_t{9});
  refused("llama.expert_group_count", uint32_t{16});
  const std::string groups = experts([](GgufWriter& w) { w.set("llama.expert_group_count", uint32_t{3}); });
  EXPECT_NE(groups.find("expert_count"), std::string::npos) << groups;
  const std::string few = experts([](GgufWriter& w) {
    w.set("llama.expert_group_count", uint32_t{8});
    w.set("llama.expert_group_used_count", uint32_t{1});
  });
  EXPECT_NE(few.find("expert_group_used_count"), std::string::npos) << few;
}

TEST(Config, FilesOfOtherKindsAreNamed) {  // G43
  auto kind = [](const char* type) {
    return key_complaint("", [=](GgufWriter& w) { w.set("general.type", std::string(type)); });
  };
  EXPECT_NE(kind("adapter").find("LoRA"), std::string::npos);
  EXPECT_NE(kind("mmproj").find("projector"), std::string::npos);
  EXPECT_NE(kind("imatrix").find("importance matrix"), std::string::npos);
  EXPECT_EQ(kind("model"), "");
  EXPECT_NE(key_complaint("token_embd.weight", nullptr).find("holds a vocabulary"), std::string::npos);
}

TEST(Config, ListsSupportedArchitectures) {
  const std::string message =
      key_complaint("", [](GgufWriter& w) { w.set("general.architecture", std::string("mamba\x1b[2J")); });
  for (const Arch& arch : all_archs()) EXPECT_NE(message.find(arch.gguf_name), std::string::npos) << message;
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace ingot
