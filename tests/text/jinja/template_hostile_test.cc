// Hostile templates and conversations. Each is quickly rendered like jinja2, or refused with a line number.
#include <gmock/gmock.h>

#include <ctime>

#include "base/error.h"
#include "base/json.h"
#include "text/chat.h"
#include "text/jinja/template.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

// The rendered text, or "refused: " and the message.
std::string outcome(const std::string& source, const Json& variables = Json::object()) {
  try {
    return Template::parse(source).render(variables, {}, [] { return std::tm{}; });
  } catch (const Error& error) {
    return std::string("refused: ") + error.what();
  }
}

std::string repeated(const std::string& text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

struct HostileRow {
  std::string source, expected;  // a part of the outcome
};

void expect_rows(const std::vector<HostileRow>& rows) {
  for (const auto& [source, expected] : rows) {
    const std::clock_t start = std::clock();
    EXPECT_THAT(outcome(source), HasSubstr(expected)) << source.substr(0, 60);
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 5.0) << source.substr(0, 60);
  }
}

TEST(HostileTemplates, NestingIsRefusedWhereItBegins) {  // C02
  expect_rows(
      {{"{{ " + repeated("(", 100'000) + "1" + repeated(")", 100'000) + " }}", "refused: template line 1, column"},
       {repeated("{% if 1 %}", 10'000) + repeated("{% endif %}", 10'000), "deeper than 256"},
       {repeated("{% for x in [1] %}", 10'000), "refused: template line 1"},
       {"{{ a" + repeated(".a", 100'000) + " }}", "deeper than 256"},
       {"{{ 1" + repeated("|string", 10'000) + " }}", "deeper than 256"},
       {"{{ " + repeated("[", 100'000) + repeated("]", 100'000) + " }}", "deeper than 256"},
       {"{{ " + repeated("not ", 100'000) + "1 }}", "deeper than 256"},
       {"{{ " + repeated("-", 100'000) + "1 }}", "deeper than 256"}});
}

TEST(HostileTemplates, NothingElseIsLoaded) {  // C03
  expect_rows({{"{% include 'x' %}", "unknown or misplaced tag 'include'"},
               {"{% import 'x' as y %}", "unknown or misplaced tag 'import'"},
               {"{% extends 'x' %}", "unknown or misplaced tag 'extends'"},
               {"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
                "refused: template line 1"}});
}

TEST(HostileTemplates, WorkAndSizeHaveLimits) {  // C04, C05
  expect_rows({{"{{ range(10**9)|list }}", "refused: template line 1"},
               {repeated("{% for x in range(10000) %}", 3) + repeated("{% endfor %}", 3), "too many steps"},
               {"{{ 'a' * 10**9 }}", "a text of over"},
               {"{{ 'x'.center(2**31) }}", "a text of over"},
               {"{{ 'x\\ny'|indent(10**9) }}", "a text of over"},
               {"{{ '%s' * 10**7 % (1,) }}", "refused: template line 1"},
               {"{% set ns = namespace(s='x') %}{% for i in range(40) %}{% set ns.s = ns.s.replace('x', 'xx') %}{% "
                "endfor %}{{ ns.s|length }}",
                "refused: template line 1"}});
}

TEST(HostileTemplates, ArithmeticIsPythons) {  // C06
  expect_rows({{"{{ (-9223372036854775807 - 1) // -1 }}", "9223372036854775808"},
               {"{{ (-9223372036854775807 - 1) % -1 }}", "0"},
               {"{{ 9223372036854775807 * 9223372036854775807 }}", "85070591730234615847396907784232501249"},
               {"{{ 5 % 0 }}", "refused: template line 1: integer division or modulo by zero"},
               {"{{ 5.0 // 0 }}", "refused: template line 1"},
               {"{{ 'abc'[::0] }}", "slice step cannot be zero"},
               {"{{ [1, 2, 3][0 - 10**18:10**18] }}", "[1, 2, 3]"},
               {"{{ range(0, 1, 0) }}", "range() arg 3 must not be zero"},
               {"[{{ [1][10**18] }}]", "[]"}});
}

TEST(HostileTemplates, ThereIsNothingToReach) {  // C07
  expect_rows({{"[{{ namespace.__class__ }}]", "[]"},
               {"[{{ ''|attr('__init__') }}]", "[]"},
               {"[{{ [].__globals__ }}]", "[]"},
               {"{{ cycler.__init__.__globals__ }}", "'cycler' is undefined"},
               {"{{ raise_exception.__globals__.os }}", "refused: template line 1"},
               {"{{ ''.__class__.__mro__[1].__subclasses__() }}", "refused: template line 1"},
               {"{{ self.__init__ }}", "refused: template line 1"}});
}

TEST(HostileTemplates, ClocksAreShort) {  // C09
  expect_rows({{"{{ strftime_now('%' * 1000000) }}", "strftime_now: the text is longer than 256 bytes"},
               {"{{ strftime_now('x' * 257) }}", "strftime_now: the text is longer than 256 bytes"},
               {"{{ strftime_now('%Q') }}", "unknown directive '%Q'"}});
}

TEST(HostileTemplates, JsonIsJson) {  // C10
  Json deep = 1;
  for (int i = 0; i < 100; ++i) deep = Json::array({deep});
  EXPECT_EQ(Json::parse(outcome("{{ v|tojson }}", {{"v", deep}})), deep);
  const Json odd = "\x01\x1f\"\\</script>\u2028\u00e9" + std::string(1'000'000, 'y');
  EXPECT_EQ(Json::parse(outcome("{{ v|tojson }}", {{"v", odd}})), odd);
  EXPECT_THAT(outcome("{{ [1]|tojson(indent=10**9) }}"), HasSubstr("refused: template line 1"));
}

TEST(HostileTemplates, AnyBytesAndAnySize) {  // C15; checkpoint_test tests the choice among several
  const size_t most = size_t{1} << 20;
  EXPECT_EQ(outcome("a\r\n{% set x = 1 %}\r\nb\rc"), "a\nb\nc");
  EXPECT_EQ(outcome(std::string("a\0{{ 1 }}\0", 10)), std::string("a\0"
                                                                  "1\0",
                                                                  4));
  EXPECT_EQ(outcome(std::string(most, 'x')), std::string(most, 'x'));
  expect_rows({{"a\xFF{{ 1 }}", "refused: the template is not UTF-8: bad byte at offset 1"},
               {"{{ '\xC3' }}", "not UTF-8"},
               {"a\xED\xA0\x80", "not UTF-8"},
               {std::string(most + 1, 'x'), "refused: the template has 1048577 bytes, over the limit of 1048576"},
               {std::string(10 * most, '{'), "over the limit"}});
}

TEST(HostileTemplates, ContentIsNoTemplate) {  // C14
  for (const char* content : {"{{ 7 * 7 }}", "{% raw %}", "{#", "{% endraw %}{{ x }}", "%}", "}}{{"}) {
    const Json messages = Json::array({Json{{"role", "user"}, {"content", content}}});
    EXPECT_EQ(outcome("{{ messages[0].content }}", {{"messages", messages}}), content);
    EXPECT_EQ(ChatTemplate::chatml_default().render(messages, nullptr, false, nullptr),
              std::string("<|im_start|>user\n") + content + "<|im_end|>\n");
  }
}

}  // namespace
}  // namespace ingot
