// JSON Schema as a machine, compared with the verdicts of the jsonschema package. Also refusals, and masks: a mask must
// allow exactly the tokens whose bytes the machine accepts.
#include "text/grammar/machine/schema_machine.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "base/error.h"
#include "base/json.h"
#include "test_seed.h"
#include "text/grammar/grammar_check.h"
#include "text/grammar/masks/constraint.h"

namespace ingot {
namespace {

constexpr MachineOptions kAnyOrder{.any_order = true};

bool machine_accepts(std::string_view schema, std::string_view text, MachineOptions options = kAnyOrder) {
  return testing::accepts(*compile_schema(schema, {}, options), text);
}

std::string machine_refusal(std::string_view schema) {
  return ingot::testing::error_of([&] { compile_schema(schema, {}, kAnyOrder); });
}

template <class Visit>
void each_golden(Visit&& visit) {
  std::ifstream file(INGOT_TEST_DATA "/grammars/schemas.jsonl");
  for (std::string line; std::getline(file, line);) visit(nlohmann::json::parse(line));
}

TEST(SchemaMachine, AgreesWithJsonschema) {
  int n_valid = 0, n_invalid = 0, n_refused = 0, n_undecided = 0;
  each_golden([&](const nlohmann::json& golden) {
    const std::string schema = golden["schema"];
    std::unique_ptr<SchemaMachine> machine;
    try {
      machine = compile_schema(schema, {}, kAnyOrder);
    } catch (const Error& error) {  // right only if no value is valid
      ++n_refused;
      if (std::string_view(error.what()).find("too much work") != std::string_view::npos) {
        ++n_undecided;
      } else {
        EXPECT_STREQ(error.what(), "the schema allows no value at all") << schema;
      }
      for (const auto& test : golden["tests"]) EXPECT_FALSE(test[1].get<bool>()) << schema << " " << test[0];
      return;
    }
    for (const auto& test : golden["tests"]) {
      const std::string text = test[0];
      EXPECT_EQ(testing::accepts(*machine, text), test[1].get<bool>()) << schema << "\n" << text;
      ++(test[1].get<bool>() ? n_valid : n_invalid);
    }
  });
  EXPECT_GT(n_valid, 500);
  EXPECT_GT(n_invalid, 500);
  EXPECT_LT(n_refused, 110);
  EXPECT_LE(n_undecided, 2);
}

// Compares every token of a random vocabulary at each step of each valid value.
TEST(SchemaMachine, MasksSayWhatStepsSay) {
  const auto seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  int n_masks = 0, n_limited = 0;
  each_golden([&](const nlohmann::json& golden) {
    if (random() % 4 != 0) return;
    std::unique_ptr<SchemaMachine> machine, plain;
    try {
      machine = compile_schema(golden["schema"].get<std::string>(), {}, kAnyOrder);
      plain = compile_schema(golden["schema"].get<std::string>(), {}, kAnyOrder);
    } catch (const Error&) {
      return;
    }
    std::vector<std::string> tokens{""};  // the end token
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    for (const char* text :
         {"\", \"", "\"}", "\"]", "\": ", "{\"", "\\n", "\\\"", "\\u00", "a\", \"b", "\"a\"", ", ", "}]", "null", "12"})
      tokens.push_back(text);
    for (const auto& test : golden["tests"]) {
      const std::string text = test[0];
      for (int i = 0; i < 12 && !text.empty(); ++i)
        tokens.push_back(text.substr(random() % text.size(), 1 + random() % 6));
    }
    const auto vocabulary = std::make_shared<const GrammarVocabulary>(tokens, std::vector<int32_t>{0});
    const auto constraint = std::make_shared<Constraint>(std::move(machine), vocabulary);
    const auto compare = [&](const std::string& text) {
      Matcher matcher(constraint);
      GrammarState state = plain->start();
      for (size_t at = 0; at <= text.size(); ++at) {
        const auto mask = matcher.mask();
        ++n_masks;
        EXPECT_EQ(allows_token(*mask, 0), plain->accepts(state));
        for (size_t id = 1; id < tokens.size(); ++id) {
          plain->meter().limit(WorkMeter::kMaxWork);  // as for each token that a matcher accepts
          GrammarState next = state;
          for (char c : tokens[id]) next = next.is_dead() ? next : plain->step(next, static_cast<uint8_t>(c));
          ASSERT_EQ(allows_token(*mask, static_cast<int32_t>(id)), !next.is_dead())
              << golden["schema"] << "\n"
              << text.substr(0, at) << " then '" << tokens[id] << "'";
        }
        if (at == text.size()) break;
        ASSERT_TRUE(matcher.accept(1 + static_cast<uint8_t>(text[at])));
        state = plain->step(state, static_cast<uint8_t>(text[at]));
      }
      EXPECT_TRUE(matcher.can_end());
      matcher.roll_back(matcher.n_tokens());
      EXPECT_EQ(matcher.n_tokens(), 0);
    };
    try {
      for (const auto& test : golden["tests"])
        if (test[1].get<bool>()) compare(test[0]);
    } catch (const Error& error) {  // the meter decides too late for some heavily nested conditions
      ASSERT_NE(std::string_view(error.what()).find("too much work"), std::string_view::npos) << error.what();
      ++n_limited;
    }
  });
  EXPECT_GT(n_masks, 100);
  EXPECT_LE(n_limited, 9);  // of all 566 schemas
}

// The tokens are all bytes, and tokens that contain a quote, an escape or the end of a count.
TEST(SchemaMachine, MasksOfPatternsSayWhatStepsSay) {
  std::vector<std::string> tokens{""};
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"ab",    "abc",    "abcdefgh", "a.b",   "a b",  "..",   "é",    "éa",    "a\u2028",
                           "\xc3",  "\xa9\"", "a\"",      "\"]",   "a\"]", "\\\"", "\\/",  "\\n",   "n\"",
                           "\\u00", "e9",     "a\\",      "\",\"", "x1",   "1-",   "日本", "日b\"", "0123456789"}) {
    tokens.emplace_back(text);
  }
  const auto vocabulary = std::make_shared<const GrammarVocabulary>(tokens, std::vector<int32_t>{0});
  const char* const patterns[] = {
      "^[a-z]{2,6}$", "^[a-z0-9-]+$",  "^([a-z]+\\\\.)+[a-z]+$", "[0-9]{3}",  "^.{1,4}$", "^\\\\S+( \\\\S+){0,2}$",
      "^ab.*$",       "^[^/]*/[^/]*$", "^[a-z][a-z0-9]*$",       "^(?!a).*$", "^$|^x",    "^[\\u0100-\\uffff]+$"};
  const char* const texts[] = {R"(["abc")", R"(["a-1")",     R"(["ab.cd")", R"(["a123\\")", R"(["éa\\")",
                               R"(["a b")", R"(["ab\\u00")", R"(["/")",     R"(["日\\n")"};
  int n_masks = 0;
  for (const char* pattern : patterns) {
    const std::string schema =
        std::string(R"({"type":"array","items":{"type":"string","pattern":")") + pattern + R"("}})";
    const auto plain = compile_schema(schema, {}, kAnyOrder);
    const auto constraint = std::make_shared<Constraint>(compile_schema(schema, {}, kAnyOrder), vocabulary);
    for (const std::string_view text : texts) {
      Matcher matcher(constraint);
      GrammarState state = plain->start();
      for (size_t at = 0; at < text.size() && !state.is_dead(); ++at) {
        const auto mask = matcher.mask();
        ++n_masks;
        for (size_t id = 1; id < tokens.size(); ++id) {
          GrammarState next = state;
          for (char c : tokens[id]) next = next.is_dead() ? next : plain->step(next, static_cast<uint8_t>(c));
          ASSERT_EQ(allows_token(*mask, static_cast<int32_t>(id)), !next.is_dead())
              << schema << "\n"
              << text.substr(0, at) << " then '" << tokens[id] << "'";
        }
        state = plain->step(state, static_cast<uint8_t>(text[at]));
        EXPECT_EQ(matcher.accept(1 + static_cast<uint8_t>(text[at])), !state.is_dead());
      }
    }
  }
  EXPECT_GT(n_masks, 300);
}

// Work is counted and limited, so that no request can block the engine.
TEST(SchemaMachine, PatternsThatTakeTooMuchWorkAreRefused) {
  const auto machine = compile_schema(R"({"type":"string","maxLength":3000,"pattern":"^(a|b)*a(a|b){18}$"})", {}, {});
  const auto read = [&](const char* text) {
    GrammarState state = machine->start();
    for (const char* c = text; *c != 0; ++c) state = machine->step(state, static_cast<uint8_t>(*c));
    return !state.is_dead();
  };
  machine->meter().limit(100);
  try {
    read("\"abbaabababbabaaababab");
    ADD_FAILURE() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string_view(error.what()).find("look-aheads"), std::string_view::npos) << error.what();
  }
  machine->meter().limit(WorkMeter::kMaxWork);
  EXPECT_TRUE(read("\"abbaabababbabaaababab"));
}

TEST(SchemaMachine, WhiteSpaceIsBounded) {
  const auto with = [](size_t n) { return "[\n" + std::string(n - 1, ' ') + "1]"; };
  EXPECT_TRUE(machine_accepts("{}", with(16)));
  EXPECT_FALSE(machine_accepts("{}", with(17)));
  EXPECT_TRUE(machine_accepts("{}", with(240), {.max_blanks = 240}));
  EXPECT_FALSE(machine_accepts("{}", with(241), {.max_blanks = 240}));
}

TEST(SchemaMachine, MembersComeInTheOrderOfTheSchema) {
  const char* schema =
      R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"integer"}},"required":["b"]})";
  EXPECT_TRUE(machine_accepts(schema, R"({"b": 1, "a": 2, "c": 3})", {}));
  EXPECT_TRUE(machine_accepts(schema, R"({"b":1})", {}));
  EXPECT_FALSE(machine_accepts(schema, R"({"a": 2, "b": 1})", {}));
  EXPECT_FALSE(machine_accepts(schema, R"({"c": 3, "b": 1})", {}));
  EXPECT_TRUE(machine_accepts(schema, R"({"c": 3, "b": 1})", kAnyOrder));
}

TEST(SchemaMachine, WhatMustComeIsForced) {
  const char* schema =
      R"({"type":"object","properties":{"name":{"const":"x\"é"},"n":{"enum":[15]}},"required":["name"],"additionalProperties":false})";
  std::vector<std::string> tokens{""};
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const auto vocabulary = std::make_shared<const GrammarVocabulary>(tokens, std::vector<int32_t>{0});
  Matcher matcher(std::make_shared<Constraint>(compile_schema(schema, {}, {.is_compact = true}), vocabulary));
  const std::string forced = matcher.forced();
  EXPECT_EQ(forced, R"({"name":"x\")");  // the letter or its escape follows
  for (char c : forced) ASSERT_TRUE(matcher.accept(1 + static_cast<uint8_t>(c)));
  for (char c : std::string("\\u00e9\"}")) ASSERT_TRUE(matcher.accept(1 + static_cast<uint8_t>(c)));
  EXPECT_TRUE(matcher.is_over());
  EXPECT_FALSE(matcher.accept(1 + ' '));
  EXPECT_TRUE(matcher.accept(0));
}

TEST(SchemaMachine, NumbersWithinLimits) {
  const char* limits = R"({"minimum":-1.5,"exclusiveMaximum":12})";
  for (const char* inside : {"-1.5", "-1", "0", "11.999", "1e-7", "\"a\""})
    EXPECT_TRUE(machine_accepts(limits, inside)) << inside;
  for (const char* outside : {"-1.51", "12", "12.0", "-2", "100", "01", "1."})
    EXPECT_FALSE(machine_accepts(limits, outside)) << outside;
  EXPECT_TRUE(machine_accepts(R"({"type":"integer","multipleOf":7})", "-3500000000000000000000000000000000000007"));
  EXPECT_FALSE(machine_accepts(R"({"type":"integer","multipleOf":7})", "-3500000000000000000000000000000000000008"));
  EXPECT_TRUE(machine_accepts(R"({"multipleOf":0.01})", "19.99"));
  EXPECT_FALSE(machine_accepts(R"({"multipleOf":0.01})", "19.999"));
}

TEST(SchemaMachine, Formats) {
  const auto is = [](const char* format, const std::string& text) {
    return machine_accepts("{\"type\":\"string\",\"format\":\"" + std::string(format) + "\"}", "\"" + text + "\"");
  };
  EXPECT_TRUE(is("date", "2024-02-29"));
  EXPECT_FALSE(is("date", "2023-02-29"));
  EXPECT_TRUE(is("date-time", "2024-12-31T23:59:60Z"));
  EXPECT_FALSE(is("date-time", "2024-12-31 23:59:00Z"));
  EXPECT_TRUE(is("ipv6", "1::d6:192.168.0.1"));
  EXPECT_FALSE(is("ipv6", "1::2::3"));
  EXPECT_TRUE(is("email", "joe.bloggs@example.com"));
  EXPECT_FALSE(is("email", ".a@example.com"));
  EXPECT_TRUE(is("hostname", "www.example.com"));
  EXPECT_FALSE(is("hostname", "-a.example.com"));
  EXPECT_TRUE(is("uri", "http://foo.bar/?q=Test%20URL#x"));
  EXPECT_FALSE(is("uri", "/abc"));
  EXPECT_TRUE(is("uuid", "2EB8AA08-AA98-11EA-B4AA-73B441D16380"));
  EXPECT_TRUE(is("duration", "P4DT12H30M5S"));
  EXPECT_FALSE(is("duration", "P"));
  EXPECT_TRUE(is("whatever-this-is", "anything"));  // only an annotation, by the specification
}

TEST(SchemaMachine, WhatCannotBeEnforcedIsRefusedByPath) {
  const auto says = [](const char* schema, const char* path, const char* keyword) {
    const std::string text = machine_refusal(schema);
    EXPECT_NE(text.find(path), std::string::npos) << schema << "\n" << text;
    EXPECT_NE(text.find(keyword), std::string::npos) << schema << "\n" << text;
  };
  says(R"({"properties":{"x":{"pattern":"(a)\\1"}}})", "#/properties/x", "'pattern'");
  says(R"({"items":{"type":"strin"}})", "#/items", "'type'");
  says(R"({"anyOf":[{"$ref":"#/nowhere"}]})", "#/anyOf/0", "'$ref'");
  says(R"({"$ref":"https://example.com/s.json"})", "#", "'$ref'");
  says(R"({"format":"regex"})", "#", "'format'");
  says(R"({"minLength":-1})", "#", "'minLength'");
  says(R"({"enum":3})", "#", "'enum'");
  says(R"({"$ref":"#"})", "'$ref'", "leads back");
  says(R"({"allOf":[{"type":"string"},{"type":"null"}]})", "no value", "at all");
  says("{", "the schema is not JSON: line 1, column 2: ", "");
  says("[]", "#", "object or a boolean");
}

TEST(SchemaMachine, LenientSchemasWarn) {
  const auto machine = compile_schema(R"({"properties":{"x":{"pattern":"(a)\\1"}}})", {.is_lenient = true}, kAnyOrder);
  ASSERT_EQ(machine->table().warnings.size(), 1u);
  EXPECT_NE(machine->table().warnings[0].find("#/properties/x"), std::string::npos);
  EXPECT_TRUE(testing::accepts(*machine, R"({"x": "b"})"));
}

TEST(SchemaMachine, SchemasMayHoldThemselves) {
  const char* tree =
      R"({"type":"object","properties":{"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#"}}},"required":["v"],"additionalProperties":false})";
  EXPECT_TRUE(machine_accepts(tree, R"({"v": 1, "kids": [{"v": 2}, {"v": 3, "kids": [{"v": 4}]}]})"));
  EXPECT_FALSE(machine_accepts(tree, R"({"v": 1, "kids": [{"v": 2}, {"kids": []}]})"));
}

// The machine never begins an item that could only repeat an earlier item.
TEST(SchemaMachine, ItemsThatHaveToDifferNeverEndInARepetition) {
  const char* schema = R"({"items":{"enum":["a","ab","b",1,12,true]},"uniqueItems":true,"type":"array"})";
  const auto machine = compile_schema(schema, {}, kAnyOrder);
  const auto is_open = [&](std::string_view text) {
    GrammarState state = machine->start();
    for (char c : text) state = state.is_dead() ? state : machine->step(state, static_cast<uint8_t>(c));
    return !state.is_dead();
  };
  EXPECT_TRUE(is_open(R"(["a", "a)"));  // "ab" may follow
  EXPECT_FALSE(is_open(R"(["b", "b)"));
  EXPECT_TRUE(is_open(R"([1, 1)"));  // 12
  EXPECT_FALSE(is_open(R"([12, 1, 1)"));
  EXPECT_FALSE(is_open(R"([true, t)"));
  EXPECT_TRUE(is_open(R"(["a", "ab", "b", 1, 12,)"));
  EXPECT_FALSE(is_open(R"(["a", "ab", "b", 1, 12, true,)"));
}

// The same for strings of any characters with a greatest length.
TEST(SchemaMachine, ItemsOfTheGreatestLengthDiffer) {
  for (const int min : {0, 2}) {
    const std::string schema = R"({"items":{"type":"string","maxLength":2,"minLength":)" + std::to_string(min) +
                               R"(},"uniqueItems":true,"type":"array"})";
    EXPECT_TRUE(machine_accepts(schema, R"(["ab","ac","a\"","é€"])"));
    EXPECT_EQ(machine_accepts(schema, R"(["ab","a"])"), min == 0);
    const auto machine = compile_schema(schema, {}, kAnyOrder);
    for (const std::string_view text :
         {R"(["ab","ab)", R"(["ab","a\u0062)", R"(["é€","é€)", R"(["ab","é€","xy","é€)"}) {
      GrammarState state = machine->start();
      for (const char c : text) state = machine->step(state, static_cast<uint8_t>(c));
      EXPECT_TRUE(state.is_dead()) << text;  // not only after the quote
    }
  }
}

// A token that ends the last possible item and begins another one is not allowed.
TEST(SchemaMachine, MasksKnowTheLastItem) {
  std::vector<std::string> tokens{"", "\"]", "\",", "\", \"", "b\",", "b\"]", "c\",", "c\", \"a"};
  const size_t n_tokens = tokens.size();
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  const auto vocabulary = std::make_shared<const GrammarVocabulary>(tokens, std::vector<int32_t>{0});
  const char* schema = R"({"items":{"enum":["a","bb","bc"]},"uniqueItems":true,"type":"array"})";
  const auto plain = compile_schema(schema, {}, {});
  Matcher matcher(std::make_shared<Constraint>(compile_schema(schema, {}, {}), vocabulary));
  GrammarState state = plain->start();
  for (const char c : std::string_view(R"(["a","bb","bc"])")) {
    const auto mask = matcher.mask();
    for (size_t id = 1; id < n_tokens; ++id) {
      GrammarState next = state;
      for (const char byte : tokens[id]) next = next.is_dead() ? next : plain->step(next, static_cast<uint8_t>(byte));
      EXPECT_EQ(allows_token(*mask, static_cast<int32_t>(id)), !next.is_dead()) << c << " then " << tokens[id];
    }
    ASSERT_TRUE(matcher.accept(static_cast<int32_t>(n_tokens) + static_cast<uint8_t>(c)));
    state = plain->step(state, static_cast<uint8_t>(c));
  }
}

// The same for names, which count once.
TEST(SchemaMachine, NamesOfTheGreatestLengthDiffer) {
  const auto is_open = [&](const char* schema, std::string_view text) {
    const auto machine = compile_schema(schema, {}, kAnyOrder);
    GrammarState state = machine->start();
    for (const char c : text) state = state.is_dead() ? state : machine->step(state, static_cast<uint8_t>(c));
    return !state.is_dead();
  };
  const char* two = R"({"type":"object","minProperties":2,"propertyNames":{"maxLength":2}})";
  EXPECT_TRUE(machine_accepts(two, R"({"ab":1,"a":2,"é€":3})"));
  EXPECT_TRUE(is_open(two, R"({"ab":1,"a)"));
  EXPECT_FALSE(is_open(two, R"({"ab":1,"ab)"));
  EXPECT_FALSE(is_open(two, R"({"ab":1,"a\u0062)"));
  const char* few = R"({"type":"object","minProperties":2,"propertyNames":{"enum":["x","yz","yy"]}})";
  EXPECT_TRUE(is_open(few, R"({"x":1,"y)"));
  EXPECT_FALSE(is_open(few, R"({"x":1,"x)"));
  EXPECT_FALSE(is_open(few, R"({"yz":1,"yz)"));
  EXPECT_TRUE(machine_accepts(few, R"({"yz":1,"yy":2,"x":3})"));
  EXPECT_FALSE(is_open(few, R"({"yz":1,"yy":2,"x":3,)"));
}

TEST(SchemaMachine, DeepAndLargeSchemasEnd) {
  std::string deep, end;
  for (int i = 0; i < 5000; ++i) deep += "{\"not\":", end += "}";
  EXPECT_NE(machine_refusal(deep + "{}" + end).find("deeper"), std::string::npos);
  std::string wide = "{\"anyOf\":[{}";
  for (int i = 0; i < 2000; ++i) wide += ",{\"required\":[\"n" + std::to_string(i) + "\"]}";
  EXPECT_EQ(machine_refusal(wide + "]}"), "no error");
}

}  // namespace
}  // namespace ingot
