#include "text/tokenizers/unicode.h"

#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "text/tokenizers/characters.h"

namespace ingot {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";

TEST(Unicode, EveryScalarValueGoesThereAndBack) {
  std::string all;
  size_t n = 0;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string one;
    utf8_append(one, c);
    ASSERT_EQ(utf8_length(one), one.size()) << static_cast<uint32_t>(c);
    ASSERT_EQ(utf8_decode(one), c);
    all += one;
    ++n;
  }
  EXPECT_EQ(n, 0x110000u - 0x800u);
  EXPECT_TRUE(is_valid_utf8(all));
}

TEST(Unicode, NormalFormC) {  // examples of UAX #15
  const std::pair<const char*, const char*> rows[] = {{"", ""},
                                                      {"plain", "plain"},
                                                      {"e\u0301", "\u00e9"},
                                                      {"\u212b", "\u00c5"},
                                                      {"\u1e0a\u0323", "\u1e0c\u0307"},
                                                      {"\u1112\u1161\u11ab", "\uD55C"},
                                                      {"\u0958", "\u0915\u093c"},
                                                      {"\u00e9\u0301", "\u00e9\u0301"}};
  for (const auto& [text, expected] : rows) EXPECT_EQ(normalize(text, NormalForm::kC), expected) << text;
  EXPECT_EQ(normalize("e\xFF\u0301\xC3", NormalForm::kC), "e\xFF\u0301\xC3")
      << "ill-formed bytes stay, and nothing combines across them";
}

TEST(Unicode, IllFormedSequencesAreSeen) {
  for (const char* bad :
       {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2\x41", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xED\xA0\x80",
        "\xED\xBF\xBF", "\xE2\x82", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFE", "\xFF"}) {
    EXPECT_EQ(utf8_length(bad), 0u);
    EXPECT_FALSE(is_valid_utf8(std::string("a") + bad));
    EXPECT_EQ(valid_utf8_prefix(std::string("ab") + bad), 2u);
  }
}

// The examples of the Unicode standard, section 3.9 (tables 3-8 to 3-11).
TEST(Unicode, ReplacesMaximalSubparts) {
  auto replaced = [](std::initializer_list<const char*> parts) {
    std::string text;
    for (const char* part : parts) text += part;
    return text;
  };
  const char* r = kReplacement;
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), replaced({r, r, r, r, r, r, r, r, "A"}));
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), replaced({r, r, r, r, r, r, r, r, "A"}));
  EXPECT_EQ(replace_invalid_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), replaced({r, r, r, r, r, "A", r, r, "B"}));
  EXPECT_EQ(replace_invalid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), replaced({r, r, r, r, "A"}));
  EXPECT_EQ(replace_invalid_utf8("na\xC3\xAFve \xF0\x9F\x98\x80"), "na\xC3\xAFve \xF0\x9F\x98\x80");
}

TEST(Unicode, IncompleteTails) {
  EXPECT_EQ(utf8_incomplete_tail(""), 0u);
  EXPECT_EQ(utf8_incomplete_tail("abc"), 0u);
  EXPECT_EQ(utf8_incomplete_tail("a\xF0\x9F\x98"), 3u);
  EXPECT_EQ(utf8_incomplete_tail("a\xF0\x9F"), 2u);
  EXPECT_EQ(utf8_incomplete_tail("a\xC3"), 1u);
  EXPECT_EQ(utf8_incomplete_tail("\xF0\x9F\x98\x80"), 0u);
  EXPECT_EQ(utf8_incomplete_tail("a\xE0\x80"), 0u);  // no character begins with these bytes
  EXPECT_EQ(utf8_incomplete_tail("a\x80"), 0u);
  EXPECT_EQ(utf8_incomplete_tail("\xFF"), 0u);
}

TEST(Unicode, TheGpt2MapIsABijectionOfBytes) {
  std::string bytes;
  for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>(byte);
  const std::string spelled = gpt2_from_bytes(bytes);
  EXPECT_EQ(bytes_from_gpt2(spelled), bytes);
  EXPECT_TRUE(is_valid_utf8(spelled));
  EXPECT_EQ(gpt2_from_bytes(" \n"), "\u0120\u010A");
  EXPECT_EQ(gpt2_from_bytes("a~\xA1"), "a~\u00A1");
  EXPECT_EQ(gpt2_from_bytes(std::string("\0\xAD", 2)), "\u0100\u0143");
  EXPECT_EQ(bytes_from_gpt2(" "), std::nullopt);
  EXPECT_EQ(bytes_from_gpt2("\u0144"), std::nullopt);
  EXPECT_EQ(bytes_from_gpt2("a\xFF"), std::nullopt);
}

TEST(Unicode, WhiteSpaceIsUnicodes) {
  int n = 0;
  for (char32_t c = 0; c < 0x110000; ++c) n += is_unicode_space(c);
  EXPECT_EQ(n, 25);
  EXPECT_FALSE(is_unicode_space(0x180E));
  EXPECT_FALSE(is_unicode_space(0x200B));
}

}  // namespace
}  // namespace ingot
