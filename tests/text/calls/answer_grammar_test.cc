// The parser must read every text that the grammar of an answer accepts. The tests walk randomly through the grammar of
// each row of formats, with random tools. No walk may reach a dead end.
#include <gmock/gmock.h>

#include <random>
#include <set>

#include "base/ascii.h"
#include "base/cpu_time.h"
#include "base/error.h"
#include "test_seed.h"
#include "text/calls/answer_grammar.h"
#include "text/calls/calls_check.h"
#include "text/grammar/grammar_check.h"
#include "text/grammar/machine/schema_machine.h"
#include "text/grammar/masks/constraint.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;
using testing::accepts;
using testing::Answer;
using Calls = AnswerRules::Calls;
using Reasoning = AnswerRules::Reasoning;

constexpr const char* kProperties[] = {
    R"({"type":"string"})",
    R"({"type":"string","minLength":2,"maxLength":5})",
    R"({"enum":["one","two","a\nb","<x>\n"]})",
    R"({"const":"fixed"})",
    R"({"type":"string","enum":["null","None","nu"]})",
    R"({"type":"integer","minimum":-3,"maximum":120})",
    R"({"type":"number","minimum":-1,"exclusiveMaximum":5})",
    R"({"type":"boolean"})",
    R"({"type":"null"})",
    R"({"type":["string","null"],"maxLength":6})",
    R"({"anyOf":[{"enum":["x","yes"]},{"type":"null"}]})",
    R"({"type":["string","integer"]})",
    R"({"type":"array","items":{"type":"string","maxLength":3},"maxItems":3})",
    R"({"type":"array","items":{"enum":[1,2.5,true,null,"s"]},"minItems":1,"maxItems":2,"uniqueItems":true})",
    R"({"type":"object","properties":{"a-b, c":{"type":"integer"},"t":{"type":"string"}},"required":["t"],
        "additionalProperties":false})",
    R"({"$ref":"#/$defs/point"})",
    R"({"allOf":[{"$ref":"#/$defs/name"},{"minLength":1}]})",
};
constexpr const char* kNames[] = {"city", "n", "days_left", "x", "description", "title", "größe"};

Json drawn_schema(std::mt19937& draw) {
  Json schema = {{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
  for (const char* name : kNames) {
    if (draw() % 3) continue;
    schema["properties"][name] = Json::parse(kProperties[draw() % std::size(kProperties)]);
    if (draw() % 2) schema["required"].push_back(name);
  }
  schema["$defs"] = Json::parse(R"({"point":{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"],
                                     "additionalProperties":false},"name":{"type":"string","maxLength":4}})");
  if (draw() % 5) schema["additionalProperties"] = draw() % 4 ? Json(false) : Json{{"type", "integer"}};
  return schema;
}

// The parameters of a function: an object, or one of two objects.
Json drawn_parameters(std::mt19937& draw) {
  Json schema = drawn_schema(draw);
  if (draw() % 4) return schema;
  Json either = {{"anyOf", {schema, drawn_schema(draw)}}};
  Json defs = schema["$defs"];
  if (draw() % 2) {
    defs["either"] = std::move(either);
    either = {{"$ref", "#/$defs/either"}};
  }
  either["$defs"] = std::move(defs);
  return either;
}

// Functions with random parameters, in OpenAI's shape.
Json drawn_tools(std::mt19937& draw) {
  Json tools = Json::array();
  for (const char* name : {"get_weather", "get", "now"}) {
    Json function = {{"name", name}, {"description", "does it"}};
    if (draw() % 6) function["parameters"] = drawn_parameters(draw);
    tools.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return tools;
}

Json parameters_of(const Json& tools, const std::string& name) {
  for (const Json& tool : tools)
    if (tool["function"]["name"] == name) return tool["function"].value("parameters", Json());
  return {};
}

std::vector<AnswerRules::Tool> callable(const Json& tools) {
  std::vector<AnswerRules::Tool> out;
  for (const Json& tool : tools)
    out.push_back(
        {tool["function"]["name"], arguments_schema(tool["function"].value("parameters", Json()), "it"), "it"});
  return out;
}

// The names in angle brackets in the row's markers, as control tokens.
std::vector<MarkerSpelling::Token> tokens_of(const CallFormat& row) {
  std::set<std::string> names;
  std::vector<std::string_view> texts = row.texts();
  texts.push_back(row.header);
  for (const std::string_view text : texts) {
    for (size_t at = text.find('<'); at != text.npos; at = text.find('<', at + 1)) {
      const size_t end = text.find_first_of("> \n=", at);
      if (end != text.npos && text[end] == '>') names.insert(std::string(text.substr(at, end + 1 - at)));
    }
  }
  if (row.param_begin.find("｜DSML｜") != std::string_view::npos) names = {"｜DSML｜"};
  std::vector<MarkerSpelling::Token> tokens;
  for (const std::string& name : names)
    tokens.push_back({name, row.syntax == CallSyntax::kChannel && (name == "<|call|>" || name == "<|return|>")});
  return tokens;
}

constexpr int kDraws = kIsSanitized ? 1 : 4;  // sets of tools; walks are slow in a sanitizer build

// A random walk through an automaton, byte by byte.
class Walk {
 public:
  Walk(Automaton& machine, std::mt19937& draw) : machine_(machine), draw_(draw), state_(machine.start()) {}

  // Walks to an end and returns the text. Returns nullopt at a dead end.
  std::optional<std::string> run() {
    while (text_.size() < 20'000) {
      const std::vector<uint8_t> next = alive();
      if (machine_.accepts(state_) && (next.empty() || text_.size() > 300 || draw_() % 3 == 0)) return text_;
      if (next.empty()) return std::nullopt;
      const uint8_t byte = pick(next);
      text_ += static_cast<char>(byte);
      state_ = machine_.step(state_, byte);
    }
    return "";  // no end within the limit, which is not an error
  }
  const std::string& text() const { return text_; }

 private:
  std::vector<uint8_t> alive() {
    std::vector<uint8_t> next;
    for (int byte = 0; byte < 256; ++byte)
      if (!machine_.step(state_, static_cast<uint8_t>(byte)).is_dead()) next.push_back(static_cast<uint8_t>(byte));
    return next;
  }
  // Prefers bytes that end strings, values and markers, so that walks end.
  uint8_t pick(const std::vector<uint8_t>& next) {
    std::vector<uint8_t> closing;
    for (const uint8_t byte : next)
      if (std::string_view("\"'}])<>|/\n_-{(\xff").find(static_cast<char>(byte)) != std::string_view::npos ||
          (byte >= 'a' && byte <= 'z' && next.size() < 40))
        closing.push_back(byte);
    const bool closes = !closing.empty() && draw_() % 8 < (text_.size() > 200 ? 7u : 5u);
    const std::vector<uint8_t>& from = closes ? closing : next;
    return from[draw_() % from.size()];
  }

  Automaton& machine_;
  std::mt19937& draw_;
  GrammarState state_;
  std::string text_;
};

std::string without_controls(std::string text) {
  std::erase(text, kControlByte);
  return text;
}

// JSON allows numbers with a long exponent, but the library that checks the arguments does not.
bool has_long_exponent(const std::string& text) {
  for (size_t at = text.find_first_of("eE"); at != text.npos; at = text.find_first_of("eE", at + 1)) {
    const size_t n = text.find_first_not_of("0123456789", text.find_first_not_of("+-", at + 1));
    if (n != text.npos && n > at + 3) return true;
  }
  return false;
}

bool is_valid(const Json& parameters, const std::string& arguments) {
  const auto machine = compile_schema(arguments_schema(parameters, "it"), {}, {});
  GrammarState state = machine->start();
  for (const char c : arguments) state = machine->step(state, static_cast<uint8_t>(c));
  return machine->accepts(state);
}

void check_calls(const Answer& answer, const Json& tools, bool parallel) {
  EXPECT_EQ(answer.fault, "");
  EXPECT_TRUE(answer.warnings.empty()) << testing::described(answer);
  if (!parallel) {
    EXPECT_LE(answer.calls.size(), 1u);
  }
  std::set<std::string> ids;
  for (const testing::ReadCall& call : answer.calls) {
    EXPECT_TRUE(call.whole);
    EXPECT_TRUE(ids.insert(call.id).second) << call.id;
    EXPECT_TRUE(is_valid(parameters_of(tools, call.name), call.arguments))
        << call.arguments << " of " << parameters_of(tools, call.name);
  }
}

class EachRow : public ::testing::TestWithParam<std::string_view> {
 protected:
  const CallFormat& row() const { return *find_call_format(GetParam()); }
};

// Walks `n` times through the grammar. `check` gets the parser's answer for each text.
template <class Check>
void walk(AnswerRules rules, const Json& tools, std::mt19937& draw, int n, const Check& check) {
  const auto machine = compile_answer(rules);
  for (int i = 0; i < n; ++i) {
    Walk one(*machine, draw);
    const auto spelled = one.run();
    ASSERT_TRUE(spelled) << "a dead end behind " << one.text() << "\nof " << tools.dump();
    if (spelled->empty() || has_long_exponent(*spelled)) continue;
    const std::string text = without_controls(*spelled);
    SCOPED_TRACE(text);
    check(testing::read_whole(
        *rules.format, text,
        {.tools = &tools, .in_reasoning = rules.reasoning == Reasoning::kOpen, .closes_tags = true}));
    if (::testing::Test::HasFailure()) return;
  }
}

AnswerRules rules_for(const CallFormat& row, const Json& tools, Calls calls, std::mt19937& draw) {
  AnswerRules rules{.format = &row, .calls = calls, .tools = callable(tools)};
  if (draw() % 2) rules.spelling = MarkerSpelling(tokens_of(row));
  rules.parallel = draw() % 2;
  rules.reasoning = static_cast<Reasoning>(draw() % 3);
  return rules;
}

TEST_P(EachRow, ForcedIsParsed) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  for (int i = 0; i < kDraws; ++i) {
    const Json tools = drawn_tools(draw);
    const AnswerRules rules = rules_for(row(), tools, Calls::kMust, draw);
    walk(rules, tools, draw, 3, [&](const Answer& answer) {
      check_calls(answer, tools, rules.parallel);
      EXPECT_GE(answer.calls.size(), 1u);
      EXPECT_EQ(answer.content, "");
    });
    if (HasFailure()) return;
  }
}

TEST_P(EachRow, CallsBehindTextAreParsed) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  for (int i = 0; i < kDraws; ++i) {
    const Json tools = drawn_tools(draw);
    const AnswerRules rules = rules_for(row(), tools, Calls::kMay, draw);
    walk(rules, tools, draw, 3, [&](const Answer& answer) { check_calls(answer, tools, rules.parallel); });
    if (HasFailure()) return;
  }
}

// The answer is content that follows its grammar, or calls.
TEST_P(EachRow, ContentFollowsItsSchema) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  for (const Calls calls : {Calls::kNone, Calls::kMay}) {
    const Json tools = drawn_tools(draw);
    AnswerRules rules = rules_for(row(), tools, calls, draw);
    rules.content = GrammarText{.kind = GrammarKind::kRegex, .text = "[0-9]{3}!"};
    walk(rules, tools, draw, kDraws + 2, [&](const Answer& answer) {
      check_calls(answer, tools, rules.parallel);
      const bool has_content = trim(answer.content).size() == 4 && answer.content.back() == '!';
      EXPECT_EQ(has_content, answer.calls.empty()) << testing::described(answer);
    });
  }
}

// Bytes, ends of strings and parts of `texts`, with their control tokens.
std::vector<std::string> drawn_tokens(const CallFormat& row, const std::vector<std::string>& texts,
                                      std::mt19937& draw) {
  std::vector<std::string> tokens{""};  // the end token
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const MarkerSpelling::Token& token : tokens_of(row)) tokens.push_back(kControlByte + token.name);
  for (const char* text :
       {"\", \"", "\"}", "\"]", "\",", "\\n", "\\u00", "a\", \"b", "\"a\"", "', '", "a')", ", ", "1, 1"})
    tokens.emplace_back(text);
  for (const std::string& text : texts)
    for (int i = 0; i < 30 && !text.empty(); ++i) tokens.push_back(text.substr(draw() % text.size(), 1 + draw() % 6));
  return tokens;
}

// Compares every token of a random vocabulary at each step of a few walks. The tools have arrays and names that must
// not repeat what was there before.
TEST_P(EachRow, MasksSayWhatStepsSay) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  const Json tools = Json::parse(R"([{"function": {"name": "f", "parameters": {"type": "object", "properties": {
      "a": {"type": "array", "items": {"type": "string", "maxLength": 8}, "uniqueItems": true, "maxItems": 4},
      "e": {"type": "array", "items": {"enum": ["a", "ab", 1, "b"]}, "uniqueItems": true},
      "r": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 4, "not": {"uniqueItems": true}},
      "o": {"type": "array", "items": {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 2,
            "maxProperties": 3, "propertyNames": {"maxLength": 2}}, "uniqueItems": true, "maxItems": 2}},
      "minProperties": 2, "maxProperties": 4, "additionalProperties": {"type": ["string", "integer"]},
      "propertyNames": {"maxLength": 3}}}}])");
  const AnswerRules rules = rules_for(row(), tools, Calls::kMust, draw);
  std::vector<std::string> texts;
  std::unique_ptr<Automaton> plain;
  for (int i = 0; i < 3; ++i) {
    plain = compile_answer(rules);
    texts.push_back(Walk(*plain, draw).run().value_or(""));
  }
  const std::vector<std::string> tokens = drawn_tokens(row(), texts, draw);
  const auto vocabulary = std::make_shared<const GrammarVocabulary>(tokens, std::vector<int32_t>{0});
  const auto constraint = std::make_shared<Constraint>(compile_answer(rules), vocabulary);
  for (const std::string& text : texts) {
    Matcher matcher(constraint);
    GrammarState state;
    const size_t n = std::min<size_t>(text.size(), kIsSanitized ? 100 : 400);
    for (size_t at = 0; at < n; ++at) {
      if (at % 32 == 0) {  // steps of all tokens would need too many states of one machine
        plain = compile_answer(rules);
        state = plain->start();
        for (const char c : text.substr(0, at)) state = plain->step(state, static_cast<uint8_t>(c));
      }
      const auto mask = matcher.mask();
      EXPECT_EQ(allows_token(*mask, 0), plain->accepts(state));
      for (size_t id = 1; id < tokens.size(); ++id) {
        GrammarState next = state;
        for (const char c : tokens[id]) next = next.is_dead() ? next : plain->step(next, static_cast<uint8_t>(c));
        ASSERT_EQ(allows_token(*mask, static_cast<int32_t>(id)), !next.is_dead())
            << text.substr(0, at) << " then '" << tokens[id] << "'";
      }
      ASSERT_TRUE(matcher.accept(1 + static_cast<uint8_t>(text[at])));
      state = plain->step(state, static_cast<uint8_t>(text[at]));
    }
  }
}

std::vector<std::string_view> rows_with_calls() {
  std::vector<std::string_view> names;
  for (const CallFormat& row : call_formats())
    if (row.syntax != CallSyntax::kNone) names.push_back(row.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(AnswerGrammar, EachRow, ::testing::ValuesIn(rows_with_calls()),
                         [](const auto& row) { return std::string(row.param); });

const Json kWeather = Json::parse(R"([{"function": {"name": "get_weather", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}, "n": {"type": "integer"}}, "required": ["city"],
    "additionalProperties": false}}}])");

// Schemas may describe parameters in other places than in "properties". Text between tags is JSON or a string by them.
TEST(AnswerGrammar, KindsOfParametersAreFoundInAlternatives) {
  const char* const schemas[] = {
      R"({"anyOf": [{"properties": {"a": {"type": "integer"}}}, {"required": ["b"]}]})",
      R"({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"properties": {"a": {"type": "integer"}}}}})",
      R"({"if": {"required": ["b"]}, "else": {"properties": {"a": {"type": "integer"}}}})",
      R"({"properties": {"b": {"type": "string"}}, "additionalProperties": {"type": "integer"}})",
      R"({"patternProperties": {"^a": {"type": "integer"}}})",
      R"({"enum": [{"a": -5}, {"b": "x"}]})",
      R"({"anyOf": [{"properties": {"a": {"type": "string"}}, "required": ["b"]},
                    {"additionalProperties": {"type": "integer"}}]})",
  };
  for (const std::string schema : schemas) {
    SCOPED_TRACE(schema);
    const Json tools = {{{"function", {{"name", "f"}, {"parameters", Json::parse(schema)}}}}};
    const CallFormat& row = *find_call_format("qwen3_coder");
    const AnswerRules rules{.format = &row, .calls = Calls::kMust, .tools = callable(tools)};
    const std::string text = "<tool_call>\n<function=f>\n<parameter=a>\n-5\n</parameter>\n</function>\n</tool_call>";
    EXPECT_TRUE(accepts(*compile_answer(rules), text));
    const Answer answer = testing::read_whole(row, text, {.tools = &tools, .closes_tags = true});
    ASSERT_EQ(answer.calls.size(), 1u);
    EXPECT_EQ(Json::parse(answer.calls[0].arguments), Json({{"a", -5}}));
  }
}

// If a marker is a control token, the grammar accepts only the token, and not its name as text.
TEST(AnswerGrammar, MarkersAreControlTokens) {
  AnswerRules rules{.format = find_call_format("hermes"), .calls = Calls::kMust, .tools = callable(kWeather)};
  const std::string call = "\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"\"}}\n";
  EXPECT_TRUE(accepts(*compile_answer(rules), "<tool_call>" + call + "</tool_call>"));
  rules.spelling = MarkerSpelling({{"<tool_call>"}, {"</tool_call>"}});
  EXPECT_FALSE(accepts(*compile_answer(rules), "<tool_call>" + call + "</tool_call>"));
  EXPECT_TRUE(accepts(*compile_answer(rules), "\xff<tool_call>" + call + "\xff</tool_call>"));
}

// Whether `n` more bytes out of these few characters never lead to a dead end, where no byte can follow.
bool has_no_dead_end(Automaton& machine, GrammarState state, int n) {
  bool is_alive = machine.accepts(state);
  for (int byte = 0; byte < 256 && !is_alive; ++byte)
    is_alive = !machine.step(state, static_cast<uint8_t>(byte)).is_dead();
  if (!is_alive || n == 0) return is_alive;
  for (const char c : std::string_view("\">az\n<{=:ÿ€😀\xF1")) {
    const GrammarState next = machine.step(state, static_cast<uint8_t>(c));
    if (!next.is_dead() && !has_no_dead_end(machine, next, n - 1)) return false;
  }
  return true;
}

// A call with one parameter: the text before and after the parameter's name.
struct LongName {
  const char* format;
  const char* begin;
  const char* end;
};
constexpr LongName kLongNames[] = {
    {"minimax_m2", "<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"",
     "\">1</parameter>\n</invoke>\n</minimax:tool_call>"},
    {"lfm2", "<|tool_call_start|>[f(", "=1)]<|tool_call_end|>"},
    {"gemma4", "<|tool_call>call:f{", ":1}<tool_call|>"},
};

// A parameter's name has at most 256 bytes, and does not end within a character.
TEST(AnswerGrammar, LongNamesEndInWholeCharacters) {
  for (const LongName& name : kLongNames) {
    SCOPED_TRACE(name.format);
    AnswerRules rules{.format = find_call_format(name.format), .calls = Calls::kMust};
    rules.tools = {{"f", R"({"type": "object"})", ""}};
    const auto machine = compile_answer(rules);
    for (size_t n = 250; n <= 256; ++n) {
      GrammarState state = machine->start();
      for (const char c : name.begin + std::string(n, 'a')) state = machine->step(state, static_cast<uint8_t>(c));
      EXPECT_FALSE(state.is_dead());
      EXPECT_TRUE(has_no_dead_end(*machine, state, 4)) << n << " bytes";
    }
    for (const char* last : {"", "a", "ÿ", "€", "😀", "\U00050000"}) {
      const std::string_view character(last);
      const auto call = [&](size_t n) { return name.begin + std::string(n - character.size(), 'a') + last + name.end; };
      EXPECT_TRUE(accepts(*machine, call(256))) << last;
      EXPECT_FALSE(accepts(*machine, call(257))) << last;
    }
  }
}

// If a marker is a token that ends the answer, the grammar ends before the marker.
TEST(AnswerGrammar, EndsWhereATokenEndsTheAnswer) {
  AnswerRules rules{.format = find_call_format("gpt_oss"), .calls = Calls::kMust, .tools = callable(kWeather)};
  rules.spelling = MarkerSpelling({{"<|call|>", true}});
  const std::string call =
      "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"\"}";
  EXPECT_TRUE(accepts(*compile_answer(rules), call));
  EXPECT_TRUE(accepts(*compile_answer(rules), "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant" + call));
  EXPECT_FALSE(accepts(*compile_answer(rules), call + "<|call|>"));
  EXPECT_FALSE(accepts(*compile_answer(rules), "<|channel|>final<|message|>No."));
}

TEST(AnswerGrammar, KeysHaveNoDescriptions) {
  Json described = kWeather[0]["function"]["parameters"], properties = described;
  described["description"] = "of it";
  described["properties"]["city"]["description"] = "a city";
  EXPECT_EQ(arguments_schema(described, ""), arguments_schema(kWeather[0]["function"]["parameters"], ""));
  properties["properties"]["description"] = {{"type", "string"}};
  properties["properties"]["title"] = {{"enum", {{{"description", 1}}}}};
  const Json kept = Json::parse(arguments_schema(properties, ""));
  EXPECT_EQ(kept["properties"], properties["properties"]);
}

TEST(AnswerGrammar, RefusesWhatItCannotWrite) {
  const auto refused = [](const char* format, const Json& parameters) -> std::string {
    AnswerRules rules{.format = find_call_format(format), .calls = Calls::kMust};
    try {
      rules.tools = {{"f", arguments_schema(parameters, "tools[0].parameters"), "tools[0].parameters"}};
      compile_answer(rules);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  using ::testing::AllOf, ::testing::HasSubstr, ::testing::StartsWith;
  const auto object = [](const char* name, const char* schema) {
    return Json{{"type", "object"}, {"properties", {{name, Json::parse(schema)}}}};
  };
  EXPECT_THAT(refused("hermes", object("a", R"({"type":"strin"})")),
              AllOf(StartsWith("tools[0].parameters: "), HasSubstr("type"), HasSubstr("properties")));
  EXPECT_THAT(refused("hermes", Json{{"type", "string"}}),
              AllOf(StartsWith("tools[0].parameters: "), HasSubstr("type")));
  EXPECT_THAT(refused("hermes", Json(5)), StartsWith("tools[0].parameters: "));
  EXPECT_EQ(refused("hermes", object("a-b", R"({"type":"string"})")), "");
  EXPECT_THAT(refused("olmo3", object("a-b", R"({"type":"string"})")), HasSubstr("a-b"));
  EXPECT_THAT(refused("qwen3_coder", object("a>b", R"({"type":"string"})")), HasSubstr("a>b"));
  EXPECT_EQ(refused("gemma4", object("a,b", R"({"type":"string"})")), "") << "between marks";
}

// The work of a request is counted and limited in each call syntax, so that no request can block the engine.
TEST(AnswerGrammar, WorkOfArgumentsIsLimited) {
  const Json tools = Json::parse(R"([{"function": {"name": "f", "parameters": {"type": "object", "properties": {"t":
      {"type": "string", "maxLength": 3000, "pattern": "^(a|b)*a(a|b){18}$"}}, "required": ["t"],
      "additionalProperties": false}}}])");
  const std::pair<const char*, std::string> calls[] = {
      {"hermes", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"t\": \""},
      {"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=t>\n"},
      {"llama3_pythonic", "[f(t=\""},
  };
  for (const auto& [format, begin] : calls) {
    SCOPED_TRACE(format);
    const auto machine =
        compile_answer({.format = find_call_format(format), .calls = Calls::kMust, .tools = callable(tools)});
    GrammarState state = machine->start();
    const auto read = [&](std::string_view text) {
      for (const char c : text) state = machine->step(state, static_cast<uint8_t>(c));
      ASSERT_FALSE(state.is_dead());
    };
    machine->meter().limit(SIZE_MAX);
    read(begin);
    const size_t n_bytes = machine->n_bytes();
    machine->meter().limit(100);
    EXPECT_THROW(read("abbaabababbabaaababab"), Error);
    EXPECT_GT(machine->n_bytes(), n_bytes);
  }
}

// The largest number of tools that a request may have, in each syntax.
TEST(AnswerGrammar, ManyTools) {
  Json tools = Json::array();
  for (int i = 0; i < 256; ++i) {
    tools.push_back(kWeather[0]);
    tools.back()["function"]["name"] = fmt::format("a_function_of_many_{}", i);
  }
  for (const std::string_view name : rows_with_calls()) {
    const AnswerRules rules{.format = find_call_format(name), .calls = Calls::kMay, .tools = callable(tools)};
    const auto machine = compile_answer(rules);
    EXPECT_FALSE(machine->step(machine->start(), static_cast<uint8_t>(rules.format->begin_text("a")[0])).is_dead())
        << name;
  }
}

}  // namespace
}  // namespace ingot
