// ModelGrammars caches the compiled grammars of requests, within a limit on memory.
#include "text/grammar/masks/model_grammars.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "text/tokenizers/tokenizer_fixture.h"

namespace ingot {
namespace {

constexpr size_t kMaxBytes = size_t{4} << 20;

GrammarText numbered_schema(int i) { return {GrammarKind::kSchema, fmt::format(R"({{"const":"value {}"}})", i)}; }

TEST(ModelGrammars, KeepsWhatWasUsedLastWithinItsBytes) {
  const auto tokenizer = testing::fixture_tokenizer("bpe_llama3");
  ModelGrammars grammars(*tokenizer, tokenizer->n_vocab(), kMaxBytes);
  const auto first = grammars.get(numbered_schema(0));
  size_t most = 0;
  for (int i = 1; i < 3000; ++i) {
    grammars.get(numbered_schema(i));
    if (i % 8 == 0) {
      EXPECT_EQ(grammars.get(numbered_schema(0)), first) << i;
    }
    most = std::max(most, grammars.n_cached());
  }
  EXPECT_GT(most, 8u);
  EXPECT_LT(most, 400u);  // each takes at least ten kilobytes
  EXPECT_EQ(grammars.get(numbered_schema(2999)), grammars.get(numbered_schema(2999)));
}

TEST(ModelGrammars, OptionsMakeOtherGrammarsAndWarningsComeAgain) {
  const auto tokenizer = testing::fixture_tokenizer("bpe_llama3");
  ModelGrammars grammars(*tokenizer, tokenizer->n_vocab(), kMaxBytes);
  GrammarText text{GrammarKind::kSchema, R"({"properties":{"a":{"format":"regex"},"b":true}})", false, true};
  std::vector<std::string> warnings;
  const auto ordered = grammars.get(text, &warnings);
  EXPECT_EQ(grammars.get(text, &warnings), ordered);
  EXPECT_EQ(warnings.size(), 2u);
  text.any_order = true;
  EXPECT_NE(grammars.get(text), ordered);
  text.is_lenient = false;
  EXPECT_THROW(grammars.get(text), Error);
}

// A machine keeps every state that it has met. New answers do not use a machine that has met very many.
TEST(ModelGrammars, LargeMachinesAreReplaced) {
  const auto tokenizer = testing::fixture_tokenizer("bpe_llama3");
  ModelGrammars grammars(*tokenizer, tokenizer->n_vocab());
  const GrammarText text{GrammarKind::kSchema, R"({"type":"array","items":{"type":"string"},"uniqueItems":true})"};
  const auto first = grammars.get(text);
  for (int i = 0; !first->is_worn(); ++i) {
    ASSERT_EQ(grammars.get(text), first);
    ASSERT_LT(i, 1000);
    Matcher matcher(first);
    const std::string begin = fmt::format("[\"{}{}\"", i, std::string(3000, 'x'));
    for (const int32_t token : tokenizer->encode(begin, {.add_special = false})) ASSERT_TRUE(matcher.accept(token));
    matcher.mask();
  }
  const auto second = grammars.get(text);
  EXPECT_NE(second, first);
  EXPECT_EQ(grammars.get(text), second);
  EXPECT_EQ(grammars.n_cached(), 1u);
}

}  // namespace
}  // namespace ingot
