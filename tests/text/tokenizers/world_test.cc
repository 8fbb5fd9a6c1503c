// The tokenizer of RWKV's World models. Ids of many texts are in tokenizer_golden_test.cc.
#include "text/tokenizers/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "test_seed.h"
#include "text/tokenizers/tokenizer_specs.h"

namespace ingot {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::world_spec;

TEST(World, TakesTheLongestToken) {
  const auto tokenizer = Tokenizer::create(world_spec()->view());
  EXPECT_THAT(tokenizer->encode("abcab\n\n\na"), ElementsAre(258, 257, 259, 11, 98));
  EXPECT_FALSE(tokenizer->add_bos());
  EXPECT_FALSE(tokenizer->add_space_prefix());
  EXPECT_EQ(tokenizer->token_bytes(259), "\n\n");
  EXPECT_EQ(tokenizer->token_text(259), "\\n\\n");
}

TEST(World, KeepsAnyBytes) {
  const auto tokenizer = Tokenizer::create(world_spec()->view());
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 50; ++round) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += static_cast<char>(random());
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

// A user's text never becomes a control token, or padding of the vocabulary.
TEST(World, TextMakesNoControlToken) {
  auto owned = world_spec();
  testing::add_token(*owned, "[PAD260]", TokenType::kUnused);
  const auto tokenizer = Tokenizer::create(owned->view());
  EXPECT_THAT(tokenizer->encode("<s>"), ElementsAre('<' + 1, 's' + 1, '>' + 1));
  EXPECT_EQ(tokenizer->encode("[PAD260]").size(), 8u);
  EXPECT_THAT(tokenizer->encode("<s>", {.parse_special = true}), ElementsAre(0));
}

TEST(World, SpellsBytesAsPythonDoes) {
  EXPECT_EQ(unescape_token(R"(a\t\n\r\x00\xfF\\\')"), std::string("a\t\n\r\0\xFF\\'", 8));
  for (const char* cut : {R"(\)", R"(a\x)", R"(\x1)", R"(\xg0)", R"(\x0g)"}) EXPECT_FALSE(unescape_token(cut)) << cut;
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(unescape_token(escape_token(all)), all);
  EXPECT_EQ(escape_token("it's"), "it's");
  EXPECT_EQ(escape_token("'\""), "\\'\"");
}

std::string refusal_of_world(const testing::OwnedSpec& owned) {
  try {
    Tokenizer::create(owned.view());
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(World, RefusesBadVocabularies) {
  auto owned = world_spec();
  owned->tokens[258] = R"(ab\x)";
  EXPECT_THAT(refusal_of_world(*owned), HasSubstr("has an escape that is not complete"));
  EXPECT_THAT(refusal_of_world(*owned), HasSubstr("token 258"));
  owned = world_spec();
  owned->tokens[258] = std::string(kMaxWorldTokenBytes + 1, 'a');
  EXPECT_THAT(refusal_of_world(*owned), HasSubstr("token 258 has 1025 bytes; at most 1024 are supported"));
  owned = world_spec();
  owned->tokens[8] = "abab";
  EXPECT_THAT(refusal_of_world(*owned), HasSubstr("no token for the byte 0x07, and no unknown token"));
  owned->spec.unk = 0;
  EXPECT_EQ(refusal_of_world(*owned), "");
  EXPECT_THAT(Tokenizer::create(owned->view())->encode("a\x07"), ElementsAre(98, 0));
}

}  // namespace
}  // namespace ingot
