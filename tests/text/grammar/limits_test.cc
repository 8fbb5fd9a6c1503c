// The work of machines: it is counted, so tests compare counts and not times. docs/grammar.md states how the work of
// each keyword grows; here each input is doubled. Also the limits of work and memory for hostile constraints.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"
#include "text/grammar/grammar_check.h"
#include "text/grammar/machine/schema_machine.h"
#include "text/grammar/masks/constraint.h"
#include "text/grammar/rules/compile.h"

namespace ingot {
namespace {

using ::testing::HasSubstr;
using MakeMachine = std::function<std::unique_ptr<Automaton>(int n)>;

std::string joined(int n, const std::function<std::string(int)>& part) {
  std::string text;
  for (int i = 0; i < n; ++i) text += (i == 0 ? "" : ",") + part(i);
  return text;
}

// Reads the text and all bytes that may follow. False if that takes more work than `limit`.
bool reads_within(Automaton& machine, const std::string& text, size_t limit) {
  try {
    machine.meter().limit(limit);
    GrammarState state = machine.start();
    for (char c : text) state = state.is_dead() ? state : machine.step(state, static_cast<uint8_t>(c));
    EXPECT_FALSE(state.is_dead()) << text.substr(0, 200);
    for (int byte = 0; byte < 256; ++byte) machine.step(state, static_cast<uint8_t>(byte));
    return true;
  } catch (const Error&) {
    return false;
  }
}

// The smallest limit that suffices, to a sixteenth.
size_t work_of(const std::function<std::unique_ptr<Automaton>()>& make, const std::string& text) {
  size_t low = 1, high = 64;
  for (; high < size_t{1} << 30 && !reads_within(*make(), text, high); high *= 2) low = high;
  while (high - low > high / 16) {
    const size_t middle = low + (high - low) / 2;
    (reads_within(*make(), text, middle) ? high : low) = middle;
  }
  return high;
}

struct Growth {
  const char* name;
  std::function<std::string(int n)> schema, text;
  double most;  // of the work for twice the input: 2 for linear, 4 for quadratic, 8 for cubic
};

TEST(GrammarLimits, WorkGrowsAsStated) {
  const auto no_text = [](int) { return std::string(R"({")"); };
  const std::vector<Growth> growths = {
      {"properties",
       [](int n) {
         return R"({"type":"object","properties":{)" +
                joined(n, [](int i) { return fmt::format(R"("k{}":{{"type":"null"}})", i); }) + "}}";
       },
       no_text, 2},
      {"required",
       [](int n) {
         return R"({"type":"object","required":[)" + joined(n, [](int i) { return fmt::format("\"k{}\"", i); }) + "]}";
       },
       no_text, 2},
      {"dependentRequired",
       [](int n) {
         return R"({"type":"object","dependentRequired":{)" +
                joined(n, [](int i) { return fmt::format(R"("k{}":["k{}"])", i, i + 1); }) + "}}";
       },
       no_text, 4},
      {"oneOf",
       [](int n) {
         return R"({"oneOf":[)" +
                joined(n,
                       [](int i) {
                         return fmt::format(R"({{"properties":{{"a":{{"const":{}}}}},"required":["a"]}})", i);
                       }) +
                "]}";
       },
       [](int) { return std::string(R"({"a":)"); }, 4},
      {"enum", [](int n) { return R"({"enum":[)" + joined(n, [](int i) { return fmt::format("\"k{}\"", i); }) + "]}"; },
       [](int) { return std::string("\"k"); }, 2},
      {"patternProperties",
       [](int n) {
         return R"({"type":"object","patternProperties":{)" +
                joined(n, [](int i) { return fmt::format(R"("^k{}_":{{"type":"null"}})", i + 100); }) + "}}";
       },
       no_text, 4},
      {"uniqueItems",
       [](int) {
         return std::string(R"({"type":"array","items":{"type":"string","pattern":"^[a-z0-9]+$"},"uniqueItems":true})");
       },
       [](int n) { return "[" + joined(n, [](int i) { return fmt::format("\"k{}\"", i); }) + ",\""; }, 4},
      {"minItems", [](int n) { return fmt::format(R"({{"items":{{"type":"integer"}},"minItems":{}}})", n); },
       [](int) { return std::string("[1"); }, 2},
      {"minContains",
       [](int n) { return fmt::format(R"({{"type":"array","contains":{{"type":"integer"}},"minContains":{}}})", n); },
       [](int) { return std::string("[1"); }, 4},
      {"minProperties", [](int n) { return fmt::format(R"({{"type":"object","minProperties":{}}})", n); },
       [](int) { return std::string(R"({"a":1)"); }, 2},
      {"pattern", [](int n) { return fmt::format(R"({{"pattern":"^.*a.{{{}}}$"}})", n); },
       [](int n) { return '"' + std::string(static_cast<size_t>(n), 'a'); }, 4},
  };
  for (const Growth& growth : growths) {
    const auto work = [&](int n) {
      return work_of([&] { return compile_schema(growth.schema(n), {}, {.any_order = true}); }, growth.text(n));
    };
    const size_t once = work(24), twice = work(48);
    RecordProperty(growth.name, fmt::format("{} {}", once, twice));
    EXPECT_LE(static_cast<double>(twice), growth.most * 1.25 * static_cast<double>(once) + 64)
        << growth.name << " " << once;
    EXPECT_GT(twice, 1u);
  }
}

// A GBNF with n ways to read each byte.
std::string ambiguous(int n) {
  std::string root = "root ::= ", rules;
  for (int i = 0; i < n; ++i) {
    root += fmt::format("{}r{}", i == 0 ? "" : " | ", i);
    rules += fmt::format("r{} ::= [a-z] root? | [a-z] r{} [a-z]\n", i, (i + 1) % n);
  }
  return root + "\n" + rules;
}

TEST(GrammarLimits, ParsesAreCounted) {
  const auto work = [](int n) { return work_of([&] { return compile_gbnf(ambiguous(n)); }, "abab"); };
  const size_t once = work(6), twice = work(12);
  EXPECT_GT(twice, once);
  const auto machine = compile_gbnf(ambiguous(150));
  EXPECT_THAT(ingot::testing::error_of([&] {
                machine->meter().limit(WorkMeter::kMaxWork / 16);
                GrammarState state = machine->start();
                for (int i = 0; i < 40; ++i) state = machine->step(state, 'a');
              }),
              HasSubstr("too ambiguous"));
  EXPECT_LT(machine->n_bytes(), size_t{128} << 20);
}

// A machine whose every step takes the same work.
class Laborious final : public Automaton {
 public:
  explicit Laborious(size_t work) : work_(work) {}
  size_t n_bytes() const override { return 0; }
  GrammarState start() override { return {1, 0, 0}; }
  GrammarState step(GrammarState state, uint8_t) override {
    meter_->spend(work_);
    return state;
  }
  bool accepts(GrammarState) override { return false; }

 private:
  const size_t work_;
};

// Each call stays within its limit, but an answer of such calls does not go on forever. The limit is the same for all
// efforts, and tokens that are taken back give no more work.
TEST(GrammarLimits, AnAnswerHasALimitOfWork) {
  const auto vocabulary = std::make_shared<GrammarVocabulary>(std::vector<std::string>{"a"}, std::vector<int32_t>{});
  const auto tokens_until_error = [&](size_t work, const Effort& effort, bool goes_back) {
    Matcher matcher(std::make_shared<Constraint>(std::make_unique<Laborious>(work), vocabulary));
    for (int n = 0; n < 10000; ++n) {
      try {
        matcher.accept(0, effort);
        if (goes_back) matcher.roll_back(1);
      } catch (const TooMuchWork& error) {
        EXPECT_THAT(error.what(), HasSubstr("an answer of this length"));
        return n;
      } catch (const NotQuick&) {
        return n;
      }
    }
    return 10000;
  };
  const size_t a_token = Matcher::kTokenWork;
  const auto most = static_cast<int>(Matcher::kAnswerWork / a_token);
  EXPECT_EQ(tokens_until_error(a_token, kFullEffort, false), 10000);
  EXPECT_EQ(tokens_until_error(2 * a_token, kFullEffort, false), most - 1);
  EXPECT_EQ(tokens_until_error(a_token, Effort{a_token, true}, false), 10000);
  EXPECT_EQ(tokens_until_error(a_token, kFullEffort, true), most);
}

// The message of a refusal names the path and a keyword, at a mask and when compiling.
TEST(GrammarLimits, ARefusalNamesItsPlace) {
  const char* schema = R"({"properties":{"a":{"items":{"type":"array","items":{"type":"string","pattern":"^[a-z]+$"},)"
                       R"("uniqueItems":true}}},"required":["a"]})";
  std::vector<std::string> bytes;
  for (int i = 0; i < 256; ++i) bytes.emplace_back(1, static_cast<char>(i));
  Matcher matcher(std::make_shared<Constraint>(compile_schema(schema, {}, {}),
                                               std::make_shared<GrammarVocabulary>(bytes, std::vector<int32_t>{})));
  for (const char c : std::string_view(R"({"a":[["b")")) ASSERT_TRUE(matcher.accept(c));
  EXPECT_THAT(ingot::testing::error_of([&] {
                for (const char c : std::string_view(",\"")) matcher.accept(c, Effort{20, false});
              }),
              HasSubstr("schema #/properties/a/items: 'uniqueItems'"));
  const auto required = [](int i) { return fmt::format(R"({{"required":["k{}"]}})", i); };
  const std::string any =
      joined(60, [&](int i) { return "{\"anyOf\":[" + required(i) + "," + required(i + 1) + "]}"; });
  const std::string never = joined(60, [](int i) { return fmt::format(R"({{"required":["k{}","k{}"]}})", i, i + 1); });
  EXPECT_THAT(ingot::testing::error_of([&] {
                compile_schema(R"({"type":"object","properties":{"b":{"type":"object","maxProperties":9,"allOf":[)" +
                                   any + R"(],"not":{"anyOf":[)" + never + R"(]}}},"required":["b"]})",
                               {}, {});
              }),
              HasSubstr("schema #/properties/b: '"));
}

// A limit that is too small stops each kind of work, and a later call has a limit of its own.
TEST(GrammarLimits, EachMachineStopsAtItsLimit) {
  const std::pair<std::string, std::string> schemas[] = {
      {R"({"type":"object","dependentRequired":{)" +
           joined(500, [](int i) { return fmt::format(R"("k{}":["k{}"])", i, i + 1); }) + "}}",
       R"({"k1":1,"k7)"},
      {R"({"type":"array","uniqueItems":true,"items":{"pattern":"^[a-z]+[0-9]{1,9}$"}})", R"(["a1","b2","c3","d)"},
      {R"({"type":"array","items":{"type":"integer"},"uniqueItems":true,"minItems":200})", "[1,2"},
  };
  for (const auto& [schema, text] : schemas) {
    const auto machine = compile_schema(schema, {}, {.any_order = true});
    EXPECT_FALSE(reads_within(*machine, text, 20)) << schema.substr(0, 60);
    EXPECT_TRUE(reads_within(*machine, text, SIZE_MAX)) << schema.substr(0, 60);
  }
}

TEST(GrammarLimits, MemoryOfStatesIsBounded) {
  const auto machine = compile_regex(".*a.{5000}");
  const std::string error = ingot::testing::error_of([&] {
    GrammarState state = machine->start();
    for (int i = 0; i < 20000; ++i) state = machine->step(state, i % 3 == 0 ? 'b' : 'a');
  });
  EXPECT_THAT(error, HasSubstr("too large"));
  EXPECT_LT(machine->n_bytes(), size_t{64} << 20);
}

// Long texts use each state once: rows are dropped, not collected.
TEST(GrammarLimits, RowsOfLongTextsAreDropped) {
  const auto machine = compile_regex("([a-z]{3}[0-9]){30000}");
  GrammarState state = machine->start();
  for (int i = 0; i < 100000; ++i) state = machine->step(state, i % 4 == 3 ? '7' : 'k');
  EXPECT_FALSE(state.is_dead());
  EXPECT_LT(machine->n_bytes(), size_t{64} << 20);
}

}  // namespace
}  // namespace ingot
