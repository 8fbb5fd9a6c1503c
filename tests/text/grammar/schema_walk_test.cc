// Dead ends: random tokens that masks allow must always lead to a state where some token is allowed. Schemas are drawn
// with every keyword that can exclude values. Most walks are completed too, by random ends of values; such a search
// misses some ends, so only their share is tested.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "test_seed.h"
#include "text/grammar/grammar_check.h"
#include "text/grammar/machine/schema_machine.h"
#include "text/grammar/masks/constraint.h"

namespace ingot {
namespace {

using WalkJson = nlohmann::ordered_json;

class SchemaDraw {
 public:
  explicit SchemaDraw(uint64_t seed) : random_(seed) {}

  int draw(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  bool one_in(int n) { return draw(n) == 0; }

  WalkJson schema(int depth) {
    if (depth <= 0) return leaf();
    if (one_in(12)) return !one_in(4);
    WalkJson s = one_in(4) ? WalkJson::object() : typed(depth);
    if (s.is_object() && one_in(3)) combine(s, depth);
    return s;
  }

 private:
  std::string name() { return std::vector<std::string>{"a", "b", "ab", "c", "é"}[static_cast<size_t>(draw(5))]; }
  std::string pattern() {
    return std::vector<std::string>{"^a", "b$", "^[ab]$", "^(a|ab)$", "^.{1}$", "^x"}[static_cast<size_t>(draw(6))];
  }
  WalkJson value() {
    switch (draw(9)) {
      case 0: return nullptr;
      case 1: return one_in(2);
      case 2:
      case 3: return draw(3);
      case 4: return 0.5;
      case 5:
      case 6: return name();
      case 7: {
        WalkJson list = WalkJson::array();
        for (int i = draw(3); i > 0; --i) list.push_back(draw(2));
        return list;
      }
      default: {
        WalkJson object = WalkJson::object();
        for (int i = draw(3); i > 0; --i) object[name()] = draw(2);
        return object;
      }
    }
  }
  WalkJson leaf() {
    switch (draw(8)) {
      case 0: return true;
      case 1: return {{"const", value()}};
      case 2: return {{"enum", {value(), value()}}};
      case 3: return {{"type", "integer"}, {"minimum", draw(3)}, {"maximum", 1 + draw(3) + 2}};
      case 4: return {{"type", "string"}, {"pattern", pattern()}};
      case 5: return {{"type", "string"}, {"maxLength", draw(3)}};
      case 6: return {{"type", "number"}, {"multipleOf", one_in(2) ? 2 : 0.5}};
      default: return {{"type", std::vector<std::string>{"null", "boolean", "integer", "string"}[size_t(draw(4))]}};
    }
  }
  std::vector<std::string> names(int most) {
    std::set<std::string> all;
    for (int i = draw(most + 1); i > 0; --i) all.insert(name());
    return {all.begin(), all.end()};
  }
  void bound(WalkJson& s, const char* low, const char* high) {
    int a = draw(4), b = draw(4);
    if (a > b) std::swap(a, b);
    if (one_in(3)) s[low] = a;
    if (one_in(3)) s[high] = b;
  }
  WalkJson typed(int depth) {
    WalkJson s = WalkJson::object();
    switch (draw(5)) {
      case 0: return leaf();
      case 1:
      case 2: {
        if (!one_in(4)) s["type"] = "object";
        if (!one_in(4)) {
          for (const std::string& one : names(3)) s["properties"][one] = schema(depth - 1);
        }
        if (one_in(2)) s["required"] = names(2);
        if (one_in(3)) s["additionalProperties"] = one_in(2) ? WalkJson(false) : schema(depth - 1);
        if (one_in(4)) s["patternProperties"][pattern()] = schema(depth - 1);
        if (one_in(5))
          s["propertyNames"] = one_in(2) ? WalkJson{{"pattern", pattern()}} : WalkJson{{"enum", {name(), name()}}};
        if (one_in(3)) bound(s, "minProperties", "maxProperties");
        if (one_in(4)) s["dependentRequired"][name()] = names(2);
        if (one_in(5)) s["dependentSchemas"][name()] = schema(depth - 1);
        if (one_in(8)) s["unevaluatedProperties"] = one_in(2) ? WalkJson(false) : schema(depth - 1);
        return s;
      }
      default: {
        if (!one_in(4)) s["type"] = "array";
        if (one_in(3)) {
          for (int i = 1 + draw(2); i > 0; --i) s["prefixItems"].push_back(schema(depth - 1));
        }
        if (!one_in(3)) s["items"] = schema(depth - 1);
        if (one_in(4)) {
          s["contains"] = leaf();  // so that can_complete() finds an item
          bound(s, "minContains", "maxContains");
        }
        if (one_in(2)) bound(s, "minItems", "maxItems");
        if (one_in(3)) s["uniqueItems"] = true;
        if (one_in(8)) s["unevaluatedItems"] = one_in(2) ? WalkJson(false) : schema(depth - 1);
        return s;
      }
    }
  }
  void combine(WalkJson& s, int depth) {
    const auto list = [&] {
      WalkJson all = WalkJson::array();
      for (int i = 2 + draw(2); i > 0; --i) all.push_back(schema(depth - 1));
      return all;
    };
    switch (draw(6)) {
      case 0: s["not"] = schema(depth - 1); break;
      case 1: s["anyOf"] = list(); break;
      case 2: s["oneOf"] = list(); break;
      case 3: s["allOf"] = list(); break;
      case 4: s["oneOf"] = list(); [[fallthrough]];
      default:
        s["if"] = schema(depth - 1);
        if (!one_in(3)) s["then"] = schema(depth - 1);
        if (!one_in(3)) s["else"] = schema(depth - 1);
    }
  }

  std::mt19937_64 random_;
};

std::shared_ptr<const GrammarVocabulary> walk_vocabulary() {
  std::vector<std::string> tokens{""};
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* text :
       {"{\"", "\":", "\",", "\"}", "\"a\"", "\"a\":", "\"b\": ", ", \"", "},",  "}]",         "[1",     "[1,",
        "1,",  "e3",  "-0",  "0.5", "true",  "false",  "null",    "ab",   "é",   "\xc3\xa9\"", "\\u00",  "e9",
        "[]",  "{}",  "],",  "]}",  "\n  ",  "[{",     "[[",      ",1",   ",2]", "1]",         "\"ab\"", "c\":0"})
    tokens.emplace_back(text);
  return std::make_shared<const GrammarVocabulary>(tokens, std::vector<int32_t>{0});
}

// Whether random continuations complete the state: ends of values first, then the values and names of SchemaDraw.
bool can_complete(Automaton& machine, GrammarState first, SchemaDraw& draw) {
  const std::vector<std::string> ends{"}", "]", "\"}", "\"]", "\"", "e\"", "\":0}", "]}", "}]"};
  const std::vector<std::string> parts{"\"a\"",
                                       "\"ab\"",
                                       "\"b\"",
                                       "\"c\"",
                                       "\"é\"",
                                       "\"x\"",
                                       "\"\"",
                                       "\"xx\"",
                                       "0",
                                       "1",
                                       "2",
                                       "3",
                                       "0.5",
                                       "7",
                                       "true",
                                       "false",
                                       "null",
                                       "[",
                                       "{",
                                       ",",
                                       ":",
                                       ":0",
                                       ":\"a\"",
                                       "[]",
                                       "{}",
                                       "[0]",
                                       "{\"a\":0}",
                                       "[1]",
                                       "[1,1]",
                                       "{\"b\":1}",
                                       "a",
                                       "b",
                                       "é",
                                       "c",
                                       "x",
                                       "\x80\x80",
                                       "\xa9",
                                       "\x80",
                                       "e0",
                                       "9",
                                       "true",
                                       "rue",
                                       "alse",
                                       "ull",
                                       "l",
                                       "e",
                                       "u0061",
                                       "0061\"",
                                       "[[]]",
                                       "\n",
                                       "n",
                                       ",\"ab\":",
                                       ",\"b\":",
                                       ",\"a\":",
                                       ",\"c\":",
                                       ",\"é\":",
                                       ",\"a\":1",
                                       ",\"ab\":1",
                                       ",\"b\":1",
                                       ",\"é\":1",
                                       "{\"a\":1}",
                                       "{\"a\":1,\"ab\":1",
                                       "{\"ab\":1",
                                       "{\"é\":1",
                                       "{\"b\":1",
                                       "{\"c\":1",
                                       ",\"c\":1",
                                       "[0,1]",
                                       "[1,0]",
                                       "[0,0]",
                                       "{\"a\":0,\"b\":1}"};
  const auto read = [&](GrammarState state, const std::string& text) {
    for (char c : text) state = state.is_dead() ? state : machine.step(state, static_cast<uint8_t>(c));
    return state;
  };
  for (int attempt = 0; attempt < 60; ++attempt) {
    GrammarState state = first;
    for (int n = 0; n < 10 + attempt / 20; ++n) {
      if (machine.accepts(state)) return true;
      GrammarState next;
      for (int i = 0; i < 3 && next.is_dead() && !draw.one_in(3); ++i) next = read(state, ends[size_t(draw.draw(9))]);
      for (int i = 0; i < 40 && next.is_dead(); ++i) next = read(state, parts[size_t(draw.draw(int(parts.size())))]);
      for (int byte = 0; byte < 256 && next.is_dead(); ++byte) next = machine.step(state, static_cast<uint8_t>(byte));
      if (next.is_dead()) break;
      state = next;
    }
    if (machine.accepts(state)) return true;
  }
  return false;
}

// Walks from the start. Returns what went wrong.
std::string walk(const std::shared_ptr<Constraint>& constraint, Automaton& plain, SchemaDraw& draw, int& n_open) {
  std::string text;
  try {
    Matcher matcher(constraint);
    GrammarState state = plain.start();
    for (int n = 10 + draw.draw(30); n > 0; --n) {
      const auto mask = matcher.mask();
      std::vector<int32_t> allowed;
      for (int32_t id = 0; id < constraint->vocabulary().size(); ++id) {
        if (allows_token(*mask, id)) allowed.push_back(id);
      }
      if (allowed.empty()) return "no token after " + text;
      const bool prefers_long = draw.one_in(3);  // most tokens are letters
      int32_t token = allowed[static_cast<size_t>(draw.draw(static_cast<int>(allowed.size())))];
      for (int i = 0; i < 3 && prefers_long && token < 257; ++i)
        token = allowed[static_cast<size_t>(draw.draw(static_cast<int>(allowed.size())))];
      if (token == 0) return "";
      if (!matcher.accept(token)) return "a mask allows a token that is refused after " + text;
      for (char c : constraint->vocabulary().bytes(token)) state = plain.step(state, static_cast<uint8_t>(c));
      text += constraint->vocabulary().bytes(token);
    }
    n_open += !can_complete(plain, state, draw);
    return "";
  } catch (const Error& error) {
    return "error after " + text + ": " + error.what();
  }
}

void walk_schemas(int n_schemas, bool any_order, uint64_t seed) {
  SCOPED_TRACE(fmt::format("INGOT_TEST_SEED={}", seed));
  SchemaDraw draw(seed);
  const auto vocabulary = walk_vocabulary();
  int n_compiled = 0, n_empty = 0, n_open = 0;
  for (int i = 0; i < n_schemas; ++i) {
    const std::string schema = draw.schema(3).dump();
    const MachineOptions options{.any_order = any_order};
    std::shared_ptr<Constraint> constraint;
    std::unique_ptr<Automaton> plain;
    try {
      constraint = std::make_shared<Constraint>(compile_schema(schema, {}, options), vocabulary);
      plain = compile_schema(schema, {}, options);
    } catch (const Error& error) {
      const std::string_view why = error.what();
      n_empty += why.find("no value at all") != why.npos;
      EXPECT_TRUE(why.find("no value at all") != why.npos || why.find("is above") != why.npos ||
                  why.find("depends on too many") != why.npos)
          << schema << " " << why;
      continue;
    }
    ++n_compiled;
    for (int k = 0; k < 4; ++k) {
      const std::string wrong = walk(constraint, *plain, draw, n_open);
      ASSERT_EQ(wrong, "") << schema;
    }
  }
  EXPECT_GT(n_compiled, n_schemas / 2);
  EXPECT_LT(n_open, n_compiled * 4 / 20);
  EXPECT_GT(n_empty, 0);
}

// Repeats a call with less than the work that it needs, and at last with enough.
template <class F>
auto after_short_calls(F call, SchemaDraw& draw, int& n_cut) {
  for (size_t work = static_cast<size_t>(draw.draw(4));; work += 1 + work / 2 + static_cast<size_t>(draw.draw(4))) {
    try {
      return call(Effort{work, true});
    } catch (const NotQuick&) {
      ++n_cut;
    }
    if (work > WorkMeter::kMaxWork) return call(kFullEffort);  // fails as it would without the short calls
  }
}

// A call that is cut short leaves the machine as if the call had not been made.
TEST(SchemaWalk, ShortCallsChangeNothing) {
  const uint64_t seed = test_seed() + 2;
  SCOPED_TRACE(fmt::format("INGOT_TEST_SEED={}", seed));
  SchemaDraw draw(seed);
  const auto vocabulary = walk_vocabulary();
  int n_cut = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string schema = draw.schema(3).dump();
    const MachineOptions options{.any_order = draw.one_in(2)};
    const auto compiled = [&] { return std::make_shared<Constraint>(compile_schema(schema, {}, options), vocabulary); };
    std::shared_ptr<Constraint> whole, cut;
    try {
      whole = compiled();
      cut = compiled();
    } catch (const Error&) {
      continue;
    }
    Matcher of_whole(whole), of_cut(cut);
    for (int n = 0; n < 30; ++n) {
      const auto mask = of_whole.mask();
      ASSERT_EQ(*mask, *after_short_calls([&](Effort effort) { return of_cut.mask(effort); }, draw, n_cut)) << schema;
      ASSERT_EQ(of_whole.forced(), after_short_calls([&](Effort effort) { return of_cut.forced(effort); }, draw, n_cut))
          << schema;
      ASSERT_EQ(of_whole.is_over(),
                after_short_calls([&](Effort effort) { return of_cut.is_over(effort); }, draw, n_cut));
      std::vector<int32_t> allowed;
      for (int32_t id = 1; id < vocabulary->size(); ++id)
        if (allows_token(*mask, id)) allowed.push_back(id);
      if (allowed.empty()) break;
      const int32_t token = allowed[static_cast<size_t>(draw.draw(static_cast<int>(allowed.size())))];
      ASSERT_TRUE(of_whole.accept(token));
      ASSERT_TRUE(after_short_calls([&](Effort effort) { return of_cut.accept(token, effort); }, draw, n_cut));
      ASSERT_EQ(of_whole.can_end(), of_cut.can_end());
    }
  }
  EXPECT_GT(n_cut, 1000);
}

TEST(SchemaWalk, NoTokenLeadsToADeadEnd) { walk_schemas(1000, true, test_seed()); }
TEST(SchemaWalk, NoTokenLeadsToADeadEndInOrder) { walk_schemas(1000, false, test_seed() + 1); }

}  // namespace
}  // namespace ingot
