// The template of checkpoints that have Mistral's tokenizer and no template writes what mistral-common writes
// (tools/template_goldens/make_mistral.py).
#include <gtest/gtest.h>

#include "model/hf_models.h"
#include "model/loader.h"

namespace ingot {
namespace {

TEST(MistralTemplate, WritesWhatMistralCommonWrites) {
  const HfCopy copy("llama");
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    fs::remove(copy.path() / name);
  fs::copy(fs::path(INGOT_TEST_DATA) / "tokenizers" / "tekken" / "tekken.json", copy.path());
  const auto checkpoint = hf_checkpoint(copy.path().string());
  const auto tokenizer = checkpoint->tokenizer();
  const auto chat = load_chat_template(*checkpoint, *tokenizer);
  ASSERT_TRUE(chat);
  const auto cases =
      nlohmann::ordered_json::parse(read_file((fs::path(INGOT_TEST_DATA) / "templates" / "mistral_v7.json").string()));
  ASSERT_GE(cases.size(), 5u);
  for (const auto& one : cases)
    EXPECT_EQ(chat->render(one["messages"], one["tools"], true, nullptr), one["text"].get<std::string>());
}

}  // namespace
}  // namespace ingot
