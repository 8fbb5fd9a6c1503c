// A model can be a directory as well as a file. Loading and `ingot inspect` support both.
#include "model/files/checkpoint.h"

#include <gmock/gmock.h>

#include "model/config/multipliers.h"
#include "model/hf_models.h"
#include "model/loader.h"

namespace ingot {
namespace {

using testing::HasSubstr;

std::string refusal_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Checkpoint, DirectoriesAndFilesSayTheSame) {
  for (const std::string& name : hf_names()) {
    const auto hf = open_checkpoint((kHfModels / name).string()),
               gguf = open_checkpoint((kModels / (name + ".gguf")).string());
    const CheckpointFacts a = hf->facts(), b = gguf->facts();
    EXPECT_EQ(a.container, "Hugging Face directory");
    EXPECT_EQ(b.container, "GGUF version 3");
    EXPECT_EQ(a.name, name);
    int64_t n_hf = 0, n_gguf = 0;
    for (const auto& t : a.tensors)  // GGUF files have the numbers of activations as keys
      if (t.name.find(".act_fn.") == t.name.npos) n_hf += t.n_elements;
    const bool adds_norms = name == "muse_glimmer";  // of queries and keys, without a weight in directories
    const bool adds_values = name == "rwkv7";        // for the first layer, which has none to mix
    const auto is_added = [&](const std::string& tensor) {
      if (adds_norms) return tensor.ends_with("_q_norm.weight") || tensor.ends_with("_k_norm.weight");
      return adds_values && tensor.starts_with("blk.0.time_mix_v") && !tensor.ends_with("_value.weight");
    };
    for (const auto& t : b.tensors)
      if (!t.name.starts_with("rope_") && !is_added(t.name)) n_gguf += t.n_elements;
    EXPECT_EQ(n_hf, n_gguf) << name;
    EXPECT_TRUE(hf->has_tokenizer());
    EXPECT_FALSE(a.metadata.empty());
    const Config c = hf->config(), d = gguf->config();
    EXPECT_EQ(c.rope_theta, d.rope_theta);
    EXPECT_EQ(c.sliding_window, d.sliding_window);
    EXPECT_EQ(c.n_ctx_train, d.n_ctx_train);
    EXPECT_FLOAT_EQ(c.rope_scaling.magnitude, d.rope_scaling.magnitude);
    ASSERT_EQ(c.layers.size(), d.layers.size());
    for (size_t i = 0; i < c.layers.size(); ++i) {
      EXPECT_EQ(c.layers[i].window, d.layers[i].window) << name << " " << i;
      EXPECT_EQ(c.layers[i].rope, d.layers[i].rope) << name << " " << i;
      EXPECT_EQ(c.layers[i].parts, d.layers[i].parts) << name << " " << i;
    }
    EXPECT_EQ(c.experts.shared_dim, d.experts.shared_dim) << name;
    if (!adds_norms) {
      EXPECT_FLOAT_EQ(c.score_scale(), d.score_scale()) << name;
    }
    if (!c.part<Multipliers>().are_folded) {
      EXPECT_FLOAT_EQ(c.embedding_scale, d.embedding_scale) << name;
    }
  }
}

TEST(Checkpoint, MoreTokensThanTheEmbeddingHasRowsAreRefused) {  // G24, S19
  const HfCopy copy("qwen2");
  copy.edit("tokenizer.json", [](auto& json) {
    json["added_tokens"].push_back({{"id", 265}, {"content", "<|more|>"}, {"special", true}});
  });
  const std::string message =
      refusal_of([&] { load_model(open_checkpoint(copy.path().string()), {.backend = {.device = "ref"}}, nullptr); });
  EXPECT_THAT(message, HasSubstr("the tokenizer has 266 tokens, but the embedding has only 265 rows"));
}

TEST(Checkpoint, LoadsAndChats) {
  const LoadedModel model =
      load_model(open_checkpoint((kHfModels / "qwen2").string()), {.backend = {.device = "ref"}}, nullptr);
  ASSERT_TRUE(model.chat);
  const auto messages = nlohmann::ordered_json::parse(R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(model.chat->render(messages, nullptr, false, nlohmann::ordered_json::object()), "<|bos|>user: hi<|eos|>");
  EXPECT_TRUE(model.tokenizer->is_end(264));
  EXPECT_TRUE(model.tokenizer->is_end(263)) << "from generation_config.json";
  EXPECT_FALSE(model.tokenizer->is_end(262));
}

TEST(Checkpoint, ChatTemplatesHaveAnOrder) {
  const HfCopy copy("llama");
  const auto checkpoint = hf_checkpoint(copy.path().string());
  EXPECT_THAT(*checkpoint->chat_template(), HasSubstr("for m in messages"));
  copy.edit("tokenizer_config.json", [](auto& json) { json["chat_template"] = "config"; });
  copy.write("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_THAT(*checkpoint->chat_template(), HasSubstr("for m in messages"));
  fs::remove(copy.path() / "chat_template.jinja");
  EXPECT_EQ(*checkpoint->chat_template(), "json");
  fs::remove(copy.path() / "chat_template.json");
  EXPECT_EQ(*checkpoint->chat_template(), "config");
  copy.edit("tokenizer_config.json", [](auto& json) {
    json["chat_template"] = {{{"name", "rag"}, {"template", "x"}}, {{"name", "default"}, {"template", "several"}}};
  });
  EXPECT_EQ(*checkpoint->chat_template(), "several");
  copy.edit("tokenizer_config.json", [](auto& json) { json.erase("chat_template"); });
  EXPECT_FALSE(checkpoint->chat_template());
}

TEST(Checkpoint, OtherPathsAreRefused) {
  EXPECT_THAT(refusal_of([] { open_checkpoint(testing::TempDir()); }),
              HasSubstr("is a directory without a config.json: give"));
  EXPECT_THAT(refusal_of([] { open_checkpoint((kHfModels / "llama" / "model.safetensors").string()); }),
              HasSubstr("give its directory"));
  const HfCopy copy("llama");
  fs::remove(copy.path() / "tokenizer.json");
  EXPECT_THAT(
      refusal_of([&] { load_model(open_checkpoint(copy.path().string()), {.backend = {.device = "ref"}}, nullptr); }),
      HasSubstr("tokenizer.json: is missing"));
}

TEST(Checkpoint, TokenizersOfModelsThatDoNotRunAreRead) {
  const HfCopy copy("llama");
  copy.edit("config.json", [](auto& json) { json["quantization_config"] = {{"quant_method", "hqq"}}; });
  const auto checkpoint = open_checkpoint(copy.path().string());
  EXPECT_THAT(refusal_of([&] { checkpoint->config(); }), HasSubstr("'hqq'"));
  EXPECT_EQ(checkpoint->tokenizer()->n_vocab(), 261);
}

TEST(Checkpoint, VocabularyMustFitTheEmbedding) {
  const HfCopy copy("llama");
  copy.edit("tokenizer.json", [](auto& json) { json["added_tokens"].push_back({{"id", 261}, {"content", "<more>"}}); });
  EXPECT_THAT(
      refusal_of([&] { load_model(open_checkpoint(copy.path().string()), {.backend = {.device = "ref"}}, nullptr); }),
      HasSubstr("the tokenizer has 262 tokens, but the embedding has only 261 rows"));
}

}  // namespace
}  // namespace ingot
