// Converts values as models write them to JSON.
#include <gtest/gtest.h>

#include "base/json.h"
#include "text/calls/value_reader.h"

namespace ingot {
namespace {

using Dialect = ValueReader::Dialect;
using Status = ValueReader::Status;

// The JSON of the whole `text`, or the error and its position.
std::string read_value(Dialect dialect, std::string_view text, std::string_view mark = {}) {
  ValueReader reader(dialect, mark);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const Status status = reader.feed(text[i], out);
    if (status == Status::kDone) return i + 1 == text.size() ? out : "more after " + out;
    if (status != Status::kMore) return "bad at " + std::to_string(i);
  }
  return reader.finish(out) == Status::kDone ? out : "not whole";
}

TEST(ValueReader, JsonComesOutByteForByte) {
  for (const char* json :
       {R"({"a":1,"b" : [ ] , "c":{}})", R"([1,-0.5e+10,true,false,null,"x\n\u00e9\/"])", "\"\"", "0",
        "{\n  \"a\": [\n    1\n  ]\n}", R"({"a": "日本 🙂", "a": 1})", "[[[[]]]]", "1E5", "-0"})
    EXPECT_EQ(read_value(Dialect::kJson, json), json);
}

TEST(ValueReader, RefusesWhatIsNoJson) {
  for (const char* bad :
       {"{'a': 1}", "{a: 1}", "[1,]", "{\"a\":1,}", "[01]", "[1.]", "[.5]", "[+1]", "[True]", "[nul]", "[\"\\x41\"]",
        "[\"\\'\"]", "{\"a\" 1}", "[1}", "{\"a\"}", "[\"\\u12g4\"]", "[1 2]", "(a=1)", "{1: 2}"}) {
    EXPECT_FALSE(nlohmann::json::accept(bad)) << bad;
    EXPECT_TRUE(read_value(Dialect::kJson, bad).starts_with("bad at")) << bad << " " << read_value(Dialect::kJson, bad);
  }
  EXPECT_EQ(read_value(Dialect::kJson, "{\"a\": \"x"), "not whole");
}

TEST(ValueReader, EscapesControlCharactersInStrings) {
  EXPECT_EQ(read_value(Dialect::kJson, "[\"a\nb\t\x01\"]"), "[\"a\\nb\\t\\u0001\"]");
}

TEST(ValueReader, KeepsNumbersWithinTheRangeOfADouble) {
  const std::string digits(400, '9');
  EXPECT_EQ(read_value(Dialect::kJson, "[1.5e344,-1e309,1e308,1e-400," + digits + "]"),
            "[1.7976931348623157e308,-1.7976931348623157e308,1e308,1e-400,1.7976931348623157e308]");
  EXPECT_EQ(read_value(Dialect::kPython, "(a=-" + digits + ")"), R"({"a": -1.7976931348623157e308})");
  EXPECT_EQ(read_value(Dialect::kGemma, "{a:1e400}", "<escape>"), R"({"a": 1.7976931348623157e308})");
}

TEST(ValueReader, PythonBecomesJson) {
  EXPECT_EQ(read_value(Dialect::kPython, "(city='Paris', n=[1, None, True,], d={'k': 'v'})"),
            R"({"city": "Paris", "n": [1, null, true], "d": {"k": "v"}})");
  EXPECT_EQ(read_value(Dialect::kPython, "()"), "{}");
  EXPECT_EQ(read_value(Dialect::kPython, "(a=-1.5e3,b=false)"), R"({"a": -1.5e3, "b": false})");
  EXPECT_EQ(read_value(Dialect::kPython, R"(['it\'s "x"', "it's", '\x41\u00e9\U0001F642\d\\'])"),
            "[\"it's \\\"x\\\"\", \"it's\", \"\\u0041\\u00e9\\ud83d\\ude42\\\\d\\\\\"]");
  for (const char* bad : {"(1)", "('a')", "(a)", "(a=b)", "(a=g(x=1))", "(a='x'y)", "(a=1]", "(a=)", "(,)"})
    EXPECT_TRUE(read_value(Dialect::kPython, bad).starts_with("bad at")) << bad;
}

TEST(ValueReader, GemmaBecomesJson) {
  EXPECT_EQ(read_value(Dialect::kGemma,
                       R"({a:<|"|>x "y" <|\n<|"|>,b:{c:[1,<|"|>z<|"|>]},d:true,e:None,<|"|>f<|"|>:low})", "<|\"|>"),
            R"({"a": "x \"y\" <|\\n", "b": {"c": [1, "z"]}, "d": true, "e": null, "f": "low"})");
  EXPECT_EQ(read_value(Dialect::kGemma, "{}", "<escape>"), "{}");
  EXPECT_EQ(read_value(Dialect::kGemma, "{a:<escape><<escape>}", "<escape>"), R"({"a": "<"})");
}

TEST(ValueReader, IsNoDeeperThanItsLimit) {
  EXPECT_EQ(read_value(Dialect::kJson, std::string(256, '[') + std::string(256, ']')).size(), 512u);
  EXPECT_EQ(read_value(Dialect::kJson, std::string(257, '[')), "bad at 256");
}

TEST(ValueAsJson, TakesJsonThenPython) {
  EXPECT_EQ(value_as_json(" 5\n"), "5");
  EXPECT_EQ(value_as_json("True"), "true");
  EXPECT_EQ(value_as_json("{'a': [None]}"), R"({"a": [null]})");
  EXPECT_EQ(value_as_json("1, 2"), "");
  EXPECT_EQ(value_as_json("(a=1)"), "");
  EXPECT_EQ(value_as_json("Paris"), "");
  EXPECT_EQ(value_as_json(""), "");
}

}  // namespace
}  // namespace ingot
