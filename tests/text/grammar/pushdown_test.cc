// Grammars built in C++ (tool calls), step_word() compared with step(), and regular expressions.
#include <gmock/gmock.h>

#include <random>

#include "base/error.h"
#include "test_seed.h"
#include "text/grammar/grammar_check.h"
#include "text/grammar/machine/schema_machine.h"
#include "text/grammar/rules/compile.h"
#include "text/grammar/rules/pushdown.h"

namespace ingot {
namespace {

using ingot::testing::accepts;
using ::testing::HasSubstr;

std::unique_ptr<Automaton> schema(std::string_view json) { return compile_schema(json, {}, {}); }

// One to three calls of two tools, with any text between them.
Grammar tool_calls() {
  Grammar g;
  const auto call = [&](std::string_view name, std::string_view json) {
    return g.sequence({g.literal(name), g.literal("\", \"arguments\": "), g.embed(schema(json))});
  };
  const Grammar::Part calls = g.sequence(
      {g.literal("\n{\"name\": \""),
       g.choice(
           {call(
                "add",
                R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]})"),
            call("say",
                 R"({"type":"object","properties":{"text":{"type":"string","maxLength":20}},"required":["text"]})")}),
       g.literal("}\n</tool_call>")});
  const Grammar::Part one = g.sequence({g.text_until("<tool_call>"), calls});
  g.set_root(g.sequence({g.repeat(one, 1, 3), g.text_without("<tool_call>")}));
  return g;
}

constexpr const char* kCall = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": -2}}\n</tool_call>";
constexpr const char* kSay =
    "<tool_call>\n{\"name\": \"say\", \"arguments\": {\"text\": \"\\\"}<tool_call>\"}}\n</tool_call>";

TEST(GrammarPushdown, ToolCallsWithSchemas) {
  const auto machine = compile_grammar(tool_calls());
  const std::string call = kCall, say = kSay;
  EXPECT_TRUE(accepts(*machine, call));
  EXPECT_TRUE(accepts(*machine, "Let me <see>.\n" + call + "\n" + say + " done <tool"));
  EXPECT_FALSE(accepts(*machine, "No call."));
  EXPECT_FALSE(accepts(*machine, call + call + call + call));
  EXPECT_FALSE(accepts(*machine, "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": \"x\""));
  EXPECT_FALSE(accepts(*machine, "<tool_call>\n{\"name\": \"sub\""));
}

TEST(GrammarPushdown, ParametersAsXml) {
  Grammar g;
  const Grammar::Rule parameter = g.rule("parameter");
  g.define(parameter, g.sequence({g.literal("<parameter="), g.regex("[a-z]+"), g.literal(">\n"),
                                  g.text_until("\n</parameter>"), g.literal("\n")}));
  g.set_root(g.sequence(
      {g.literal("<function=f>\n"), g.repeat(g.refer(parameter), 0, Grammar::kNoLimit), g.literal("</function>")}));
  const auto machine = compile_grammar(std::move(g));
  EXPECT_TRUE(accepts(
      *machine,
      "<function=f>\n<parameter=a>\n1 < 2\n</param>\n</parameter>\n<parameter=b>\n\n</parameter>\n</function>"));
  EXPECT_FALSE(accepts(*machine, "<function=f>\n<parameter=a>\n1</parameter>\n</function>"));
  EXPECT_FALSE(accepts(*machine, "<function=f>\n<parameter=a>\n1\n</parameter>x"));
}

TEST(GrammarPushdown, TextBeforeAndWithoutAMarker) {
  Grammar until, without;
  until.set_root(until.text_until("aab"));
  without.set_root(without.text_without("aab"));
  const auto first = compile_grammar(std::move(until)), second = compile_grammar(std::move(without));
  for (unsigned n = 0; n <= 9; ++n) {
    for (unsigned bits = 0; bits < 1u << n; ++bits) {
      std::string text(n, 'a');
      for (unsigned k = 0; k < n; ++k) text[k] = bits >> k & 1 ? 'b' : 'a';
      EXPECT_EQ(accepts(*first, text), n >= 3 && text.find("aab") == n - 3) << text;
      EXPECT_EQ(accepts(*second, text), text.find("aab") == text.npos) << text;
    }
  }
  EXPECT_FALSE(accepts(*second, "\xff"));
}

// If an embedded machine may end at several positions, the text may continue at each of them.
TEST(GrammarPushdown, AMachineMayEndWhereItCouldGoOn) {
  Grammar g;
  const Grammar::Part number = g.embed(schema(R"({"type":"integer"})"));
  g.set_root(g.sequence({number, g.choice({g.literal("00"), g.literal(".")})}));
  const auto machine = compile_grammar(std::move(g));
  EXPECT_TRUE(accepts(*machine, "1200"));
  EXPECT_TRUE(accepts(*machine, "12."));
  EXPECT_TRUE(accepts(*machine, "100"));
  EXPECT_FALSE(accepts(*machine, "00"));
  EXPECT_FALSE(accepts(*machine, "10"));
}

TEST(GrammarPushdown, RulesHaveToBeDefinedAndToHaveText) {
  Grammar g;
  g.set_root(g.refer(g.rule("a")));
  EXPECT_THROW(compile_grammar(std::move(g)), Error);
  Grammar empty;
  empty.set_root(empty.choice({}));
  EXPECT_THROW(compile_grammar(std::move(empty)), Error);
}

// step_word() must agree with step() for each byte of `text`. `state` is within a word.
void expect_words_as_steps(Automaton& machine, GrammarState state, const std::string& text) {
  GrammarState stepped = state, at = state;
  bool is_in_word = true;
  for (char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    stepped = machine.step(stepped, byte);
    if (is_in_word) {
      const uint32_t next = machine.step_word(at.place, byte);
      is_in_word = next > Automaton::kWordOver;
      if (is_in_word) {
        at.place = next;
      } else if (next == Automaton::kDead) {
        at = {};
      } else {
        at = machine.end_word(at);
        if (next == Automaton::kWordOver) at = machine.step(at, byte);
      }
    } else {
      at = machine.step(at, byte);
    }
    ASSERT_EQ(at.is_dead(), stepped.is_dead()) << text;
    if (at.is_dead()) return;
    ASSERT_EQ(machine.accepts(at), machine.accepts(stepped)) << text;
    ASSERT_TRUE(is_in_word || machine.is_word(stepped.place) || at == stepped) << text;
  }
}

TEST(GrammarPushdown, WordsSayWhatStepsSay) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto calls = compile_grammar(tool_calls());
  const auto lists = compile_gbnf(
      "root ::= \"[\" (item (\",\" item)*)? \"]\"\nitem ::= \"'\" [a-z]* \"'\" | [a-z]+ | [0-9]{2} | root");
  const std::vector<std::pair<Automaton*, std::string>> texts = {{calls.get(), std::string("see ") + kCall + kSay},
                                                                 {lists.get(), "['ab','',12,[xy,['z'],34],[]]"}};
  int n_words = 0;
  for (const auto& [machine, text] : texts) {
    GrammarState state = machine->start();
    for (size_t i = 0; i < text.size(); ++i) {
      if (machine->is_word(state.place)) {
        ++n_words;
        for (int k = 0; k < 20; ++k) {
          std::string rest = text.substr(i);
          for (unsigned n = random() % 3; n > 0; --n) rest[random() % rest.size()] = text[random() % text.size()];
          ASSERT_NO_FATAL_FAILURE(expect_words_as_steps(*machine, state, rest));
        }
      }
      state = machine->step(state, static_cast<uint8_t>(text[i]));
      ASSERT_FALSE(state.is_dead()) << text.substr(0, i + 1);
    }
    EXPECT_TRUE(machine->accepts(state));
  }
  EXPECT_GT(n_words, 60);
}

// Strings at all depths are one word, so the data cached for places of this word is valid at each depth.
TEST(GrammarPushdown, PlacesOfWordsDoNotDependOnTheStack) {
  const auto machine = compile_gbnf("root ::= \"[\" root \"]\" | \"'\" [a-z]* \"'\"");
  const auto after = [&](std::string_view text) {
    GrammarState state = machine->start();
    for (char c : text) state = machine->step(state, static_cast<uint8_t>(c));
    return state;
  };
  EXPECT_EQ(after("'ab").place, after("[[['").place);
  EXPECT_NE(after("'ab").frame, after("[[['").frame);
  EXPECT_TRUE(machine->is_word(after("'ab").place));
  const auto tools = compile_grammar(tool_calls());
  GrammarState state = tools->start();
  for (char c : std::string("<tool_call>\n{\"name\": \"say\", \"arguments\": {\"text\": \"a"))
    state = tools->step(state, static_cast<uint8_t>(c));
  EXPECT_TRUE(tools->is_word(state.place));
  EXPECT_EQ(tools->free_chars(state.place).second, 19);
}

TEST(GrammarPushdown, ManyToolsAreCompiledOnce) {
  Grammar g;
  std::vector<Grammar::Part> tools;
  for (int i = 0; i < 400; ++i) {
    tools.push_back(g.sequence({g.literal(fmt::format("tool_{}(", i)),
                                g.embed(schema(R"({"type":"object","properties":{"x":{"type":"string"}}})"))}));
  }
  g.set_root(g.sequence({g.choice(tools), g.literal(")")}));
  const auto machine = compile_grammar(std::move(g));
  EXPECT_TRUE(accepts(*machine, "tool_399({\"x\": \"a\"})"));
  EXPECT_FALSE(accepts(*machine, "tool_400({\"x\": \"a\"})"));
}

TEST(GrammarRegex, MatchesTheWhole) {
  const auto machine = compile_regex("(?:ab|c)+\\d{2,3}|^é.$");
  EXPECT_TRUE(accepts(*machine, "abc12"));
  EXPECT_TRUE(accepts(*machine, "é😀"));
  EXPECT_FALSE(accepts(*machine, "abc1"));
  EXPECT_FALSE(accepts(*machine, "xabc12"));
  EXPECT_FALSE(accepts(*machine, "abc1234"));
  EXPECT_TRUE(machine->step(machine->step(machine->start(), 'x'), 'y').is_dead());
  EXPECT_THROW(compile_regex("a(?=b)"), Error);
  EXPECT_THROW(compile_regex("(a"), Error);
  EXPECT_TRUE(accepts(*compile_regex(""), ""));
}

TEST(GrammarRegex, ADeepExpressionIsRefusedAndALongOneRead) {
  const auto refused = [](const std::string& pattern) {
    try {
      const auto machine = compile_regex(pattern);
      GrammarState state = machine->start();
      for (int i = 0; i < 5000; ++i) state = machine->step(state, 'a');
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("read");
  };
  std::string optional, short_one;
  for (int i = 0; i < 30000; ++i) optional += "a?";
  for (int i = 0; i < 300; ++i) short_one += "a*";
  EXPECT_THAT(refused(optional), HasSubstr("more than 500 nested parts"));
  EXPECT_EQ(refused(short_one), "read");
  EXPECT_EQ(refused("(?:" + std::string(60000, 'a') + ")a*"), "read");
}

}  // namespace
}  // namespace ingot
