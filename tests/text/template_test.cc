#include "text/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/error.h"

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

// The message of the Error that parsing or rendering ends in.
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

INSTANTIATE_TEST_SUITE_P(
    Expressions, TemplateRows,
    ::testing::Values(
        Row{"{{ 1 + 2 * 3 }} {{ 7 // 2 }} {{ -7 % 3 }} {{ 2 ** 3 ** 2 }} {{ 7 / 2 }}", "7 3 2 64 3.5"},
        Row{"{{ 'a' ~ 1 ~ none ~ true }} {{ 'ab' * 2 }} {{ [1] + [2] }}", "a1NoneTrue abab [1, 2]"},
        Row{"{{ 1 < 2 < 3 }} {{ 1 == 1.0 }} {{ 'a' in 'cat' }} {{ 4 not in list }} {{ not yes }}",
            "True True True True False"},
        Row{"{{ 'y' if yes else 'n' }}{{ 'gone' if not yes }} {{ none or 'x' }} {{ 0 and 1 }}", "y x 0"},
        Row{"{{ map.a }}{{ map['b'] }}{{ users[-1].name }}{{ 'hello'[1:-1] }}{{ list[::-1] }}", "12Cyell[2, 1, 3]"},
        Row{"{{ missing }}|{{ map.missing }}|{{ missing is defined }}|{{ [missing] }}", "||False|[Undefined]"},
        Row{"{{ {'k': [1, 2.0, 'x', none]} }} {{ (1,) }} {{ \"it's\" }}", "{'k': [1, 2.0, 'x', None]} (1,) it's"},
        Row{"{{ 'a\\tb\\x41\\u00e9' }}", "a\tbA\u00e9"},
        Row{"{{ '%s is %d' % ('x', 3) }} {{ '{:>4}|'.format('a') }}", "x is 3    a|"},
        Row{"{{ name.upper() }} {{ 'a,b'.split(',') }} {{ map.items()|list }} {{ map.get('q', 9) }}",
            "ANN ['a', 'b'] [('b', 2), ('a', 1)] 9"},
        Row{"{{ 18446744073709551615 + 1 }} {{ 1e100 }} {{ 0.1 + 0.2 }}",
            "18446744073709551616 1e+100 0.30000000000000004"}));

INSTANTIATE_TEST_SUITE_P(WhiteSpace, TemplateRows,
                         ::testing::Values(Row{"a\n{% if yes %}\nb\n{% endif %}\nc\n", "a\nb\nc"},
                                           Row{"a\n   {% set x = 1 %}   \nb", "a\n   \nb"},
                                           Row{"  {%- if yes -%}  x  {%- endif -%}  y", "xy"},
                                           Row{"  {%+ if yes %}x{% endif %}", "  x"},
                                           Row{"{% if yes +%}\nx{% endif %}", "\nx"}, Row{"a  {{- 1 -}}  b", "a1b"},
                                           Row{"a  {{ 1 }}\n b", "a  1\n b"}, Row{"a\r\nb\rc\n\n", "a\nb\nc\n"},
                                           Row{"x {#- gone -#} y {# gone #}z", "xy z"},
                                           Row{"{% raw %}{{ x }} {% y %}{# z #}{% endraw %}", "{{ x }} {% y %}{# z #}"},
                                           Row{"plain { } %} }} #}", "plain { } %} }} #}"}, Row{"", ""}));

INSTANTIATE_TEST_SUITE_P(
    Filters, TemplateRows,
    ::testing::Values(
        Row{"{{ text|trim }}|{{ name|lower }}|{{ list|length }}|{{ list|first }}{{ list|last }}", "a b|ann|3|32"},
        Row{"{{ list|sort|join(', ') }} {{ list|sum }} {{ list|min }} {{ [1, 1, 2]|unique|list }}",
            "1, 2, 3 6 1 [1, 2]"},
        Row{"{{ users|map(attribute='name')|join('+') }}", "Ann+bob+Cy"},
        Row{"{{ users|selectattr('age', 'gt', 30)|map(attribute='name')|list }}", "['Ann', 'Cy']"},
        Row{"{{ users|groupby('age')|map('first')|list }} {{ map|dictsort }}", "[25, 31] [('a', 1), ('b', 2)]"},
        Row{"{{ {'a': '<\u00e9>\"'}|tojson }} {{ [1, {}]|tojson(indent=2) }}",
            "{\"a\": \"<\u00e9>\\\"\"} [\n  1,\n  {}\n]"},
        Row{"{{ missing|default('d') }}{{ ''|default('e', true) }} {{ '3.7'|int }} {{ 'x'|int(5) }} {{ 2.5|round }}",
            "de 3 5 2.0"},
        Row{"{{ 'a\\nb'|indent(2) }} {{ 'aXa'|replace('a', 'b') }} {{ 'some words'|title }}", "a\n  b bXb Some Words"},
        Row{"{{ '<b>'|escape }} {{ '<b>'|safe }}", "&lt;b&gt; <b>"},
        Row{"{% filter upper %}a{{ n }}b{% endfilter %}", "A3B"}));

INSTANTIATE_TEST_SUITE_P(
    Tests, TemplateRows,
    ::testing::Values(
        Row{"{{ n is odd }} {{ n is divisibleby 2 }} {{ n is number }} {{ name is string }}", "True False True True"},
        Row{"{{ map is mapping }} {{ list is iterable }} {{ list is sequence }} {{ n is iterable }}",
            "True True True False"},
        Row{"{{ none is none }} {{ yes is true }} {{ 1 is true }} {{ yes is boolean }}", "True True False True"},
        Row{"{{ n is eq 3 }} {{ n is in list }} {{ missing is undefined }} {{ n is not none }}",
            "True True True True"}));

INSTANTIATE_TEST_SUITE_P(
    Loops, TemplateRows,
    ::testing::Values(
        Row{"{% for x in list %}{{ loop.index }}/{{ loop.length }}:{{ x }}{{ ',' if not loop.last }}{% endfor %}",
            "1/3:3,2/3:1,3/3:2"},
        Row{"{% for x in list if x > 1 %}{{ loop.index0 }}{{ x }}{{ loop.revindex }} {% endfor %}", "032 121 "},
        Row{"{% for x in empty %}x{% else %}nothing{% endfor %}", "nothing"},
        Row{"{% for k, v in map.items() %}{{ k }}={{ v }};{% endfor %}", "b=2;a=1;"},
        Row{"{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i "
            "}}{% endfor %}",
            "023"},
        Row{"{% for x in [1, [2, [3]]] recursive %}{{ x if x is number else '<' ~ loop(x) ~ '>' }}{% endfor %}",
            "1<2<3>>"},
        Row{"{% for x in 'abc' %}{{ loop.previtem }}{{ x }}{{ loop.nextitem }}{{ loop.cycle('-', '+') }}{% endfor %}",
            "ab-abc+bc-"},
        Row{"{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}", "TrueFalseTrue"}));

INSTANTIATE_TEST_SUITE_P(
    ScopesAndMacros, TemplateRows,
    ::testing::Values(
        Row{"{% set x = 1 %}{% for i in list %}{% set x = i %}{% endfor %}{{ x }}", "1"},
        Row{"{% set ns = namespace(sum=0) %}{% for i in list %}{% set ns.sum = ns.sum + i %}{% endfor %}{{ ns.sum }}",
            "6"},
        Row{"{% if yes %}{% set x = 2 %}{% endif %}{{ x }}", "2"}, Row{"{% set a, b = 1, 2 %}{{ b }}{{ a }}", "21"},
        Row{"{% set x %}in {{ n }}{% endset %}[{{ x }}]", "[in 3]"},
        Row{"{% with x = 5 %}{{ x }}{% endwith %}{{ x }}", "5"},
        Row{"{% macro m(a, b='d') %}({{ a }}{{ b }}){% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(b=3, a=4) }}",
            "(1d)(12)(43)"},
        Row{"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, x=2) }}", "(1,){'x': 2}"},
        Row{"{% macro m() %}<{{ caller(7) }}>{% endmacro %}{% call(i) m() %}{{ i }}{% endcall %}", "<7>"},
        Row{"{% macro f(k) %}{{ k }}{{ f(k - 1) if k }}{% endmacro %}{{ f(3) }}", "3210"},
        Row{"{% generation %}said{% endgeneration %}", "said"}));

struct Refusal {
  const char *source, *message;
};

void PrintTo(const Refusal& row, std::ostream* out) { *out << row.source; }

class TemplateRefusals : public ::testing::TestWithParam<Refusal> {};

TEST_P(TemplateRefusals, SaysWhatAndWhere) {
  EXPECT_THAT(refused(GetParam().source), HasSubstr(GetParam().message)) << GetParam().source;
}

INSTANTIATE_TEST_SUITE_P(
    Syntax, TemplateRefusals,
    ::testing::Values(
        Refusal{"a\n{{ 1 + }}", "line 2, column 8"}, Refusal{"{{ 'open }}", "line 1, column 4: the string has no end"},
        Refusal{"{# open", "the comment {# has no end #}"}, Refusal{"{% raw %}x", "has no {% endraw %}"},
        Refusal{"\n\n{% nope %}", "line 3, column 4: unknown or misplaced tag 'nope'"},
        Refusal{"{% if yes %}\nx", "ends inside of 'if', before 'elif' or 'else' or 'endif'"},
        Refusal{"{% for x in list %}{% endif %}", "'endif'"}, Refusal{"{{ n|nope }}", "no filter or test named 'nope'"},
        Refusal{"{{ n is nope }}", "no filter or test named 'nope'"}, Refusal{"{% include 'x' %}", "'include'"},
        Refusal{"{% break %}", "need a loop"}, Refusal{"{% set true = 1 %}", "cannot assign to 'true'"},
        Refusal{"{{ [1 }}", "unexpected '}'"}, Refusal{"{{ @ }}", "unexpected character '@'"},
        Refusal{"{{ '\\N{DASH}' }}", "\\N{...} escapes are not supported"},
        Refusal{"{{ 1 \xFF }}", "not UTF-8: bad byte at offset 5"}));

INSTANTIATE_TEST_SUITE_P(
    Rendering, TemplateRefusals,
    ::testing::Values(
        Refusal{"\n{{ missing.x }}", "template line 2: 'missing' is undefined"},
        Refusal{"{{ 1 / 0 }}", "template line 1: division by zero"}, Refusal{"{{ 'a' + 1 }}", "unsupported operand"},
        Refusal{"{{ n() }}", "'int' object is not callable"}, Refusal{"{% for x in n %}{% endfor %}", "not iterable"},
        Refusal{"a\n\n{% if yes %}\n{{ raise_exception('too\tfew') }}{% endif %}", "template line 4: too\\x09few"},
        Refusal{"{% set map.x = 1 %}", "cannot assign attribute 'x' on non-namespace"},
        Refusal{"{{ 1 < 'a' }}", "'<' not supported between instances of 'int' and 'str'"},
        Refusal{"{{ missing|tojson }}", "not JSON serializable"},
        Refusal{"{{ 'x' % 1 }}", "not all arguments converted"}, Refusal{"{{ list.sort() }}", "unsafe"},
        Refusal{"{{ name.__class__.__mro__ }}", "unsafe"}, Refusal{"{{ 3 ** 200 }}", "the number is too large"}));

// ---- limits

const TemplateLimits kSmall = {
    .depth = 20, .fuel = 20'000, .fuel_per_byte = 0, .output_bytes = 10'000, .source_bytes = 5'000};

INSTANTIATE_TEST_SUITE_P(
    Limits, TemplateRefusals,
    ::testing::Values(
        Refusal{"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "too many steps"},
        Refusal{"{{ 'x' * 100000000 }}", "a text of over 16777216 bytes"},
        Refusal{"{{ [0] * 100000000 }}", "a list of over 1000000 items"},
        Refusal{"{{ 'x'.center(999999999999) }}", "a text of over"},
        Refusal{"{{ '%999999999d' % 1 }}", "a text of over"},
        Refusal{"{{ range(10000000)|list }}", "the sandbox stops at 100000"},
        Refusal{"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deep"},
        Refusal{"{% set ns = namespace(v=[]) %}{% for i in range(999) %}{% set ns.v = [ns.v] %}{% endfor %}",
                "deeper than 256"}));

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
  EXPECT_EQ(rendered("x", Json::object({{"deep", deep}})), "x");  // never asked for
}

// What a hostile template does with the most work for the fewest steps; each must end, one way or the other, soon.
TEST(TemplateLimits, HostileTemplatesEndSoon) {
  const char* sources[] = {
      "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
      "{% set ns = namespace(l=[]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l == "
      "ns.l|list }}",
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
    const auto start = std::chrono::steady_clock::now();
    try {
      rendered(source);
    } catch (const Error&) {}
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_LT(took.count(), 5.0) << source;  // far over what it takes, for slow machines and sanitizers
  }
}

// ---- the rest of the interface

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

// Pieces of syntax in any order: text or an Error, and the same each time.
TEST(Template, SurvivesAnySyntax) {
  const char* pieces[] = {"{% ",      " %}",       "{{ ",    " }}",  "{#", "#}",   "-%}",  "{%-",  "if ",
                          "endif",    "for x in ", "endfor", "else", "x",  "list", "[",    "]",    "(",
                          ")",        "|",         "map",    ".",    "=",  "set ", "1",    "'s'",  "macro m(",
                          "endmacro", "m(",        "loop",   ",",    "~",  "is ",  "not ", "none", "\n",
                          " ",        "raw",       "endraw", "**",   "-",  ":"};
  const unsigned seed = std::random_device{}();
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
