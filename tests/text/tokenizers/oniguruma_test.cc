// PCRE2 cuts texts with the expressions of tokenizer.json like Hugging Face tokenizers
// (tools/tokenizer_goldens/make_hf.py).
#include "text/tokenizers/oniguruma.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "text/tokenizers/pretokenizer.h"
#include "text/tokenizers/tokenizer_fixture.h"

namespace ingot {
namespace {

TEST(Oniguruma, CutsWhereTheReferenceCuts) {
  const auto golden = testing::read_json(std::string(INGOT_TEST_DATA) + "/tokenizers/hf/onig.json");
  const auto texts = golden.at("texts").get<std::vector<std::string>>();
  const auto patterns = golden.at("patterns").get<std::vector<std::string>>();
  ASSERT_GT(patterns.size(), 40u);
  for (size_t p = 0; p < patterns.size(); ++p) {
    const std::string translated = pcre2_from_oniguruma(patterns[p]);
    const std::string_view views[] = {translated};
    const Pretokenizer pretokenizer(views);
    for (size_t t = 0; t < texts.size(); ++t) {
      std::vector<size_t> sizes;
      pretokenizer.split(texts[t], [&](std::string_view piece) { sizes.push_back(testing::n_characters(piece)); });
      EXPECT_EQ(sizes, golden["pieces"][p][t].get<std::vector<size_t>>())
          << patterns[p] << " (" << translated << ") on " << printable(texts[t]);
    }
  }
}

TEST(Oniguruma, LiteralsMatchThemselves) {
  const std::string text = "a.b*[c]\\Q d(\xC3\xA9)|{2}-#";
  const std::string pattern = pcre2_from_literal(text);
  const std::string_view views[] = {pattern};
  std::vector<std::string> pieces;
  Pretokenizer(views).split("x" + text + "yab", [&](std::string_view piece) { pieces.emplace_back(piece); });
  EXPECT_THAT(pieces, ::testing::ElementsAre("x", text, "yab"));
}

TEST(Oniguruma, RefusesWhatWouldMeanSomethingElse) {
  const std::pair<const char*, const char*> rows[] = {{"[a-z&&[^b]]", "an intersection of classes"},
                                                      {"[a[bc]]", "a class within a class"},
                                                      {"[[:alpha:]]", "a class within a class"},
                                                      {"(?s:.)", "a group that begins with '(?s:'"},
                                                      {"(?<name>a)", "a group that begins with"},
                                                      {R"(\bfoo)", R"('\b')"},
                                                      {R"(\R)", R"('\R')"},
                                                      {R"(\X)", R"('\X')"},
                                                      {R"(\k<a>)", R"('\k')"},
                                                      {R"((a)\1)", R"('\1')"},
                                                      {"a{2}+", "'+' after a count"},
                                                      {R"(\u12)", "without four digits"},
                                                      {R"(\pL+)", "without braces"},
                                                      {R"([\W])", R"('\W')"},
                                                      {"a\\", "a backslash at its end"}};
  for (const auto& [pattern, expected] : rows) {
    try {
      pcre2_from_oniguruma(pattern);
      ADD_FAILURE() << pattern;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(expected)) << pattern;
    }
  }
}

}  // namespace
}  // namespace ingot
