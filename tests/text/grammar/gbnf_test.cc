// GBNF and its machine, compared with xgrammar's verdicts (tools/grammar_goldens) and with a plain matcher on random
// grammars. Also refusals, their messages, and limits.
#include <gmock/gmock.h>

#include <fstream>
#include <random>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "test_seed.h"
#include "text/grammar/grammar_check.h"
#include "text/grammar/rules/compile.h"

namespace ingot {
namespace {

using ingot::testing::read;
using ::testing::HasSubstr;

bool gbnf_accepts(std::string_view grammar, std::string_view text) { return read(*compile_gbnf(grammar), text).second; }

std::string gbnf_error(std::string_view grammar) {
  return ingot::testing::error_of([&] { compile_gbnf(grammar); });
}

TEST(GrammarGbnf, AgreesWithXgrammar) {
  std::ifstream file(INGOT_TEST_DATA "/grammars/gbnf.json");
  const auto entries = nlohmann::json::parse(file);
  ASSERT_GE(entries.size(), 8u);
  for (const auto& entry : entries) {
    const std::string grammar = entry.at("grammar");
    const auto machine = compile_gbnf(grammar);
    for (const auto& text : entry.at("texts")) {
      const auto [n_read, is_whole] = read(*machine, text.at(0).get<std::string>());
      EXPECT_EQ(is_whole, text.at(1).get<bool>()) << grammar << "\n" << text;
      EXPECT_EQ(n_read, text.at(2).get<size_t>()) << grammar << "\n" << text;
    }
  }
}

// ---- Random grammars over 'a' and 'b', and a matcher for them that follows the definition

struct Body {
  enum Kind { kLiteral, kRule, kSequence, kChoice, kRepeat } kind = kLiteral;
  std::string text;
  size_t rule = 0;
  int min = 0, max = 0;
  std::vector<Body> parts;
};

class RandomGrammar {
 public:
  explicit RandomGrammar(std::mt19937& random) : random_(random), bodies_(1 + random() % 4) {
    for (Body& body : bodies_) body = make(3);
  }

  std::string gbnf() const {
    std::string text;
    for (size_t i = 0; i < bodies_.size(); ++i) text += name(i) + " ::= " + print(bodies_[i]) + "\n";
    return text;
  }

  // Whether `text` matches the first rule. Computes the positions where each rule can end, as a least fixed point.
  bool matches(const std::string& text) {
    ends_.assign(bodies_.size(), std::vector<std::set<size_t>>(text.size() + 1));
    for (bool has_changed = true; has_changed;) {
      has_changed = false;
      for (size_t rule = 0; rule < bodies_.size(); ++rule) {
        for (size_t at = 0; at <= text.size(); ++at) {
          std::set<size_t> ends = find_ends(bodies_[rule], text, at);
          has_changed |= ends != ends_[rule][at];
          ends_[rule][at] = std::move(ends);
        }
      }
    }
    return ends_[0][0].contains(text.size());
  }

 private:
  static std::string name(size_t rule) { return rule == 0 ? "root" : "r-" + std::to_string(rule); }

  Body make(int depth) {
    Body body;
    const unsigned kind = depth == 0 ? random_() % 3 : random_() % 8;
    if (kind == 0 || kind == 1) {
      for (unsigned n = random_() % 3; n > 0; --n) body.text += static_cast<char>('a' + random_() % 2);
    } else if (kind == 2) {
      body.kind = Body::kRule;
      body.rule = random_() % bodies_.size();
    } else if (kind == 7) {
      body.kind = Body::kRepeat;
      body.min = static_cast<int>(random_() % 3);
      body.max = random_() % 2 == 0 ? -1 : body.min + static_cast<int>(random_() % 3);
      body.parts.push_back(make(depth - 1));
    } else {
      body.kind = kind < 5 ? Body::kSequence : Body::kChoice;
      for (unsigned n = 1 + random_() % 3; n > 0; --n) body.parts.push_back(make(depth - 1));
    }
    return body;
  }

  static std::string print(const Body& body) {
    std::string text;
    switch (body.kind) {
      case Body::kLiteral: return "\"" + body.text + "\"";
      case Body::kRule: return name(body.rule);
      case Body::kRepeat:
        return "(" + print(body.parts[0]) + "){" + std::to_string(body.min) + "," +
               (body.max < 0 ? "" : std::to_string(body.max)) + "}";
      default:
        for (const Body& part : body.parts)
          text += (text.empty() ? "" : body.kind == Body::kChoice ? " | " : " ") + print(part);
        return body.kind == Body::kChoice ? "(" + text + ")" : text;
    }
  }

  std::set<size_t> find_ends(const Body& body, const std::string& text, size_t at) const {
    std::set<size_t> ends;
    switch (body.kind) {
      case Body::kLiteral:
        if (text.substr(at).starts_with(body.text)) ends.insert(at + body.text.size());
        return ends;
      case Body::kRule: return ends_[body.rule][at];
      case Body::kChoice:
        for (const Body& part : body.parts) ends.merge(find_ends(part, text, at));
        return ends;
      case Body::kSequence:
        ends = {at};
        for (const Body& part : body.parts) ends = after(part, text, ends);
        return ends;
      case Body::kRepeat: break;
    }
    std::set<size_t> now{at};
    for (int i = 0; i < body.min; ++i) now = after(body.parts[0], text, now);
    ends = now;
    for (size_t i = 0; i < (body.max < 0 ? text.size() + 1 : static_cast<size_t>(body.max - body.min)); ++i) {
      now = after(body.parts[0], text, now);
      ends.insert(now.begin(), now.end());
    }
    return ends;
  }

  std::set<size_t> after(const Body& part, const std::string& text, const std::set<size_t>& starts) const {
    std::set<size_t> ends;
    for (size_t at : starts) ends.merge(find_ends(part, text, at));
    return ends;
  }

  std::mt19937& random_;
  std::vector<Body> bodies_;
  std::vector<std::vector<std::set<size_t>>> ends_;
};

// Whether some text leads from `state` to an end. Also returns true if the search becomes too long.
bool has_end(Automaton& machine, GrammarState state) {
  std::vector<GrammarState> ready{state};
  std::set<std::tuple<uint32_t, uint32_t, uint32_t>> seen;
  for (size_t i = 0; i < ready.size() && i < 2000; ++i) {
    if (machine.accepts(ready[i])) return true;
    for (uint8_t byte : {'a', 'b'}) {
      const GrammarState next = machine.step(ready[i], byte);
      if (!next.is_dead() && seen.emplace(next.place, next.frame, next.text).second) ready.push_back(next);
    }
  }
  return ready.size() >= 2000;
}

TEST(GrammarGbnf, AgreesWithThePlainMatcherOnRandomGrammars) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  int n_members = 0, n_run = 0;
  for (int i = 0; i < 300; ++i) {
    RandomGrammar grammar(random);
    std::unique_ptr<Automaton> machine;
    try {
      machine = compile_gbnf(grammar.gbnf());
    } catch (const Error& error) {
      const std::string what = error.what();
      ASSERT_TRUE(what.find("begins with itself") != what.npos || what.find("no text") != what.npos)
          << grammar.gbnf() << what;
      if (what.find("no text") == what.npos) continue;
    }
    ++n_run;
    for (unsigned n = 0; n <= 6; ++n) {
      for (unsigned bits = 0; bits < 1u << n; ++bits) {
        std::string text(n, 'a');
        for (unsigned k = 0; k < n; ++k) text[k] = bits >> k & 1 ? 'b' : 'a';
        const bool is_member = grammar.matches(text);
        n_members += is_member;
        ASSERT_EQ(machine && read(*machine, text).second, is_member) << grammar.gbnf() << text;
      }
    }
    if (!machine) continue;
    const GrammarState after = machine->step(machine->start(), 'a');
    ASSERT_TRUE(after.is_dead() || has_end(*machine, after)) << grammar.gbnf();
  }
  EXPECT_GT(n_run, 50);
  EXPECT_GT(n_members, 200);
}

// ---- Notation and messages

TEST(GrammarGbnf, ReadsItsNotation) {
  EXPECT_TRUE(gbnf_accepts("root ::= \"\\x41\\u00e9\\U0001F600\\n\\t\\\"\\\\\\[\\]\"", "Aé😀\n\t\"\\[]"));
  EXPECT_TRUE(gbnf_accepts("# first\n\nroot ::= a-b # then\na-b\t::= (\n \"x\" # in\n | \"y\"\n)+\n", "xyx"));
  EXPECT_TRUE(gbnf_accepts("root ::=\n  \"a\" |\n  \"b\"\n  | \"c\"\r\nx ::= \"d\"", "c"));
  EXPECT_TRUE(gbnf_accepts("root ::= [^\\]a-c-] [-x] [x-]", "d--"));
  EXPECT_FALSE(gbnf_accepts("root ::= [^\\]a-c-] [-x] [x-]", "b--"));
  EXPECT_TRUE(gbnf_accepts("root ::= \"a\"{2}\"b\"{1,}\"c\"{ 0 , 1 }", "aabb"));
  EXPECT_TRUE(gbnf_accepts("root ::= . .", "é\n"));
  EXPECT_FALSE(gbnf_accepts("root ::= .", "\xff"));
  EXPECT_TRUE(gbnf_accepts("root ::= \"a\" | ", ""));
}

TEST(GrammarGbnf, SaysWhereAGrammarIsWrong) {
  EXPECT_THAT(gbnf_error("root ::= \"a\n"), HasSubstr("line 1, column 12: '\"' is expected"));
  EXPECT_THAT(gbnf_error("root ::= x\nx = \"a\""), HasSubstr("line 2, column 3: '::=' is expected, not '='"));
  EXPECT_THAT(gbnf_error("root ::= (\"é\" ]"), HasSubstr("line 1, column 15: ')' is expected, not ']'"));
  EXPECT_THAT(gbnf_error("root ::= \"a\" ) "), HasSubstr("line 1, column 14: the end of the line, or"));
  EXPECT_THAT(gbnf_error("root ::= a b\na ::= \"x\""), HasSubstr("line 1, column 12: the rule 'b' is not defined"));
  EXPECT_THAT(gbnf_error("root ::= \"a\"\nroot ::= \"b\""),
              HasSubstr("line 2, column 1: the rule 'root' is defined twice"));
  EXPECT_THAT(gbnf_error("start ::= \"a\""), HasSubstr("line 1, column 14: there is no rule 'root'"));
  EXPECT_THAT(gbnf_error(""), HasSubstr("line 1, column 1: there is no rule 'root'"));
  EXPECT_THAT(gbnf_error("root ::= *"), HasSubstr("column 10: '*' has nothing before it"));
  EXPECT_THAT(gbnf_error("root ::= \"a\"{3,2}"), HasSubstr("out of order"));
  EXPECT_THAT(gbnf_error("root ::= \"a\"{70000}"), HasSubstr("more than 65535"));
  EXPECT_THAT(gbnf_error("root ::= \"a\"{x}"), HasSubstr("a number is expected, not 'x'"));
  EXPECT_THAT(gbnf_error("root ::= [b-a]"), HasSubstr("column 11: the ends of a range"));
  EXPECT_THAT(gbnf_error("root ::= []"), HasSubstr("a class without characters"));
  EXPECT_THAT(gbnf_error("root ::= \"\\q\""), HasSubstr("column 11: this escape is not known"));
  EXPECT_THAT(gbnf_error("root ::= \"\\ud800\""), HasSubstr("not a Unicode code point"));
  EXPECT_THAT(gbnf_error("root ::= <think>"), HasSubstr("column 10: a token"));
  EXPECT_THAT(gbnf_error("root ::= !<[1]>"), HasSubstr("a token"));
  EXPECT_THAT(gbnf_error("root ::= [z-a]"), HasSubstr("line 1, column 11: the ends of a range"));
  EXPECT_THAT(gbnf_error("root ::= \"\\x{110000}\""), HasSubstr("column 13: a hexadecimal digit is expected"));
  EXPECT_THAT(gbnf_error("root ::= \"\\U00110000\""), HasSubstr("not a Unicode code point"));
  EXPECT_THAT(gbnf_error("root ::=\n\"\xff\""), HasSubstr("line 2, column 2: this is not UTF-8"));
  EXPECT_THAT(gbnf_error(std::string("root ::= \"a\0\"", 14)), HasSubstr("line 1, column 12: a NUL character"));
  EXPECT_THAT(gbnf_error("root ::= \"a\"{0,1000000000}"), HasSubstr("column 22: a repetition of more than 65535"));
  EXPECT_THAT(gbnf_error("root ::= \"a\"{-1}"), HasSubstr("line 1, column 14: a number is expected, not '-'"));
}

TEST(GrammarGbnf, RefusesLeftRecursionThatIsNotDirect) {
  EXPECT_THAT(gbnf_error("root ::= a\na ::= b \"x\" | \"y\"\nb ::= c? a\nc ::= \"q\""),
              HasSubstr("line 2, column 1: a rule begins with itself (a -> b -> a)"));
  EXPECT_THAT(gbnf_error("root ::= \"x\"? root \"y\" | \"z\""), HasSubstr("(root -> root)"));
  EXPECT_THAT(gbnf_error("root ::= root \"y\""), HasSubstr("line 1, column 1: no text can match"));
}

TEST(GrammarGbnf, LeftRecursionIsRepetition) {
  const char* grammar = "root ::= e\ne ::= e [-+] t | t\nt ::= t \"*\" f | f | t\nf ::= [0-9] | \"(\" e \")\"";
  EXPECT_TRUE(gbnf_accepts(grammar, "1-2*(3+4)*5"));
  EXPECT_FALSE(gbnf_accepts(grammar, "1-*2"));
  EXPECT_TRUE(gbnf_accepts("root ::= root root | \"a\"", "aaaaaa"));
}

TEST(GrammarGbnf, RulesWithoutTextAreLeftOut) {
  const char* grammar = "root ::= \"a\" never | \"b\" empty \"c\"\nnever ::= \"x\" never\nempty ::= \"\"";
  const auto machine = compile_gbnf(grammar);
  EXPECT_EQ(read(*machine, "a"), (std::pair<size_t, bool>{0, false}));
  EXPECT_TRUE(read(*machine, "bc").second);
}

// ---- Limits: each case ends quickly in an answer or an Error

TEST(GrammarGbnf, AmbiguityCostsNoPower) {
  const char* grammars[] = {
      "root ::= root root | \"a\"",
      "root ::= (\"a\" \"a\"? root)? \"a\"*",
      "root ::= \"(\" x | \"(\" y | \"a\"+\nx ::= root \")\"\ny ::= root \"]\" | root \")\"",
      "root ::= (\"a\" | \"aa\" | x)*\nx ::= \"a\" | \"a\" x | \"a\" x \"a\"",
  };
  for (const char* grammar : grammars) {
    EXPECT_TRUE(gbnf_accepts(grammar, std::string(300, 'a'))) << grammar;
  }
  EXPECT_TRUE(gbnf_accepts(grammars[2], std::string(100, '(') + "a" + std::string(100, ')')));
}

TEST(GrammarGbnf, LargeGrammarsEndSoon) {
  std::string doubled = "root ::= r60\nr0 ::= \"a\" | \"b\"\n", chain = "root ::= r0\n", wide = "root ::= (",
              nested = "root ::= ";
  for (int i = 1; i <= 60; ++i) doubled += fmt::format("r{} ::= r{} r{}\n", i, i - 1, i - 1);
  for (int i = 0; i < 5000; ++i) chain += fmt::format("r{} ::= \"a\" r{} | \"b\"\n", i, i + 1);
  chain += "r5000 ::= \"c\"\n";
  for (int i = 0; i < 15000; ++i) wide += fmt::format("\"word{}\" | ", i);
  nested += std::string(100000, '(') + "\"a\"" + std::string(100000, ')');
  EXPECT_EQ(read(*compile_gbnf(doubled), std::string(3000, 'a')).first, 3000u);
  EXPECT_TRUE(gbnf_accepts(chain, std::string(2000, 'a') + "b"));
  EXPECT_TRUE(gbnf_accepts(wide + "\"x\")", "word14999"));
  EXPECT_THAT(gbnf_error(nested), HasSubstr("too deeply"));
  EXPECT_TRUE(gbnf_accepts("root ::= " + std::string(256, '(') + "\"a\"" + std::string(256, ')'), "a"));
  EXPECT_THAT(gbnf_error("root ::= " + std::string(257, '(')), HasSubstr("column 267: groups nest too deeply"));
  std::string names = "root ::= \"a\"\n";
  for (int i = 0; i < 10000; ++i) names += fmt::format("r{}::=\"\"\n", i);
  EXPECT_THAT(gbnf_error(names), HasSubstr("more than 10000 rules"));
  EXPECT_THAT(gbnf_error("root ::= \"" + std::string(2 << 20, 'a') + "\""), HasSubstr("at most"));
}

TEST(GrammarGbnf, LargeRepetitionsEndSoon) {
  EXPECT_TRUE(gbnf_accepts("root ::= (\"a\" x){1000,65535}\nx ::= \"(\" x \")\" | \"\"", std::string(5000, 'a')));
  EXPECT_FALSE(gbnf_accepts("root ::= ((\"a\"{3}){2}){2}", std::string(11, 'a')));
  EXPECT_TRUE(gbnf_accepts("root ::= ((\"a\"{3}){2}){2}", std::string(12, 'a')));
  for (int n : {128, 129}) {
    EXPECT_TRUE(
        gbnf_accepts(fmt::format("root ::= (\"a\" | \"b\"){{1,{}}}", n), std::string(static_cast<size_t>(n), 'a')));
    EXPECT_FALSE(gbnf_accepts(fmt::format("root ::= \"a\"{{1,{}}}", n), std::string(static_cast<size_t>(n) + 1, 'a')));
  }
  EXPECT_TRUE(gbnf_accepts("root ::= \"a\"{10}{10}", std::string(100, 'a')));
  EXPECT_FALSE(gbnf_accepts("root ::= \"a\"{1000}{1000}", std::string(5000, 'a')));
  EXPECT_TRUE(gbnf_accepts("root ::= (\"a\"*)*", "aaa"));
  EXPECT_TRUE(gbnf_accepts("root ::= (\"\" | \"a\")*", "aaa"));
  EXPECT_TRUE(gbnf_accepts("root ::= ((x?){0,60000}){0,60000}\nx ::= \"a\" x? \"b\" | \"a\"", std::string(200, 'a')));
}

TEST(GrammarGbnf, TextNestsOnlySoDeep) {
  const auto machine = compile_gbnf("root ::= \"[\" root \"]\" | \"x\"");
  EXPECT_TRUE(read(*machine, std::string(4000, '[') + "x" + std::string(4000, ']')).second);
  EXPECT_LT(read(*machine, std::string(100000, '[')).first, 5000u);
}

}  // namespace
}  // namespace ingot
