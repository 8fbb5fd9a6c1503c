// Pattern matches names like Python's re.match, and refuses hostile expressions.
#include "text/tokenizers/pattern.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace ingot {
namespace {

template <class F>
std::string complaint(const F& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Pattern, IsBoundToTheStartAlone) {
  struct Row {
    const char* expression;
    const char* text;
    bool matches;
  };
  const Row rows[] = {{"lm_head", "lm_head", true},
                      {"lm_head", "lm_head.weight", true},
                      {"lm_head", "model.lm_head", false},
                      {".*lm_head", "model.lm_head", true},
                      {"lm_head$", "lm_head.weight", false},
                      {"", "anything", true},
                      {"a|b", "b", true},
                      {R"(model\.layers\.(0|[2-9])\.mlp.*)", "model.layers.2.mlp.up_proj", true},
                      {R"(model\.layers\.(0|[2-9])\.mlp.*)", "model.layers.1.mlp.up_proj", false},
                      {R"((?!.*\.down).*proj)", "x.up_proj", true},
                      {R"((?!.*\.down).*proj)", "x.down_proj", false}};
  for (const Row& row : rows)
    EXPECT_EQ(Pattern(row.expression).matches_start(row.text), row.matches) << row.expression << " on " << row.text;
}

TEST(Pattern, FindsAPart) {
  EXPECT_TRUE(Pattern(R"(blk\.(3|4)\..*_exps)").matches_part("model.blk.4.ffn_up_exps.weight"));
  EXPECT_FALSE(Pattern(R"(blk\.(3|4)\..*_exps)").matches_part("model.blk.5.ffn_up_exps.weight"));
  EXPECT_FALSE(Pattern("^blk").matches_part("model.blk.4"));
  EXPECT_TRUE(Pattern("").matches_part(""));
}

TEST(Pattern, HostileOnesAreRefused) {
  for (const char* bad : {"(", "[a", "*a", "(?P<", "\\"})
    EXPECT_THAT(complaint([&] { Pattern{bad}; }), ::testing::HasSubstr(" at ")) << bad;
  EXPECT_THAT(complaint([] { Pattern(std::string(5000, 'a')); }), ::testing::HasSubstr("5000 bytes long"));
  EXPECT_THAT(complaint([] { Pattern("(a+)+$").matches_start(std::string(64, 'a') + "!"); }),
              ::testing::HasSubstr("match limit"));
  EXPECT_NE(complaint([] { Pattern("a").matches_start("\xff"); }), "");
}

}  // namespace
}  // namespace ingot
