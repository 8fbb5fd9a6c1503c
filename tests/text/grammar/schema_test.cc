// The reader of JSON Schemas: its messages for wrong, large and hostile schemas, the differences between drafts, and
// the parts that a lenient reader omits. schema_machine_test.cc tests the verdicts on values.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/json.h"
#include "text/grammar/grammar_check.h"
#include "text/grammar/machine/schema_machine.h"
#include "text/grammar/masks/model_grammars.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;

constexpr MachineOptions kUnordered{.any_order = true};

bool accepts(std::string_view schema, std::string_view text) {
  return ingot::testing::accepts(*compile_schema(schema, {}, kUnordered), text);
}

std::string error_of(std::string_view schema) {
  return ingot::testing::error_of([&] { compile_schema(schema, {}, kUnordered); });
}

struct Lenient {
  explicit Lenient(std::string_view schema) : machine(compile_schema(schema, {.is_lenient = true}, kUnordered)) {}
  bool accepts(std::string_view text) { return ingot::testing::accepts(*machine, text); }
  const std::vector<std::string>& warnings() const { return machine->table().warnings; }
  std::unique_ptr<SchemaMachine> machine;
};

// ---- Limits

std::string nested(std::string_view begin, std::string_view end, int n) {
  std::string text, ends;
  for (int i = 0; i < n; ++i) text += begin, ends += end;
  return text + "{}" + ends;
}

TEST(Schema, SchemasNestOnlySoDeep) {
  const std::pair<const char*, const char*> kinds[] = {{R"({"properties":{"a":)", "}}"},
                                                       {R"({"items":)", "}"},
                                                       {R"({"allOf":[)", "]}"},
                                                       {R"({"anyOf":[)", "]}"},
                                                       {R"({"not":{"not":)", "}}"}};
  for (auto [begin, end] : kinds) {
    const int most = std::string_view(begin).starts_with(R"({"not")") ? 31 : 63;
    EXPECT_EQ(error_of(nested(begin, end, most)), "no error") << begin;
    EXPECT_THAT(error_of(nested(begin, end, most + 1)), HasSubstr("schemas nest deeper than 64")) << begin;
    for (int n : {1000, 40000}) EXPECT_THAT(error_of(nested(begin, end, n)), HasSubstr("nest deeper than")) << begin;
  }
  EXPECT_THAT(error_of(R"({"const":)" + nested("[", "]", 300) + "}"), HasSubstr("values nest deeper than 256"));
  EXPECT_THAT(error_of(std::string(1000000, '[')), HasSubstr("nest deeper"));
  EXPECT_THAT(error_of(R"({"const":")" + std::string(2 << 20, 'a') + "\"}"), HasSubstr("at most 1048576"));
}

TEST(Schema, CountsAreWholeNumbersWithinLimits) {
  for (const char* key : {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}) {
    const auto with = [&](const char* value) { return fmt::format(R"({{"items":{{"{}":{}}}}})", key, value); };
    for (const char* value : {"18446744073709551615", "-1", "1.5", "\"3\"", "null", "[]", "1e400"})
      EXPECT_NE(error_of(with(value)), "no error") << key << value;
    EXPECT_THAT(error_of(with("-1")), HasSubstr(fmt::format("#/items: '{}' is not a whole number", key)));
    EXPECT_THAT(error_of(with("18446744073709551615")), HasSubstr("too large"));
    for (const char* value : {"0", "3", "3.0"}) EXPECT_EQ(error_of(with(value)), "no error") << key << value;
  }
  EXPECT_THAT(error_of(R"({"minItems":3,"maxItems":2})"), HasSubstr("'minItems' is above maxItems: 3 is above 2"));
  EXPECT_THAT(error_of(R"({"minLength":3,"maxLength":2})"), HasSubstr("'minLength'"));
  EXPECT_TRUE(accepts(R"({"maxLength":2147483647})", R"("a")"));
}

TEST(Schema, NamesTimesPatternsAreLimited) {
  std::string patterns = R"({"properties":{")" + std::string(200000, 'a') + R"(":{}},"patternProperties":{)";
  for (int i = 0; i < 1000; ++i) patterns += fmt::format(R"({}"^a{}$":{{}})", i == 0 ? "" : ",", i);
  EXPECT_THAT(error_of(patterns + "}}"), HasSubstr("too many patterns"));
}

TEST(Schema, EnumsOfAnySize) {
  EXPECT_THAT(error_of(R"({"items":{"enum":[]}})"), HasSubstr("#/items: 'enum' is empty"));
  EXPECT_TRUE(accepts(R"({"const":null})", "null"));
  const char* mixed = R"({"enum":[null,true,1,"a",[1,{"b":2}],{"c":[]}]})";
  for (const char* value : {"null", "true", "1", "1.0", "\"a\"", R"([1,{"b":2}])", R"({"c":[]})"})
    EXPECT_TRUE(accepts(mixed, value)) << value;
  for (const char* value : {"false", "2", "\"b\"", R"([1,{"b":3}])", "{}"})
    EXPECT_FALSE(accepts(mixed, value)) << value;
  std::string many = R"({"enum":[0)";
  for (int i = 1; i < 30000; ++i) many += fmt::format(",\"v{}\"", i);
  EXPECT_TRUE(accepts(many + "]}", "\"v29999\""));
  EXPECT_FALSE(accepts(many + "]}", "\"v30000\""));
  const std::string large(20000, 'a'), larger(200000, 'a');
  const std::string two = R"({"enum":[")" + large + "\",\"" + large + "b\"]}";  // a long common prefix
  EXPECT_TRUE(accepts(two, '"' + large + "b\""));
  EXPECT_FALSE(accepts(two, '"' + large + "c\""));
  EXPECT_EQ(error_of(R"({"enum":[")" + larger + "\",\"" + larger + "b\"]}"), "no error");
}

TEST(Schema, CombinationsCostNoPower) {
  std::string optional = R"({"properties":{)", products = R"({"allOf":[)", sums = R"({"allOf":[)";
  for (int i = 0; i < 20; ++i) optional += fmt::format(R"({}"p{}":{{"type":"integer"}})", i == 0 ? "" : ",", i);
  for (int i = 0; i < 6; ++i) {
    products += i == 0 ? R"({"anyOf":[)" : R"(,{"anyOf":[)";
    sums += i == 0 ? R"({"oneOf":[)" : R"(,{"oneOf":[)";
    for (int k = 0; k < 6; ++k) {
      products += fmt::format(R"({}{{"required":["a{}{}"]}})", k == 0 ? "" : ",", i, k);
      sums +=
          fmt::format(R"({}{{"properties":{{"a{}":{{"const":{}}}}},"required":["a{}"]}})", k == 0 ? "" : ",", i, k, i);
    }
    products += "]}", sums += "]}";
  }
  EXPECT_TRUE(accepts(optional + "}}", R"({"p19":1,"p3":2})"));
  EXPECT_TRUE(accepts(products + "]}", R"({"a00":1,"a11":1,"a22":1,"a33":1,"a44":1,"a55":1})"));
  EXPECT_FALSE(accepts(products + "]}", R"({"a00":1,"a11":1,"a22":1,"a33":1,"a44":1})"));
  EXPECT_TRUE(accepts(sums + "]}", R"({"a0":0,"a1":1,"a2":2,"a3":3,"a4":4,"a5":5})"));
  EXPECT_FALSE(accepts(sums + "]}", R"({"a0":0,"a1":1,"a2":2,"a3":3,"a4":4,"a5":6})"));
}

TEST(Schema, UnevaluatedMembersOfManyConditions) {
  std::string any = R"({"properties":{"b":true,"a":true},"anyOf":[)",
              doubled = R"({"unevaluatedProperties":false,"$defs":{"d0":{})";
  for (int i = 0; i < 40; ++i)
    any += fmt::format(R"({}{{"properties":{{"p{}":{{"const":1}}}}}})", i == 0 ? "" : ",", i);
  for (int i = 1; i < 60; ++i)
    doubled +=
        fmt::format(R"(,"d{}":{{"anyOf":[{{"$ref":"#/$defs/d{}"}},{{"$ref":"#/$defs/d{}"}}]}})", i, i - 1, i - 1);
  any += R"(],"unevaluatedProperties":false})";
  EXPECT_TRUE(accepts(any, R"({"p39":1,"a":2,"p3":1})"));
  EXPECT_FALSE(accepts(any, R"({"p39":1,"a":2,"p3":2})"));
  EXPECT_FALSE(accepts(any, R"({"q":1})"));
  EXPECT_THAT(error_of(doubled + R"(},"$ref":"#/$defs/d59"})"),
              HasSubstr("'unevaluatedProperties' depends on too many"));
  EXPECT_EQ(error_of(doubled.replace(1, 29, R"("$comment":"")") + R"(},"propertyNames":{"$ref":"#/$defs/d59"}})"),
            "no error");
  const auto ordered = compile_schema(any, {}, {});
  EXPECT_TRUE(ingot::testing::accepts(*ordered, R"({"b":1,"a":2,"p0":1,"p1":1})"));
  EXPECT_FALSE(ingot::testing::accepts(*ordered, R"({"a":2,"b":1})"));
  EXPECT_FALSE(ingot::testing::accepts(*ordered, R"({"p0":1,"a":2})"));
}

// ---- References

TEST(Schema, ReferencesThatLeadNowhere) {
  EXPECT_THAT(error_of(R"({"$ref":"#"})"), HasSubstr("leads back to itself"));
  EXPECT_THAT(error_of(R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})"),
              HasSubstr("leads back"));
  EXPECT_THAT(error_of(R"({"items":{"$ref":"#/$defs/none"}})"), HasSubstr("#/items: '$ref' points to '#/$defs/none'"));
  for (const char* outside : {"http://example.com/s", "file:///etc/passwd", "other.json"})
    EXPECT_THAT(error_of(fmt::format(R"({{"$ref":"{}"}})", outside)), HasSubstr("not part of this schema")) << outside;
  EXPECT_THAT(error_of(R"({"$ref":5})"), HasSubstr("'$ref' is not a string"));
  EXPECT_TRUE(accepts(R"({"$defs":{"a/b":{"c~d":{}},"x~y":{"type":"null"}},"$ref":"#/$defs/x~0y"})", "null"));
  EXPECT_FALSE(accepts(R"({"$defs":{"a/b":{"type":"null"}},"$ref":"#/$defs/a~1b"})", "1"));
  const char* list = R"({"type":"object","properties":{"next":{"$ref":"#"}},"additionalProperties":false})";
  EXPECT_TRUE(accepts(list, R"({"next":{"next":{}}})"));
  EXPECT_FALSE(accepts(list, R"({"next":{"nest":{}}})"));
  std::string chain = R"({"$ref":"#/$defs/s0","$defs":{)";
  for (int i = 0; i < 16000; ++i) chain += fmt::format(R"("s{}":{{"$ref":"#/$defs/s{}"}},)", i, i + 1);
  EXPECT_THAT(error_of(chain + R"("s16000":{}}})"), HasSubstr("more than 512 links"));
}

// ---- Drafts

TEST(Schema, KeywordsOfLaterDraftsAreIgnored) {
  const char* schema = R"({"$schema":"http://json-schema.org/draft-04/schema#","if":{"type":"string"},"then":false,
                           "const":5,"properties":{"a":{"contains":{"type":"null"}}}})";
  const auto machine = compile_schema(schema, {}, kUnordered);
  for (const char* text : {"\"a\"", "5", "6", R"({"a":[1]})"})
    EXPECT_TRUE(ingot::testing::accepts(*machine, text)) << text;
  const auto& warnings = machine->table().warnings;
  ASSERT_EQ(warnings.size(), 4u);
  EXPECT_THAT(warnings, ::testing::Contains(HasSubstr("schema #: 'if' is ignored")));
  EXPECT_THAT(warnings, ::testing::Contains(HasSubstr("schema #/properties/a: 'contains' is ignored")));
  EXPECT_FALSE(
      accepts(R"({"$schema":"http://json-schema.org/draft-07/schema#","if":{"type":"string"},"then":false})", "\"a\""));
  EXPECT_FALSE(accepts(R"({"if":{"type":"string"},"then":false})", "\"a\""));
}

TEST(Schema, RecursiveAnchorsOfDraft2019) {
  const char* tree =
      R"({"$schema":"https://json-schema.org/draft/2019-09/schema","$id":"http://t/strict","$recursiveAnchor":true,
      "$ref":"tree","unevaluatedProperties":false,
      "$defs":{"tree":{"$id":"tree","$recursiveAnchor":true,"type":"object",
                       "properties":{"kids":{"type":"array","items":{"$recursiveRef":"#"}}}}}})";
  EXPECT_TRUE(accepts(tree, R"({"kids":[{"kids":[]}]})"));
  EXPECT_FALSE(accepts(tree, R"({"kids":[{"kid":[]}]})"));
  EXPECT_FALSE(accepts(tree, R"({"kids":[{"kids":[{"a":1}]}]})"));
}

// ---- Wrong schemas

TEST(Schema, WrongOnesAreRefused) {
  for (const char* schema :
       {R"({"type":5})", R"({"type":[]})", R"({"type":["string",1]})", R"({"properties":[]})",
        R"({"properties":{"a":null}})", R"({"required":"a"})", R"({"required":[1]})", "null", "5", "\"a\"",
        R"({"anyOf":[]})", R"({"allOf":{}})", R"({"items":5})", R"({"pattern":5})", R"({"multipleOf":0})",
        R"({"minimum":"1"})", R"({"patternProperties":[]})", R"({"dependentRequired":{"a":[1]}})"})
    EXPECT_NE(error_of(schema), "no error") << schema;
  for (const char* schema : {"true", R"({"type":["string","null"]})", R"({"properties":{"a":true,"b":false}})",
                             R"({"required":["x"],"properties":{"y":{}}})"})
    EXPECT_EQ(error_of(schema), "no error") << schema;
  EXPECT_THAT(error_of("false"), HasSubstr("allows no value at all"));
}

TEST(Schema, PatternsSayWhatCannotBe) {
  const auto says = [](const std::string& pattern, const char* what) {
    const nlohmann::json schema = {{"items", {{"pattern", pattern}}}};
    const std::string error = error_of(schema.dump());
    EXPECT_THAT(error, HasSubstr("schema #/items: 'pattern'"));
    EXPECT_THAT(error, HasSubstr(what)) << pattern.substr(0, 20);
  };
  says(std::string(60000, '('), "groups nest too deeply");
  says("*abc", "nothing to repeat at byte 0");
  says("(?<=x)a", "look-behind is not supported");
  says("(a)\\1", "back references");
  says("\\ba", "word boundaries");
  says("[", "a ']' is missing");
  says("[\\s\\S]{0,100000}", "more than 65535");
  says("a{2,1}", "out of order");
  EXPECT_TRUE(accepts(R"({"pattern":"^(a+)+$"})", '"' + std::string(5000, 'a') + '"'));
  EXPECT_FALSE(accepts(R"({"pattern":"^(a+)+$"})", '"' + std::string(5000, 'a') + "b\""));
  EXPECT_NE(error_of("{\"pattern\":\"\xff\"}"), "no error");
}

TEST(Schema, NamesMayBeAnyText) {
  const nlohmann::json schema = {{"properties",
                                  {{"\"", {{"const", 1}}},
                                   {std::string("\0", 1), {{"const", 2}}},
                                   {"😀", {{"const", 3}}},
                                   {"__proto__", {{"const", 4}}},
                                   {"a\\b/c~", {{"const", 5}}}}}};
  const auto machine = compile_schema(schema.dump(), {}, kUnordered);
  for (const char* text : {R"({"\"":1})", R"({"\u0000":2})", R"({"😀":3})", R"({"\ud83d\ude00":3})",
                           R"({"__proto__":4})", R"({"a\\b/c~":5})"})
    EXPECT_TRUE(ingot::testing::accepts(*machine, text)) << text;
  EXPECT_FALSE(ingot::testing::accepts(*machine, R"({"\"":2})"));
  EXPECT_FALSE(ingot::testing::accepts(*machine, R"({"\u0000":1})"));
  std::string many = R"({"properties":{)";
  for (int i = 0; i < 10000; ++i) many += fmt::format(R"({}"name{}":{{"const":{}}})", i == 0 ? "" : ",", i, i);
  EXPECT_TRUE(accepts(many + "}}", R"({"name9999":9999})"));
  EXPECT_FALSE(accepts(many + "}}", R"({"name9999":1})"));
  std::string more = R"({"properties":{"a":{})";
  for (int i = 0; i < 16384; ++i) more += fmt::format(R"(,"n{}":{{}})", i);
  EXPECT_THAT(error_of(more + "}}"), HasSubstr("an object has more than 16384 members"));
}

// Texts for human readers do not change the allowed values.
TEST(Schema, DescriptionsHaveNoEffect) {
  const auto with = [](const std::string& text) {
    const nlohmann::json schema = {
        {"type", "object"},
        {"description", text},
        {"title", text},
        {"$comment", text},
        {"properties", {{"city", {{"type", "string"}, {"description", text}, {"examples", {text}}}}}},
        {"required", {"city"}}};
    return compile_schema(schema.dump(), {}, {});
  };
  for (int i = 0; i < 1000; ++i) {
    const auto machine =
        with(fmt::format("{} \"enum\": [{}] $ref ::= </s>", std::string(static_cast<size_t>(i), '{'), i));
    ASSERT_TRUE(ingot::testing::accepts(*machine, R"({"city": "Paris"})"));
    ASSERT_FALSE(ingot::testing::accepts(*machine, R"({"city": 1})"));
    ASSERT_FALSE(ingot::testing::accepts(*machine, "{}"));
    ASSERT_TRUE(machine->table().warnings.empty());
  }
}

// A model that only writes blanks would never end.
TEST(Schema, WhiteSpaceIsBounded) {
  const auto with = [](const std::string& blanks) { return accepts("{}", "[" + blanks + "1]"); };
  for (const std::string& blanks : {std::string(), std::string(" "), std::string("\n"), "\n" + std::string(15, ' ')})
    EXPECT_TRUE(with(blanks)) << blanks.size();
  for (const std::string& blanks : {std::string("  "), std::string("\n\n"), "\n" + std::string(16, ' ')})
    EXPECT_FALSE(with(blanks)) << blanks.size();
}

// ---- Lenient

TEST(Schema, LenientOnesAllowMoreAndNeverLess) {
  const char* pattern = R"({"pattern":"(a)\\1"})";
  const std::pair<std::string, std::vector<const char*>> cases[] = {
      {fmt::format(R"({{"not":{}}})", pattern), {"\"aa\"", "\"b\"", "1"}},
      {fmt::format(R"({{"oneOf":[{},{{"type":"string"}}]}})", pattern), {"\"aa\"", "\"b\"", "1"}},
      {fmt::format(R"({{"if":{},"then":{{"maxLength":2}},"else":{{"maxLength":1}}}})", pattern), {"\"aa\"", "\"b\""}},
      {fmt::format(R"({{"not":{{"properties":{{"x":{}}},"required":["x"]}}}})", pattern), {R"({"x":"b"})", "{}"}},
      {R"({"patternProperties":{"(a)\\1":{"type":"integer"}},"additionalProperties":false})",
       {R"({"aa":1})", R"({"b":"c"})"}},
      {fmt::format(R"({{"contains":{},"maxContains":1}})", pattern), {R"(["aa","b","c"])"}},
      {R"({"$ref":"http://example.com/s"})", {"1", "{}"}},
      {R"({"$ref":"http://example.com/s","unevaluatedProperties":false})", {R"({"a":1})"}},
      {R"({"format":"regex","type":"string"})", {"\"(\""}},
  };
  for (const auto& [schema, texts] : cases) {
    Lenient lenient(schema);
    for (const char* text : texts) EXPECT_TRUE(lenient.accepts(text)) << schema << " " << text;
    ASSERT_EQ(lenient.warnings().size(), 1u) << schema;
    EXPECT_THAT(lenient.warnings()[0], HasSubstr("is not enforced"));
    EXPECT_NE(error_of(schema), "no error") << schema;
  }
}

TEST(Schema, LenientOnesKeepWhatCanBeEnforced) {
  Lenient lenient(
      R"({"properties":{"x":{"pattern":"(a)\\1","maxLength":2},"y":{"not":{"type":"null"}}},"required":["x"]})");
  EXPECT_TRUE(lenient.accepts(R"({"x":"b"})"));
  EXPECT_FALSE(lenient.accepts(R"({"x":"bcd"})"));
  EXPECT_FALSE(lenient.accepts(R"({"y":1})"));
  EXPECT_FALSE(lenient.accepts(R"({"x":"b","y":null})"));
  ASSERT_EQ(lenient.warnings().size(), 1u);
  EXPECT_THAT(lenient.warnings()[0], HasSubstr("schema #/properties/x: 'pattern' is not enforced"));
  EXPECT_NE(ingot::testing::error_of([] { Lenient(R"({"type":"strin"})"); }), "no error");
}

TEST(Schema, CompileTellsWarnings) {
  std::vector<std::string> warnings;
  compile({GrammarKind::kSchema, R"({"format":"regex"})", false, true}, &warnings);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("schema #: 'format' is not enforced"));
  EXPECT_THROW(compile({GrammarKind::kSchema, R"({"format":"regex"})"}), Error);
}

}  // namespace
}  // namespace ingot
