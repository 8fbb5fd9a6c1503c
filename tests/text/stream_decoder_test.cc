#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "text/tokenizers/tokenizer_specs.h"

namespace ingot {
namespace {

TEST(StreamDecoder, HoldsBackHalfACharacter) {
  const auto tokenizer = Tokenizer::create(testing::byte_level_spec()->view());
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.push('x'), "x");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.push(0x98), "");
  EXPECT_EQ(decoder.push(0x80), "😀");
  EXPECT_EQ(decoder.flush(), "");
}

TEST(StreamDecoder, InvalidBytesDoNotHoldUpTheRest) {
  const auto tokenizer = Tokenizer::create(testing::byte_level_spec()->view());
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.push(0xFF), "\uFFFD");
  EXPECT_EQ(decoder.push(0xE2), "");
  EXPECT_EQ(decoder.push(0x82), "");
  EXPECT_EQ(decoder.push('a'), "\uFFFDa");
  EXPECT_EQ(decoder.push(0xC3), "");
  EXPECT_EQ(decoder.flush(), "\uFFFD");
  EXPECT_EQ(decoder.flush(), "");
  StreamDecoder raw(*tokenizer, {.replace_invalid = false});
  EXPECT_EQ(raw.push(0xFF), "\xFF");
  EXPECT_EQ(raw.push(0xC3), "");
  EXPECT_EQ(raw.flush(), "\xC3");
}

TEST(StreamDecoder, SpecialTokensAreSkippedOrShown) {
  auto owned = testing::byte_level_spec();
  const int32_t end = testing::add_token(*owned, "<|im_end|>", TokenType::kControl);
  const auto tokenizer = Tokenizer::create(owned->view());
  EXPECT_EQ(StreamDecoder(*tokenizer).push(end), "");
  EXPECT_EQ(StreamDecoder(*tokenizer, {.skip_special = false}).push(end), "<|im_end|>");
}

TEST(StreamDecoder, RowsThatPadAnEmbeddingAreNoText) {
  const auto tokenizer = Tokenizer::create(testing::byte_level_spec()->view());
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.push('x'), "x");
  EXPECT_EQ(decoder.push(tokenizer->n_vocab()), "");
  EXPECT_EQ(decoder.push(1 << 20), "");
  EXPECT_EQ(decoder.push('y'), "y");
  EXPECT_THROW(decoder.push(-1), Error);
}

// "▁ab" decodes to " ab" after text, and to "ab" in the place of SentencePiece's prefix.
TEST(StreamDecoder, TheLeadingSpaceDependsOnThePrompt) {
  const auto tokenizer = Tokenizer::create(testing::sentencepiece_spec()->view());
  const int32_t word = 264, bos = 1, a = 260;
  EXPECT_EQ(StreamDecoder(*tokenizer).push(word), "ab");
  EXPECT_EQ(StreamDecoder(*tokenizer, {.previous = bos}).push(word), "ab");
  EXPECT_EQ(StreamDecoder(*tokenizer, {.previous = a}).push(word), " ab");
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.push(bos), "");
  EXPECT_EQ(decoder.push(word), "ab");
  EXPECT_EQ(decoder.push(word), " ab");
}

}  // namespace
}  // namespace ingot
