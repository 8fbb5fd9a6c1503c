#include "io/json.h"

#include <gmock/gmock.h>

#include "io/refused.h"

namespace ingot {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

JsonDocument parse_json(std::string_view text) { return JsonDocument::parse(text, "c.json"); }
std::string json_refusal(std::string_view text) {
  return refusal([&] { parse_json(text); });
}

std::string nested_lists(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(Json, ReadsEveryKind) {
  const JsonDocument document =
      parse_json(R"( {"a": {"b": [1, -2, 32.0, 1e2]}, "s": "x\u00e9\n", "t": true, "n": null} )");
  const Json root = document.root(), list = root.at("a").at("b");
  std::vector<int64_t> integers;
  for (const Json& element : list.elements()) integers.push_back(element.integer(-10, 100));
  EXPECT_THAT(integers, ElementsAre(1, -2, 32, 100));
  EXPECT_EQ(list.elements()[1].number(), -2.0);
  EXPECT_EQ(root.at("s").string(), "x\xC3\xA9\n");
  EXPECT_TRUE(root.at("t").boolean());
  EXPECT_FALSE(root.find("n"));
  EXPECT_FALSE(root.find("absent"));
  std::vector<std::string> keys;
  for (const auto& [key, value] : root.members()) keys.emplace_back(key);
  EXPECT_THAT(keys, ElementsAre("a", "s", "t", "n"));
}

TEST(Json, KnowsPathsAndOffsets) {
  const std::string text = R"({"a": 1, "b": [{"c": 2}, {"d": [7, "e"]}], "z": 1.5})";
  const JsonDocument document = parse_json(text);
  const Json e = document.root().at("b").elements()[1].at("d").elements()[1];
  EXPECT_EQ(e.path(), "b[1].d[1]");
  EXPECT_EQ(e.offset(), text.find("\"e\""));
  EXPECT_EQ(document.root().at("z").offset(), text.find("1.5"));
  EXPECT_EQ(document.root().path(), "");
  EXPECT_EQ(refusal([&] { e.integer(0, 9); }),
            fmt::format("c.json: 'b[1].d[1]' at offset {}: expected an integer, got str \"e\"", text.find("\"e\"")));
}

TEST(Json, RefusesOtherKindsAndRanges) {
  const JsonDocument document = parse_json(
      R"({"i": 5, "r": 1.5, "s": "5", "b": true, "l": [5], "n": null, "big": 18446744073709551615, "huge": 1e300})");
  const Json root = document.root();
  for (const char* key : {"r", "s", "b", "l", "huge"})
    EXPECT_THAT(refusal([&] { root.at(key).integer(0, 100); }), HasSubstr(fmt::format("'{}' at offset", key)));
  EXPECT_THAT(refusal([&] { root.at("i").integer(0, 4); }), HasSubstr("5 is out of range: expected 0 to 4"));
  EXPECT_THAT(refusal([&] { root.at("big").integer(0, INT64_MAX); }), HasSubstr("'big'"));
  for (const char* key : {"s", "b", "l"})
    EXPECT_THAT(refusal([&] { root.at(key).number(); }), HasSubstr("expected a number"));
  EXPECT_THAT(refusal([&] { root.at("i").boolean(); }), HasSubstr("expected a bool, got integer 5"));
  EXPECT_THAT(refusal([&] { root.at("i").string(); }), HasSubstr("expected a string"));
  EXPECT_THAT(refusal([&] { root.at("i").elements(); }), HasSubstr("expected an array"));
  EXPECT_THAT(refusal([&] { root.at("i").find("x"); }), HasSubstr("expected an object"));
  EXPECT_THAT(refusal([&] { root.at("x"); }), HasSubstr("'x' is missing"));
  EXPECT_THAT(refusal([&] { root.at("n"); }), HasSubstr("'n' at offset"));
}

TEST(Json, SyntaxErrorsHaveAPlace) {
  EXPECT_THAT(json_refusal("{\"a\": 1,\n \"b\": NaN}"), HasSubstr("c.json: line 2, column "));
  for (const char* text :
       {"", "  ", "{", "[1,]", "{\"a\":1,}", "{\"a\" 1}", "{\"a\":1} x", "[Infinity]", "[-NaN]", "// c\n{}", "{}//",
        "[01]", "[1e999]", "[\"\x01\"]", "[\"\xff\"]", "[\"\\ud800\"]", "{'a':1}", "[\"a\nb\"]", "nul"})
    EXPECT_THAT(json_refusal(text), HasSubstr("is not JSON")) << text;
  EXPECT_THAT(json_refusal(std::string_view("{}\0", 3)), HasSubstr("column 3 (offset 2): is not JSON: a NUL byte"));
  EXPECT_THAT(json_refusal("\xEF\xBB\xBF{}"), HasSubstr("byte order mark"));
}

TEST(Json, NestsToALimit) {
  EXPECT_TRUE(parse_json(nested_lists(kMaxJsonDepth)).root().is_array());
  for (const size_t depth : {size_t{kMaxJsonDepth} + 1, size_t{1000}, size_t{1'000'000}})
    EXPECT_THAT(json_refusal(nested_lists(depth)), HasSubstr("nested more than 64 levels deep"));
}

TEST(Json, RefusesAKeyThatOccursTwice) {
  EXPECT_THAT(json_refusal(R"({"a": 1, "b": 2, "a": 3})"), HasSubstr("the key 'a' occurs twice"));
  EXPECT_THAT(json_refusal(R"({"x": [{"a": 1, "\u0061": 3}]})"), HasSubstr("'a' occurs twice"));
  EXPECT_EQ(parse_json(R"({"a": {"a": 1}, "b": {"a": 1}})").root().members().size(), 2u);
}

TEST(Json, RendersForPeople) {
  EXPECT_EQ(parse_json(R"({"a": [1, 2.5, "x\n"], "b": {}})").root().render(), R"({a: [1, 2.5, "x\x0a"], b: {}})");
  std::string many = "[0";
  for (int i = 0; i < 10000; ++i) many += ",1";
  EXPECT_LT(parse_json(many + "]").root().render().size(), 500u);
}

}  // namespace
}  // namespace ingot
