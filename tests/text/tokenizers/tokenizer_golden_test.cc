// Encoding gives the ids of Hugging Face tokenizers and SentencePiece, for small vocabularies and many texts
// (tools/tokenizer_goldens/make.py), or those of
// the package rwkv (tools/goldens/make_rwkv.py). Decoding gives the text back.
#include <gtest/gtest.h>

#include "base/error.h"
#include "text/tokenizers/tokenizer_fixture.h"

namespace ingot {
namespace {

class TokenizerGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerGolden, EncodesLikeTheReference) {
  const auto json = testing::fixture(GetParam());
  const auto owned = testing::spec_from_json(json.at("spec"));
  const auto tokenizer = Tokenizer::create(owned->view());
  size_t n_compared = 0;
  auto check = [&](const char* texts_key, const char* ids_key, bool parse_special) {
    const auto texts = json.at(texts_key).get<std::vector<std::string>>();
    const auto expected = json.at(ids_key).get<std::vector<std::vector<int32_t>>>();
    ASSERT_EQ(texts.size(), expected.size());
    ASSERT_GT(texts.size(), 20u);
    n_compared += texts.size();
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto ids = tokenizer->encode(texts[i], {.add_special = false, .parse_special = parse_special});
      EXPECT_EQ(ids, expected[i]) << printable(texts[i]);
      std::string text = texts[i];
      if (tokenizer->model() == kSentencePieceBpe)  // SentencePiece treats U+2581 as a space
        for (size_t at; (at = text.find("\u2581")) != text.npos;) text.replace(at, 3, " ");
      EXPECT_EQ(tokenizer->decode(ids), text);
    }
  };
  check("texts", "ids", false);
  if (json.contains("special_texts")) check("special_texts", "special_ids", true);
  RecordProperty("compared", std::to_string(n_compared));  // for tools/models_table.py
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, TokenizerGolden,
                         ::testing::Values("bpe_gpt2", "bpe_llama3", "bpe_qwen2", "spm_llama", "spm_gemma", "rwkv"),
                         [](const auto& golden) { return std::string(golden.param); });

}  // namespace
}  // namespace ingot
