// Character classes equal those of Hugging Face tokenizers for all of Unicode, with any Unicode version of PCRE2
// (tools/tokenizer_goldens/make_unicode.py).
#include "text/tokenizers/stand_ins.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "text/tokenizers/oniguruma.h"
#include "text/tokenizers/pretokenizer.h"
#include "text/tokenizers/pretokenizer_table.h"
#include "text/tokenizers/tokenizer_fixture.h"
#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

std::string everything() {
  std::string all;
  for (char32_t c = 0; c < 0x110000; ++c)
    if (c < 0xD800 || c > 0xDFFF) utf8_append(all, c);
  return all;
}

TEST(StandIns, ClassesHaveTheReferencesCharacters) {
  const auto golden = testing::fixture("unicode");
  ASSERT_GT(golden.at("properties").size(), 40u);
  const std::string text = everything();
  std::string changed;
  const std::string_view readable = TextRegex::readable(text, changed);
  for (const auto& [expression, expected] : golden.at("properties").items()) {
    const TextRegex regex(pcre2_from_oniguruma("(?:" + expression + ")+"));
    TextRegex::Matcher matcher(regex);
    size_t n = 0;
    uint32_t hash = 2166136261;  // FNV-1a, a code point at a time
    size_t at = 0;
    while (const auto match = matcher.next(readable, at)) {
      at = match->end;
      for (size_t i = match->begin; i < at; ++i) {
        if ((text[i] & 0xC0) == 0x80) continue;
        hash = (hash ^ utf8_decode(std::string_view(text).substr(i))) * 16777619;
        ++n;
      }
    }
    EXPECT_EQ(n, expected[0].get<size_t>()) << expression;
    EXPECT_EQ(hash, expected[1].get<uint32_t>()) << expression;
  }
}

TEST(StandIns, NewCharactersAreCutWhereTheReferenceCuts) {
  const auto golden = testing::fixture("unicode");
  const auto texts = golden.at("texts").get<std::vector<std::string>>();
  ASSERT_GT(texts.size(), 100u);
  for (const auto& [name, expected] : golden.at("pieces").items()) {
    const Pretokenizer pretokenizer(find_pretokenizer(name).patterns);
    for (size_t i = 0; i < texts.size(); ++i) {
      std::vector<size_t> lengths;
      pretokenizer.split(texts[i], [&](std::string_view piece) {
        lengths.push_back(static_cast<size_t>(std::ranges::count_if(piece, [](char c) { return (c & 0xC0) != 0x80; })));
      });
      EXPECT_EQ(lengths, expected[i].get<std::vector<size_t>>()) << name << ": " << printable(texts[i]);
    }
  }
}

// Simulates a library with other character data: few letters from U+0200 on, but also the unassigned U+0378.
TEST(StandIns, AreOfTheSameCategoryAndLength) {
  std::vector<uint64_t> assigned(0x40000 / 64, 0);
  const auto set = [&](char32_t c) { assigned[c / 64] |= uint64_t{1} << c % 64; };
  for (char32_t c = 0; c < 0x200; ++c) set(c);
  for (const char32_t c : {U'\u0300', U'\u4E00', U'\u0E01', U'\uA7D0', U'\U00020000', U'\u0378'}) set(c);
  const StandIns stand_ins(assigned);
  std::string changed;
  EXPECT_EQ(stand_ins.readable("a\u00e9\u4e00", changed), "a\u00e9\u4e00");
  EXPECT_EQ(stand_ins.readable("a\u0301\u4e01!\u0e02\u1c89\U00031433z", changed),
            "a\u0300\u4e00!\u0e01\ua7d0\U00020000z") << "a mark, Han, Thai, a capital, Han";
  EXPECT_EQ(stand_ins.readable("\u0378", changed), "\u0379") << "unassigned, and a letter to the library";
}

}  // namespace
}  // namespace ingot
