// Rules that must fail (`not`, `if`, `oneOf`, `maxContains`): a text of which ingot does not know whether it meets a
// rule must neither pass the rule nor its opposite. The oracle for numbers is arithmetic of whole numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "test_seed.h"
#include "text/grammar/grammar_check.h"
#include "text/grammar/machine/schema_machine.h"

namespace ingot {
namespace {

constexpr int kScale = 8;  // decimals of the oracle's numbers

// A number of at most `kScale` decimals, times 10^kScale.
using Scaled = __int128;

struct NegationSpelling {
  std::string text;
  Scaled value;
  bool is_plain;  // without an exponent and a sign before zero
};

Scaled power_of_ten(int n) { return n == 0 ? 1 : 10 * power_of_ten(n - 1); }

// A spelling of `digits` * 10^exponent: written out or with an exponent, with zeros at the end or without.
NegationSpelling spell(std::mt19937_64& random) {
  const auto draw = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  const int64_t digits = draw(3) == 0 ? draw(4) : draw(2000);
  const int n_decimals = draw(3), exponent = draw(9) - 4;
  const bool has_exponent = draw(2) == 0, is_negative = draw(3) == 0;
  std::string text = std::to_string(digits);
  if (n_decimals > 0) {
    if (text.size() <= size_t(n_decimals)) text.insert(0, size_t(n_decimals) + 1 - text.size(), '0');
    text.insert(text.size() - size_t(n_decimals), ".");
  }
  if (has_exponent)
    text += fmt::format("{}{}{}", draw(2) ? "e" : "E", exponent < 0 ? "-" : draw(2) ? "+" : "", std::abs(exponent));
  const Scaled value = digits * power_of_ten(kScale - n_decimals + (has_exponent ? exponent : 0));
  return {(is_negative ? "-" : "") + text, is_negative ? -value : value,
          !has_exponent && !(is_negative && digits == 0)};
}

struct NumberRule {
  std::string keywords;
  bool (*holds)(Scaled value, Scaled bound);
  Scaled bound = 0;
};

NumberRule draw_number_rule(std::mt19937_64& random) {
  const NegationSpelling bound = [&] {
    NegationSpelling one = spell(random);
    while (!one.is_plain) one = spell(random);
    return one;
  }();
  const Scaled step = bound.value < 0 ? -bound.value : bound.value;
  switch (random() % 8) {
    case 0: return {R"("minimum":)" + bound.text, [](Scaled v, Scaled b) { return v >= b; }, bound.value};
    case 1: return {R"("maximum":)" + bound.text, [](Scaled v, Scaled b) { return v <= b; }, bound.value};
    case 2: return {R"("exclusiveMinimum":)" + bound.text, [](Scaled v, Scaled b) { return v > b; }, bound.value};
    case 3: return {R"("exclusiveMaximum":)" + bound.text, [](Scaled v, Scaled b) { return v < b; }, bound.value};
    case 4: return {R"("type":"integer")", [](Scaled v, Scaled b) { return v % b == 0; }, power_of_ten(kScale)};
    case 5: return {R"("const":)" + bound.text, [](Scaled v, Scaled b) { return v == b; }, bound.value};
    case 6: return {R"("enum":["a",)" + bound.text + "]", [](Scaled v, Scaled b) { return v == b; }, bound.value};
    default: {
      const Scaled positive = step == 0 ? power_of_ten(kScale) : step;
      const std::string text = step == 0 ? "1" : bound.text.substr(bound.text[0] == '-');
      return {R"("multipleOf":)" + text, [](Scaled v, Scaled b) { return v % b == 0; }, positive};
    }
  }
}

// How a schema may demand that a value does not meet a rule.
struct Opposite {
  const char* schema;  // {} is the rule
  const char* value;   // {} is the number
};
constexpr Opposite kOpposites[] = {
    {R"({{"not":{{{}}}}})", "{}"},
    {R"({{"if":{{{}}},"then":false}})", "{}"},
    {R"({{"if":{{{}}},"else":true,"then":{{"type":"string"}}}})", "{}"},
    {R"({{"oneOf":[{{{}}},true]}})", "{}"},
    {R"({{"contains":{{{}}},"minContains":0,"maxContains":0}})", "[{}]"},
    {R"({{"contains":{{{}}},"minContains":0,"maxContains":1}})", "[{0},{0}]"},
    {R"({{"required":["a"],"not":{{"properties":{{"a":{{{}}}}}}}}})", R"({{"a":{}}})"},
    {R"({{"minItems":1,"not":{{"items":{{{}}}}}}})", "[{}]"},
    {R"({{"type":"object","not":{{"additionalProperties":{{{}}}}}}})", R"({{"b":{}}})"},
    {R"({{"not":{{"not":{{"not":{{{}}}}}}}}})", "{}"},
    {R"({{"not":{{"anyOf":[{{{}}},{{"type":"string"}}]}}}})", "{}"},
};

TEST(SchemaNegation, NumbersInAnySpelling) {
  const uint64_t seed = test_seed();
  SCOPED_TRACE(fmt::format("INGOT_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  int n_inside = 0, n_outside = 0;
  for (int i = 0; i < 300; ++i) {
    const NumberRule rule = draw_number_rule(random);
    const auto machine = compile_schema("{" + rule.keywords + "}", {}, {.any_order = true});
    const Opposite& opposite = kOpposites[random() % std::size(kOpposites)];
    const std::string schema = fmt::format(fmt::runtime(opposite.schema), rule.keywords);
    const auto negated = compile_schema(schema, {}, {.any_order = true});
    for (int k = 0; k < 40; ++k) {
      const NegationSpelling number = spell(random);
      const bool is_inside = rule.holds(number.value, rule.bound);
      const bool passes = ingot::testing::accepts(*machine, number.text);
      const std::string value = fmt::format(fmt::runtime(opposite.value), number.text);
      const bool fails = ingot::testing::accepts(*negated, value);
      n_inside += passes, n_outside += fails;
      EXPECT_FALSE(passes && !is_inside) << rule.keywords << " " << number.text;
      EXPECT_FALSE(fails && is_inside) << schema << " " << value;
      if (!number.is_plain) continue;
      EXPECT_EQ(passes, is_inside) << rule.keywords << " " << number.text;
      EXPECT_EQ(fails, !is_inside) << schema << " " << value;
    }
  }
  EXPECT_GT(n_inside, 1000);
  EXPECT_GT(n_outside, 1000);
}

// Exponents stay possible where their value is certain.
TEST(SchemaNegation, NumbersWithCertainExponents) {
  const auto passes = [](const char* schema, const char* text) {
    return ingot::testing::accepts(*compile_schema(schema, {}, {.any_order = true}), text);
  };
  EXPECT_TRUE(passes(R"({"not":{"minimum":5}})", "1e-7"));
  EXPECT_TRUE(passes(R"({"not":{"type":"integer"}})", "-2.5e-3"));
  EXPECT_TRUE(passes(R"({"not":{"multipleOf":3}})", "1e-7"));
  EXPECT_TRUE(passes(R"({"not":{"maximum":5}})", "1e3"));
  EXPECT_TRUE(passes(R"({"not":{"type":"string"}})", "1e3"));
  EXPECT_TRUE(passes(R"({"contains":{"minimum":5}})", "[7,1e-7]"));
}

// Valid texts that ingot never writes: host names in Punycode, leap seconds with an offset.
TEST(SchemaNegation, FormatsThatAreNarrower) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"hostname", {"xn--bcher-kva.example", "a.XN--b1"}},
      {"email", {"a@xn--bcher-kva.example"}},
      {"time", {"15:59:60-08:00", "00:29:60.5+00:30"}},
      {"date-time", {"1990-12-31T15:59:60-08:00"}},
  };
  for (const auto& [format, texts] : cases) {
    const std::string rule = fmt::format(R"("format":"{}")", format);
    for (const Opposite& opposite : kOpposites) {
      if (std::string_view(opposite.schema).find("string") != std::string_view::npos) continue;
      const std::string schema = fmt::format(fmt::runtime(opposite.schema), rule);
      const auto machine = compile_schema(schema, {}, {.any_order = true});
      const auto value = [&](const char* text) {
        return fmt::format(fmt::runtime(opposite.value), '"' + std::string(text) + '"');
      };
      for (const char* text : texts)
        EXPECT_FALSE(ingot::testing::accepts(*machine, value(text))) << schema << " " << text;
      EXPECT_TRUE(ingot::testing::accepts(*machine, value("?"))) << schema;
    }
    const std::string names =
        fmt::format(R"({{"type":"object","minProperties":1,"not":{{"propertyNames":{{{}}}}}}})", rule);
    const auto machine = compile_schema(names, {}, {.any_order = true});
    for (const char* text : texts)
      EXPECT_FALSE(ingot::testing::accepts(*machine, fmt::format(R"({{"{}":1}})", text))) << names << " " << text;
    EXPECT_TRUE(ingot::testing::accepts(*machine, R"({"?":1})")) << names;
  }
}

}  // namespace
}  // namespace ingot
