// Expressions that take exponential time are refused (bad-input row T08), and the expressions of models are accepted.
#include "text/tokenizers/text_regex.h"

#include <gmock/gmock.h>

#include "base/cpu_time.h"
#include "base/error.h"
#include "text/tokenizers/pretokenizer_table.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;

std::string refusal_of(std::string_view pattern) {
  try {
    TextRegex(pattern).refuse_exponential_time();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(TextRegex, RefusesExponentialTime) {
  const char* patterns[] = {"(a+)+$",
                            "(?:a|a)+b",
                            "(?:a|ab|b)*c",
                            "(?:a+b?)+c",
                            "(?:a?b?)*c",
                            "(?:a?a?)*c",
                            "(?:a?a?)+c",
                            "(?:a*b*)*c",
                            "((a+)b?)+c",
                            "(?:\\s*[\\r\\n]+)+x",
                            "(?:\\p{L}|\\w)+!",
                            "(?:[a-f]|[f-z])+!",
                            "(?i:(?:[A-Z]|[a-z])+)!",
                            "(?:(?i)k|\\x{212A})+!",
                            "x(?=(?:a+)+b)a",
                            "(?<=z)(?!(?:a|a)+b)",
                            "(?:\\d{1,3}){2,}x",
                            "(?:(?:a{2}){1,}){1,}b",
                            "(?:a+?)+?b",
                            "(?:[[:alpha:]]|[a])+1",
                            "(?:é|[à-ü])+!",
                            "(?:aa|a)+b",
                            "(?:a.|.a)+$",
                            "((((((a+))))))+b"};
  for (const char* pattern : patterns) EXPECT_THAT(refusal_of(pattern), HasSubstr("exponential")) << pattern;
  EXPECT_EQ(refusal_of("(a+)+$"),
            "the expression '(a+)+$' may take exponential time: it takes too many steps if 'a' is repeated");
}

TEST(TextRegex, AcceptsOtherExpressions) {
  const char* patterns[] = {"a+",
                            "(?:ab+)+c",
                            "(?:a+b)+c",
                            "(?:[A-Z][a-z]*)+!",
                            "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+",
                            "(?:\\d{1,3},)+x",
                            "(?:\\d{3})*\\b",
                            "(?=(\\d{3})+(?!\\d))",
                            "(?>a+)+",
                            "(?:a++b?)+c",
                            "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
                            "a*a*a*b",
                            "(?s).+",
                            "(?:a|b|cd)+e",
                            "(?:a{0,2}b){3,7}",
                            "[^\\]a]+",
                            "[]a]+(?:x]*y)*",
                            "(?i:'s|'t)+",
                            "(?:k|(?i:j))+",
                            "\\x{4e00}+[\\x41-\\x43]*",
                            "\\pL+\\p{Lu}*",
                            "(?:(?i:a)|b)+",
                            "a{,3}",
                            "a{x}b{",
                            "(?:\\Aa|\\Gb)+\\z",
                            "",
                            "|a|",
                            "(?:)*",
                            "(?:^|$)*a",
                            "(?:(?=a)b)*",
                            "\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{1}",
                            "(?:\\p{sc:Han}|\\p{sc:Hiragana})+x"};
  for (const char* pattern : patterns) EXPECT_EQ(refusal_of(pattern), "") << pattern;
  for (const PretokenizerRow& row : pretokenizer_rows())
    for (const std::string_view pattern : row.patterns) EXPECT_EQ(refusal_of(pattern), "") << row.names.front();
}

// The trials miss this expression, because they repeat at most two characters. The limit of steps ends the match.
TEST(TextRegex, EndsAMatchOfTooManySteps) {
  const TextRegex regex("(?:xyz|xyzxyz)+!");
  EXPECT_NO_THROW(regex.refuse_exponential_time());
  std::string text;
  for (int i = 0; i < 60; ++i) text += "xyz";
  TextRegex::Matcher matcher(regex, 1'000'000);
  try {
    matcher.next(text + "?!", 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "the pre-tokenizer expression '(?:xyz|xyzxyz)+!' fails on this text: match limit exceeded");
  }
}

// Files may contain any expression, so large expressions must also be checked in limited time.
TEST(TextRegex, LargeExpressionsEndSoon) {
  std::string classes = "(?:", words = "(?:", copies = "a{60}";
  for (int i = 0; i < 90; ++i)
    classes += (i == 0 ? "" : "|") + fmt::format("[\\x{{{:x}}}-\\x{{{:x}}}]", 0x4e00 + 10 * i, 0x4e09 + 10 * i);
  for (int i = 0; i < 800; ++i) words += (i == 0 ? "" : "|") + fmt::format("w{}", i);
  for (int i = 0; i < 4; ++i) copies = "(?:" + copies + "){9}";
  const std::pair<std::string, const char*> rows[] = {{classes + ")+x", ""},
                                                      {words + ")+x", ""},
                                                      {copies, "too"},
                                                      {std::string(3000, '.'), ""},
                                                      {"(?:(?:(?:(?:(?:){60}){60}){60}){60}){60}", "too"},
                                                      {std::string(200, '(') + "a" + std::string(200, ')') + "+", ""}};
  for (const auto& [pattern, what] : rows) {
    const CpuTimer timer;
    EXPECT_THAT(refusal_of(pattern), HasSubstr(what)) << pattern.substr(0, 40);
    EXPECT_LT(timer.seconds(), 10.0) << pattern.substr(0, 40);  // half a second at most, on a quiet machine
  }
}

}  // namespace
}  // namespace ingot
