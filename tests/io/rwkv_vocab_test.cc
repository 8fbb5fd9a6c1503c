// Lists of tokens of RWKV's World models. tests/data/hf/rwkv7 has a whole one.
#include "io/huggingface/rwkv_vocab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace ingot {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(RwkvVocab, ReadsLiteralsOfPython) {
  const auto read = parse_rwkv_vocab(
      "1 '\\x00' 1\n2 b'\\xe4\\xb8' 2\n3 '\\x85' 2\r\n4 \"it's\" 4\n5 '\\u200b' 3\n6 '\\n\\n' 2\n7 ' a  b ' 6\n"
      "8 '\\U0001f600\\u00e9' 6",
      "file");
  EXPECT_THAT(read->spec.tokens, ElementsAre("<s>", R"(\x00)", R"(\xe4\xb8)", R"(\xc2\x85)", "it's", R"(\xe2\x80\x8b)",
                                             R"(\n\n)", " a  b ", R"(\xf0\x9f\x98\x80\xc3\xa9)"));
  EXPECT_EQ(read->spec.token_types[0], static_cast<int32_t>(TokenType::kControl));
  EXPECT_EQ(read->spec.model, kWorldModel);
  EXPECT_EQ(read->spec.eos, 0);
  EXPECT_EQ(read->spec.eot, 6);
}

std::string refusal_of_vocab(const std::string& text) {
  try {
    parse_rwkv_vocab(text, "file");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(RwkvVocab, RefusesBadLines) {
  EXPECT_EQ(refusal_of_vocab("1 'a' 1\n\n"), "file: line 2: expected an id, a token and its size");
  EXPECT_EQ(refusal_of_vocab("1 'a'"), "file: line 1: expected an id, a token and its size");
  EXPECT_EQ(refusal_of_vocab("2 'a' 1"), "file: line 1: the id is not 1");
  for (const char* bad : {"'a' 2", "'ab 2", "a' 1", R"('a\' 1)", R"('\q' 1)", R"('\x4' 1)", R"('\u12' 1)",
                          R"('\ud800' 3)", R"('\U00110000' 4)", "'a'b' 3", R"(b'\u0041' 1)", "'' 0", "'a' -1", "'a' 1x",
                          "b 1"})
    EXPECT_THAT(refusal_of_vocab(std::string("1 ") + bad), HasSubstr("line 1: expected a token as Python writes it"))
        << bad;
}

}  // namespace
}  // namespace ingot
