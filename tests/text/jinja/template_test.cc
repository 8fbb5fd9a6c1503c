#include "text/jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <random>
#include <thread>

#include "base/cpu_time.h"
#include "base/error.h"
#include "base/json.h"
#include "test_seed.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

Json variables() {
  return Json::parse(R"({
    "name": "Ann", "n": 3, "list": [3, 1, 2], "empty": [], "none": null, "yes": true, "text": "  a b  ",
    "map": {"b": 2, "a": 1},
    "users": [{"name": "Ann", "age": 31}, {"name": "bob", "age": 25}, {"name": "Cy", "age": 31}]})");
}

std::string rendered(std::string_view source, const Json& vars = variables(), const TemplateLimits& limits = {}) {
  return Template::parse(source, limits).render(vars, limits);
}

// The message of the Error that parsing or rendering throws.
std::string refused(std::string_view source, const Json& vars = variables(), const TemplateLimits& limits = {}) {
  try {
    return "not refused, but: " + rendered(source, vars, limits);
  } catch (const Error& error) {
    return error.what();
  }
}

struct Row {
  const char *source, *text;
};

void PrintTo(const Row& row, std::ostream* out) { *out << row.source; }

class TemplateRows : public ::testing::TestWithParam<Row> {};

TEST_P(TemplateRows, Renders) { EXPECT_EQ(rendered(GetParam().source), GetParam().text) << GetParam().source; }

constexpr Row kExpressions[] = {
    {"{{ 1 + 2 * 3 }} {{ 7 // 2 }} {{ -7 % 3 }} {{ 2 ** 3 ** 2 }} {{ 7 / 2 }}", "7 3 2 64 3.5"},
    {"{{ 'a' ~ 1 ~ none ~ true }} {{ 'ab' * 2 }} {{ [1] + [2] }}", "a1NoneTrue abab [1, 2]"},
    {"{{ 1 < 2 < 3 }} {{ 1 == 1.0 }} {{ 'a' in 'cat' }} {{ 4 not in list }} {{ not yes }}",
     "True True True True False"},
    {"{{ 'y' if yes else 'n' }}{{ 'gone' if not yes }} {{ none or 'x' }} {{ 0 and 1 }}", "y x 0"},
    {"{{ map.a }}{{ map['b'] }}{{ users[-1].name }}{{ 'hello'[1:-1] }}{{ list[::-1] }}", "12Cyell[2, 1, 3]"},
    {"{{ missing }}|{{ map.missing }}|{{ missing is defined }}|{{ [missing] }}", "||False|[Undefined]"},
    {"{{ {'k': [1, 2.0, 'x', none]} }} {{ (1,) }} {{ \"it's\" }}", "{'k': [1, 2.0, 'x', None]} (1,) it's"},
    {"{{ 'a\\tb\\x41\\u00e9' }}", "a\tbA\u00e9"},
    {"{{ '%s is %d' % ('x', 3) }} {{ '{:>4}|'.format('a') }}", "x is 3    a|"},
    {"{{ name.upper() }} {{ 'a,b'.split(',') }} {{ map.items()|list }} {{ map.get('q', 9) }}",
     "ANN ['a', 'b'] [('b', 2), ('a', 1)] 9"},
    {"{{ 18446744073709551615 + 1 }} {{ 1e100 }} {{ 0.1 + 0.2 }}", "18446744073709551616 1e+100 0.30000000000000004"}};
INSTANTIATE_TEST_SUITE_P(Expressions, TemplateRows, ::testing::ValuesIn(kExpressions));

constexpr Row kWhiteSpace[] = {{"a\n{% if yes %}\nb\n{% endif %}\nc\n", "a\nb\nc"},
                               {"a\n   {% set x = 1 %}   \nb", "a\n   \nb"},
                               {"  {%- if yes -%}  x  {%- endif -%}  y", "xy"},
                               {"  {%+ if yes %}x{% endif %}", "  x"},
                               {"{% if yes +%}\nx{% endif %}", "\nx"},
                               {"a  {{- 1 -}}  b", "a1b"},
                               {"a  {{ 1 }}\n b", "a  1\n b"},
                               {"a\r\nb\rc\n\n", "a\nb\nc\n"},
                               {"x {#- gone -#} y {# gone #}z", "xy z"},
                               {"{% raw %}{{ x }} {% y %}{# z #}{% endraw %}", "{{ x }} {% y %}{# z #}"},
                               {"plain { } %} }} #}", "plain { } %} }} #}"},
                               {"", ""}};
INSTANTIATE_TEST_SUITE_P(WhiteSpace, TemplateRows, ::testing::ValuesIn(kWhiteSpace));

constexpr Row kFilters[] = {
    {"{{ text|trim }}|{{ name|lower }}|{{ list|length }}|{{ list|first }}{{ list|last }}", "a b|ann|3|32"},
    {"{{ list|sort|join(', ') }} {{ list|sum }} {{ list|min }} {{ [1, 1, 2]|unique|list }}", "1, 2, 3 6 1 [1, 2]"},
    {"{{ users|map(attribute='name')|join('+') }}", "Ann+bob+Cy"},
    {"{{ users|selectattr('age', 'gt', 30)|map(attribute='name')|list }}", "['Ann', 'Cy']"},
    {"{{ users|groupby('age')|map('first')|list }} {{ map|dictsort }}", "[25, 31] [('a', 1), ('b', 2)]"},
    {"{{ {'a': '<\u00e9>\"'}|tojson }} {{ [1, {}]|tojson(indent=2) }}", "{\"a\": \"<\u00e9>\\\"\"} [\n  1,\n  {}\n]"},
    {"{{ missing|default('d') }}{{ ''|default('e', true) }} {{ '3.7'|int }} {{ 'x'|int(5) }} {{ 2.5|round }}",
     "de 3 5 2.0"},
    {"{{ 'a\\nb'|indent(2) }} {{ 'aXa'|replace('a', 'b') }} {{ 'some words'|title }}", "a\n  b bXb Some Words"},
    {"{{ '<b>'|escape }} {{ '<b>'|safe }}", "&lt;b&gt; <b>"},
    {"{% filter upper %}a{{ n }}b{% endfilter %}", "A3B"}};
INSTANTIATE_TEST_SUITE_P(Filters, TemplateRows, ::testing::ValuesIn(kFilters));

constexpr Row kTests[] = {
    {"{{ n is odd }} {{ n is divisibleby 2 }} {{ n is number }} {{ name is string }}", "True False True True"},
    {"{{ map is mapping }} {{ list is iterable }} {{ list is sequence }} {{ n is iterable }}", "True True True False"},
    {"{{ none is none }} {{ yes is true }} {{ 1 is true }} {{ yes is boolean }}", "True True False True"},
    {"{{ n is eq 3 }} {{ n is in list }} {{ missing is undefined }} {{ n is not none }}", "True True True True"}};
INSTANTIATE_TEST_SUITE_P(Tests, TemplateRows, ::testing::ValuesIn(kTests));

constexpr Row kLoops[] = {
    {"{% for x in list %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% endfor %}",
     "1/3:3,2/3:1,3/3:2"},
    {"{% for x in list if x > 1 %}{{ loop.index0 }}{{ x }}{{ loop.revindex }} {% endfor %}", "032 121 "},
    {"{% for x in empty %}x{% else %}nothing{% endfor %}", "nothing"},
    {"{% for k, v in map.items() %}{{ k }}={{ v }};{% endfor %}", "b=2;a=1;"},
    {"{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i "
     "}}{% endfor %}",
     "023"},
    {"{% for x in [1, [2, [3]]] recursive %}{{ x if x is number else '<' ~ loop(x) ~ '>' }}{% endfor %}", "1<2<3>>"},
    {"{% for x in 'abc' %}{{ loop.previtem }}{{ x }}{{ loop.nextitem }}{{ loop.cycle('-', '+') }}{% endfor %}",
     "ab-abc+bc-"},
    {"{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}", "TrueFalseTrue"}};
INSTANTIATE_TEST_SUITE_P(Loops, TemplateRows, ::testing::ValuesIn(kLoops));

constexpr Row kScopesAndMacros[] = {
    {"{% set x = 1 %}{% for i in list %}{% set x = i %}{% endfor %}{{ x }}", "1"},
    {"{% set ns = namespace(sum=0) %}{% for i in list %}{% set ns.sum = ns.sum + i %}{% endfor %}{{ ns.sum }}", "6"},
    {"{% if yes %}{% set x = 2 %}{% endif %}{{ x }}", "2"},
    {"{% set a, b = 1, 2 %}{{ b }}{{ a }}", "21"},
    {"{% set x %}in {{ n }}{% endset %}[{{ x }}]", "[in 3]"},
    {"{% with x = 5 %}{{ x }}{% endwith %}{{ x }}", "5"},
    {"{% macro m(a, b='d') %}({{ a }}{{ b }}){% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=4) }}", "(1d)(12)(43)"},
    {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, x=2) }}", "(1,){'x': 2}"},
    {"{% macro m() %}<{{ caller(7) }}>{% endmacro %}{% call(i) m() %}{{ i }}{% endcall %}", "<7>"},
    {"{% macro f(k) %}{{ k }}{{ f(k - 1) if k }}{% endmacro %}{{ f(3) }}", "3210"},
    {"{% generation %}said{% endgeneration %}", "said"}};
INSTANTIATE_TEST_SUITE_P(ScopesAndMacros, TemplateRows, ::testing::ValuesIn(kScopesAndMacros));

struct Refusal {
  const char *source, *message;
};

void PrintTo(const Refusal& row, std::ostream* out) { *out << row.source; }

class TemplateRefusals : public ::testing::TestWithParam<Refusal> {};

TEST_P(TemplateRefusals, SaysWhatAndWhere) {
  EXPECT_THAT(refused(GetParam().source), HasSubstr(GetParam().message)) << GetParam().source;
}

constexpr Refusal kSyntax[] = {{"a\n{{ 1 + }}", "line 2, column 8"},
                               {"{{ 'open }}", "line 1, column 4: the string has no end"},
                               {"{# open", "the comment {# has no end #}"},
                               {"{% raw %}x", "has no {% endraw %}"},
                               {"\n\n{% nope %}", "line 3, column 4: unknown or misplaced tag 'nope'"},
                               {"{% if yes %}\nx", "ends inside of 'if', before 'elif' or 'else' or 'endif'"},
                               {"{% for x in list %}{% endif %}", "'endif'"},
                               {"{{ n|nope }}", "no filter or test named 'nope'"},
                               {"{{ n is nope }}", "no filter or test named 'nope'"},
                               {"{% include 'x' %}", "'include'"},
                               {"{% break %}", "need a loop"},
                               {"{% set true = 1 %}", "cannot assign to 'true'"},
                               {"{{ [1 }}", "unexpected '}'"},
                               {"{{ @ }}", "unexpected character '@'"},
                               {"{{ '\\N{DASH}' }}", "\\N{...} escapes are not supported"},
                               {"{{ 1 \xFF }}", "not UTF-8: bad byte at offset 5"}};
INSTANTIATE_TEST_SUITE_P(Syntax, TemplateRefusals, ::testing::ValuesIn(kSyntax));

constexpr Refusal kRendering[] = {
    {"\n{{ missing.x }}", "template line 2: 'missing' is undefined"},
    {"{{ 1 / 0 }}", "template line 1: division by zero"},
    {"{{ 'a' + 1 }}", "unsupported operand"},
    {"{{ n() }}", "'int' object is not callable"},
    {"{% for x in n %}{% endfor %}", "not iterable"},
    {"a\n\n{% if yes %}\n{{ raise_exception('too\tfew') }}{% endif %}", "template line 4: too\\x09few"},
    {"{% set map.x = 1 %}", "cannot assign attribute 'x' on non-namespace"},
    {"{{ 1 < 'a' }}", "'<' not supported between instances of 'int' and 'str'"},
    {"{{ missing|tojson }}", "not JSON serializable"},
    {"{{ 'x' % 1 }}", "not all arguments converted"},
    {"{{ list.sort() }}", "unsafe"},
    {"{{ name.__class__.__mro__ }}", "unsafe"},
    {"{{ 3 ** 200 }}", "the number is too large"}};
INSTANTIATE_TEST_SUITE_P(Rendering, TemplateRefusals, ::testing::ValuesIn(kRendering));

// ---- limits

const TemplateLimits kSmall = {
    .depth = 20, .fuel = 20'000, .fuel_per_byte = 0, .output_bytes = 10'000, .source_bytes = 5'000};

constexpr Refusal kLimits[] = {
    {"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "too many steps"},
    {"{{ 'x' * 100000000 }}", "a text of over 16777216 bytes"},
    {"{{ [0] * 100000000 }}", "a list of over 1000000 items"},
    {"{{ 'x'.center(999999999999) }}", "a text of over"},
    {"{{ '%999999999d' % 1 }}", "a text of over"},
    {"{{ range(10000000)|list }}", "the sandbox stops at 100000"},
    {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deep"},
    {"{% set ns = namespace(v=[]) %}{% for i in range(999) %}{% set ns.v = [ns.v] %}{% endfor %}", "deeper than 256"}};
INSTANTIATE_TEST_SUITE_P(Limits, TemplateRefusals, ::testing::ValuesIn(kLimits));

TEST(TemplateLimits, AreOnesOwnToo) {
  EXPECT_THAT(refused("{% for i in range(5000) %}{{ i }}{% endfor %}", Json::object(), kSmall),
              HasSubstr("too many steps"));
  EXPECT_THAT(refused("{% for i in range(200) %}{{ 'x' * 100 }}{% endfor %}", Json::object(), kSmall),
              HasSubstr("a text of over 10000 bytes"));
  EXPECT_THAT(refused(std::string(5001, 'x'), Json::object(), kSmall), HasSubstr("5001 bytes, over the limit of 5000"));
  EXPECT_THAT(refused(std::string(30, '(') + "1" + std::string(30, ')'), Json::object(), kSmall),
              HasSubstr("not refused"));
  EXPECT_THAT(refused("{{ " + std::string(30, '(') + "1" + std::string(30, ')') + " }}", Json::object(), kSmall),
              HasSubstr("deeper than 20"));
  const std::string ifs = "{% if 1 %}", ends = "{% endif %}";
  std::string nested;
  for (int i = 0; i < 30; ++i) nested = ifs + nested + ends;
  EXPECT_THAT(refused(nested, Json::object(), kSmall), HasSubstr("deeper than 20"));
}

TEST(TemplateLimits, VariablesMakeFuel) {
  const std::string source = "{% for c in text %}{{ c|upper }}{% endfor %}";
  const TemplateLimits limits = {.fuel = 1000, .fuel_per_byte = 40};
  const std::string text(10'000, 'a');
  EXPECT_EQ(rendered(source, {{"text", text}, {"other", 1}}, limits), std::string(10'000, 'A'));
  EXPECT_THAT(refused(source, {{"text", text}, {"other", 1}}, {.fuel = 1000, .fuel_per_byte = 0}),
              HasSubstr("too many steps"));
}

TEST(TemplateLimits, VariablesNestNoDeeperThanAllowed) {
  Json deep = 1;
  for (int i = 0; i < 300; ++i) deep = Json::array({deep});
  EXPECT_THAT(refused("{{ deep }}", Json::object({{"deep", deep}})), HasSubstr("deeper than 256"));
  EXPECT_EQ(rendered("x", Json::object({{"deep", deep}})), "x");  // the template does not use it
}

// Hostile templates that cause the most work in the fewest steps. Each must end quickly, with text or an Error.
TEST(TemplateLimits, HostileTemplatesEndSoon) {
  const char* sources[] = {
      "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
      ("{% set ns = namespace(l=[]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l == "
       "ns.l|list }}"),
      "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}{{ l|tojson }}",
      "{% set l = [] %}{% set _ = l.append(l) %}{{ l == [l] }}",
      "{% set s = 'ab' * 4000000 %}{% for i in range(9999) %}{{ s.find('ba' * 1000 ~ 'c') }}{% endfor %}",
      "{% set s = 'a' * 8000000 %}{% for i in range(9999) %}{{ s.rfind('b' ~ 'a' * 100000) }}{% endfor %}",
      "{% set s = 'a ' * 4000000 %}{% for i in range(9999) %}{{ s.split()|length }}{% endfor %}",
      "{% set s = 'a' * 8000000 %}{% for i in range(9999) %}{{ s.replace('', 'b')|length }}{% endfor %}",
      "{% set s = '\u00e9' * 4000000 %}{% for i in range(9999) %}{{ s[3999999] }}{% endfor %}",
      "{% macro m(n) %}{{ m(n + 1) }}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
      "{% macro m(n) %}{% if n < 30 %}{{ m(n + 1) }}{{ m(n + 1) }}{% endif %}{% endmacro %}{{ m(0) }}",
      "{% for i in range(99999) %}{% for j in range(99999) %}{% continue %}{% endfor %}{% endfor %}",
      "{{ range(99999)|map('string')|sort|join|list|sort|unique|list|length }}",
      "{% for x in [[]] recursive %}{{ loop([x]) }}{% endfor %}",
      "{{ '{0:{1}}'.format('x', 99999999) }}",
      "{{ (10 ** 30)|string|int ** 5 }}",
      "{{ 'x'|indent(999999999) }}",
  };
  for (const char* source : sources) {
    const CpuTimer timer;
    try {
      rendered(source);
    } catch (const Error&) {}
    EXPECT_LT(timer.seconds(), 5) << source;  // far above the usual time
  }
}

// ---- other functions

TEST(Template, MentionsWhatItAsksFor) {
  const Template t = Template::parse("{% if tools %}{{ tools.enable_thinking }}{% endif %}{# messages #}");
  EXPECT_TRUE(t.mentions("tools"));
  EXPECT_FALSE(t.mentions("enable_thinking"));
  EXPECT_FALSE(t.mentions("messages"));
}

TEST(Template, ReadsTheClockItIsGiven) {
  const Template t = Template::parse("{{ strftime_now('%d %B %Y %H:%M %a %j %-d') }}");
  std::tm time{};
  time.tm_year = 124, time.tm_mon = 1, time.tm_mday = 3, time.tm_hour = 4, time.tm_min = 5, time.tm_wday = 6,
  time.tm_yday = 33;
  EXPECT_EQ(t.render(Json::object(), {}, [&] { return time; }), "03 February 2024 04:05 Sat 034 3");
  EXPECT_GE(std::stoi(rendered("{{ strftime_now('%Y') }}")), 2024);
}

// Compares with the system's strftime in the C locale, on random days of 1970 to 2099 (%c differs on Windows).
TEST(Template, FormatsTimesAsTheSystem) {
  const auto by_system = [](const std::tm& time, const std::string& format) {
    char text[64];
    return std::string(text, std::strftime(text, sizeof text, format.c_str(), &time));
  };
  const uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  int n_compared = 0;
  for (int i = 0; i < 300; ++i) {
    const auto seconds = static_cast<std::time_t>(random() % 4'102'444'800);
    const std::tm time = *std::gmtime(&seconds);
    for (const char what : std::string("aAbBCdDeFgGhHIjmMnpRStTuUVwWxXyY")) {
      const std::string format{'%', what}, wanted = by_system(time, format);
      if (wanted.empty()) continue;  // Windows supports fewer formats
      ++n_compared;
      const Template t = Template::parse("{{ strftime_now('" + format + "') }}");
      EXPECT_EQ(t.render(Json::object(), {}, [&] { return time; }), wanted)
          << format << ", " << seconds << " s, seed " << seed;
    }
  }
  EXPECT_GE(n_compared, 300 * 15);
}

TEST(Template, VariablesHideGlobalsAndMustBeAnObject) {
  EXPECT_EQ(rendered("{{ range }}", Json::object({{"range", "mine"}})), "mine");
  EXPECT_THAT(refused("x", Json::array()), HasSubstr("must be a JSON object"));
}

TEST(Template, RendersInSeveralThreads) {
  const Template t =
      Template::parse("{% macro m(x) %}[{{ x }}]{% endmacro %}{% for i in range(200) %}{{ m(i * by) }}{% endfor %}");
  std::vector<std::string> wanted(4), got(4);
  for (int i = 0; i < 4; ++i) wanted[i] = t.render(Json::object({{"by", i}}));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back([&, i] { got[i] = t.render(Json::object({{"by", i}})); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, wanted);
}

// Pieces of syntax in random order give text or an Error, and the same result each time.
TEST(Template, SurvivesAnySyntax) {
  const char* pieces[] = {"{% ",      " %}",       "{{ ",    " }}",  "{#", "#}",   "-%}",  "{%-",  "if ",
                          "endif",    "for x in ", "endfor", "else", "x",  "list", "[",    "]",    "(",
                          ")",        "|",         "map",    ".",    "=",  "set ", "1",    "'s'",  "macro m(",
                          "endmacro", "m(",        "loop",   ",",    "~",  "is ",  "not ", "none", "\n",
                          " ",        "raw",       "endraw", "**",   "-",  ":"};
  const unsigned seed = test_seed();
  std::mt19937 random(seed);
  auto outcome = [](const std::string& source) {
    try {
      return rendered(source);
    } catch (const Error& error) {
      return std::string("! ") + error.what();
    }
  };
  int n_texts = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string source;
    for (size_t n = 1 + random() % 12; n > 0; --n) source += pieces[random() % std::size(pieces)];
    const std::string text = outcome(source);
    EXPECT_EQ(outcome(source), text) << "seed " << seed << ": " << source;
    n_texts += text.substr(0, 2) != "! ";
  }
  EXPECT_GT(n_texts, 100) << "seed " << seed;
}

}  // namespace
}  // namespace ingot
