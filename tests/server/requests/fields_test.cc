// JSON strings of answers, which are written for each token: compared with nlohmann's reader and writer.
#include "server/requests/fields.h"

#include <gtest/gtest.h>

#include <random>

#include "base/json.h"
#include "server/requests/http.h"
#include "test_seed.h"
#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

std::string written(const std::string& text) {
  std::string out = "before";
  append_json_string(out, text);
  EXPECT_TRUE(out.starts_with("before\""));
  return out.substr(6);
}

TEST(Fields, StringsAreWrittenAsTheLibraryWritesThem) {
  std::string text;
  for (int c = 0; c < 0x80; ++c) text += static_cast<char>(c);
  text += "\u00eb\u4e16\u754c\U0001f642\u2028\ufeff";
  EXPECT_EQ(written(text), nlohmann::json(text).dump());
  EXPECT_EQ(written(""), "\"\"");
}

TEST(Fields, AnyBytesBecomeAStringThatCanBeRead) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  const std::string pieces[] = {"\xE4\xB8", "\xF0\x9F\x99", "\x80", "\xC0\x80", "\xED\xA0\x80",
                                "\u4e16",   "\"",           "\\",   "\n",       "a"};
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (unsigned n = draw() % 12; n > 0; --n) {
      if (draw() % 2 == 0) {
        text += static_cast<char>(draw() % 256);
      } else {
        text += pieces[draw() % std::size(pieces)];
      }
    }
    ASSERT_EQ(nlohmann::json::parse(written(text)).get<std::string>(), replace_invalid_utf8(text)) << "round " << i;
  }
}

TEST(Fields, HaveOtherNamesInOtherApis) {
  constexpr FieldAlias kAliases[] = {{"max_tokens", "options.num_predict"}, {"input", "prompt"}};
  const JsonValue body = {
      {"options", {{"num_predict", 7}, {"num", {{"deep", 1}}}}}, {"prompt", {"a", "b"}}, {"max_tokens", 9}};
  const Fields fields(body, "", kAliases);
  EXPECT_EQ(fields.integer("max_tokens", 0, 100), 7) << "the request's own name counts, and no other";
  EXPECT_EQ(fields.strings("input", 9, 9)->size(), 2u);
  EXPECT_EQ(fields.find("seed"), nullptr);
  const auto refusal = [](auto ask) {
    try {
      ask();
    } catch (const ApiError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(error.param())) << error.what();
      return error.param();
    }
    return std::string("nothing");
  };
  EXPECT_EQ(refusal([&] { fields.integer("max_tokens", 0, 5); }), "options.num_predict");
  EXPECT_EQ(refusal([&] { fields.string("input"); }), "prompt");
  const JsonValue empty = JsonValue::object(), odd = {{"options", 5}};
  EXPECT_EQ(refusal([&] { Fields(empty, "", kAliases).at("max_tokens"); }), "options.num_predict");
  EXPECT_EQ(Fields(odd, "", kAliases).find("max_tokens"), nullptr) << "no object, no member";
  EXPECT_EQ(*find_member(body, "options.num.deep"), 1);
}

}  // namespace
}  // namespace ingot
