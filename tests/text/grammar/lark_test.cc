// Lark grammars: the verdicts of lark's own Earley parser (tools/grammar_goldens), %json, and refusals.
#include <gmock/gmock.h>

#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "text/grammar/grammar_check.h"
#include "text/grammar/rules/compile.h"

namespace ingot {
namespace {

using ingot::testing::accepts;
using ::testing::HasSubstr;

std::string lark_error(std::string_view grammar) {
  return ingot::testing::error_of([&] { compile_lark(grammar); });
}

TEST(GrammarLark, AgreesWithLark) {
  std::ifstream file(INGOT_TEST_DATA "/grammars/lark.json");
  const auto entries = nlohmann::json::parse(file);
  ASSERT_GE(entries.size(), 6u);
  for (const auto& entry : entries) {
    const std::string grammar = entry.at("grammar");
    const auto machine = compile_lark(grammar);
    for (const auto& text : entry.at("texts")) {
      EXPECT_EQ(accepts(*machine, text.at(0).get<std::string>()), text.at(1).get<bool>()) << grammar << "\n" << text;
    }
  }
}

TEST(GrammarLark, ASchemaStandsInAGrammar) {
  const auto machine = compile_lark(R"(%llguidance {}
start: ("call " %json {"type": "object", "properties": {"a}": {"type": "integer"}}, "additionalProperties": false} ";")+ | num
num: "n" %json {"type": "integer"} "5"  // a number ends where it likes
)");
  EXPECT_TRUE(accepts(*machine, R"(call {"a}": 12};call {};)"));
  EXPECT_FALSE(accepts(*machine, R"(call {"a}": 12})"));
  EXPECT_FALSE(accepts(*machine, R"(call {"a}": "x"};)"));
  EXPECT_FALSE(accepts(*machine, R"(call {"b": 1};)"));
  EXPECT_TRUE(accepts(*machine, "n155"));
  EXPECT_FALSE(accepts(*machine, "n5"));
}

TEST(GrammarLark, RepeatsInBraces) {
  const auto machine = compile_lark("start: \"a\"{2,3} \"b\"{,2} \"c\"{2} \"d\"{1,}");
  EXPECT_TRUE(accepts(*machine, "aabbccddd"));
  EXPECT_TRUE(accepts(*machine, "aaaccd"));
  EXPECT_FALSE(accepts(*machine, "aabbbccd"));
  EXPECT_FALSE(accepts(*machine, "accd"));
}

TEST(GrammarLark, SaysWhereAGrammarIsWrong) {
  EXPECT_THAT(lark_error("start: x\nx \"a\""), HasSubstr("line 2, column 3: ':' is expected, not '\"'"));
  EXPECT_THAT(lark_error("start: \"a\n"), HasSubstr("line 1, column 10: '\"' is expected"));
  EXPECT_THAT(lark_error("start: /a\n"), HasSubstr("line 1, column 10: '/' is expected"));
  EXPECT_THAT(lark_error("start: (\"a\"]"), HasSubstr("column 12: ')' is expected, not ']'"));
  EXPECT_THAT(lark_error("start: \"a\" )"), HasSubstr("column 12: the end of the line, or"));
  EXPECT_THAT(lark_error("start: NAME"), HasSubstr("column 8: 'NAME' is not defined"));
  EXPECT_THAT(lark_error("start: \"a\"\nstart: \"b\""), HasSubstr("line 2, column 1: 'start' is defined twice"));
  EXPECT_THAT(lark_error("begin: \"a\""), HasSubstr("no rule 'start'"));
  EXPECT_THAT(lark_error("start: A\nA: b\nb: \"c\""),
              HasSubstr("line 2, column 4: a terminal cannot contain the rule 'b'"));
  EXPECT_THAT(lark_error("start: /a/i"), HasSubstr("column 11: the regular expression has the flags 'i'"));
  EXPECT_THAT(lark_error("start: \"x\" /a(/"), HasSubstr("column 12: the regular expression"));
  EXPECT_THAT(lark_error("start: %json {\"minimum\": \"x\"}"), HasSubstr("column 14: "));
  EXPECT_THAT(lark_error("start: %json {\"a\": 1"), HasSubstr("column 14: this JSON object does not end"));
  EXPECT_THAT(lark_error("start: <tool>"), HasSubstr("a token by name"));
  EXPECT_THAT(lark_error("start: \"ab\"..\"c\""), HasSubstr("a range must go from one character"));
  EXPECT_THAT(lark_error("start: \"a\"~3..2"), HasSubstr("out of order"));
  EXPECT_THAT(lark_error("start: \"\\d\""), HasSubstr("this escape is not known"));
  EXPECT_THAT(lark_error("start[capture]: \"a\""), HasSubstr("attributes of rules"));
  EXPECT_THAT(lark_error("start{x}: x"), HasSubstr("templates of rules"));
  EXPECT_THAT(lark_error("%import common.FOO"), HasSubstr("column 16: the library 'common' has no 'FOO'"));
  EXPECT_THAT(lark_error("%import python.NAME"), HasSubstr("'common', the only library"));
  EXPECT_THAT(lark_error("%declare A\nstart: A"), HasSubstr("line 1, column 1: '%declare' is not supported"));
  EXPECT_THAT(lark_error("%llguidance {\"no_forcing\": true}"), HasSubstr("no option of llguidance"));
  EXPECT_THAT(lark_error("start: a | b\na: b \"x\"\nb: a \"y\" | \"z\""),
              HasSubstr("begins with itself (a -> b -> a)"));
}

}  // namespace
}  // namespace ingot
