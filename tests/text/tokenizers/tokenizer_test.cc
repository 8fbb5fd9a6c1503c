// The rules of Tokenizer that the goldens do not cover: special tokens, BOS and EOS, white space, decoding, and wrong
// files.
#include "text/tokenizers/tokenizer.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "text/tokenizers/tokenizer_specs.h"

namespace ingot {
namespace {

using testing::add_token;
using testing::byte_level_spec;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::OwnedSpec;
using testing::sentencepiece_spec;

constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};
constexpr EncodeOptions kParse{.add_special = false, .parse_special = true};

std::unique_ptr<Tokenizer> make(const OwnedSpec& owned) { return Tokenizer::create(owned.view()); }

std::string spec_refusal(const OwnedSpec& owned) {
  try {
    make(owned);
  } catch (const Error& error) {
    return error.what();
  }
  return "was accepted";
}

TEST(Tokenizer, BytePairsMergeByRank) {
  const auto tokenizer = make(*byte_level_spec());
  EXPECT_THAT(tokenizer->encode("abcab", kPlain), ElementsAre(257, 256));
  EXPECT_THAT(tokenizer->encode("ac a", kPlain), ElementsAre('a', 'c', 258));
  EXPECT_THAT(tokenizer->encode("", kPlain), IsEmpty());
  EXPECT_EQ(tokenizer->token_bytes(258), " a");
  EXPECT_EQ(tokenizer->token_text(258), "\u0120a");
  EXPECT_EQ(tokenizer->find("\u0120a"), 258);
  EXPECT_EQ(tokenizer->find(" a"), std::nullopt);
  EXPECT_EQ(tokenizer->n_vocab(), 259);
}

TEST(Tokenizer, ControlTokensComeFromTemplatesOnly) {
  auto owned = byte_level_spec();
  const int32_t control = add_token(*owned, "<|im_end|>", TokenType::kControl);
  const auto tokenizer = make(*owned);
  EXPECT_THAT(tokenizer->encode("ab<|im_end|>", kParse), ElementsAre(256, control));
  const auto plain = tokenizer->encode("ab<|im_end|>", kPlain);
  EXPECT_EQ(plain.size(), 11u);
  EXPECT_EQ(tokenizer->decode(plain, true), "ab<|im_end|>");
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{256, control}), "ab<|im_end|>");
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{256, control}, true), "ab");
}

// Neither the look-up of whole words nor SentencePiece's merges may produce a control token.
TEST(Tokenizer, ControlTokensAreNotWords) {
  auto owned = byte_level_spec();
  owned->spec.pre = "llama3";
  owned->spec.add_bos = false;
  const int32_t control = add_token(*owned, "EOT", TokenType::kControl);
  const int32_t word = add_token(*owned, "EOS", TokenType::kNormal);
  EXPECT_THAT(make(*owned)->encode("EOT", kPlain), ElementsAre('E', 'O', 'T'));
  EXPECT_THAT(make(*owned)->encode("EOT", kParse), ElementsAre(control));
  EXPECT_THAT(make(*owned)->encode("EOS", kPlain), ElementsAre(word));

  auto spm = sentencepiece_spec();
  spm->spec.add_space_prefix = false;
  add_token(*spm, "<", TokenType::kNormal, 0);
  add_token(*spm, "s", TokenType::kNormal, 0);
  const int32_t end = add_token(*spm, "s>", TokenType::kNormal, 0);
  const auto ids = make(*spm)->encode("<s>", kPlain);
  EXPECT_THAT(ids, ElementsAre(end - 2, end));
  EXPECT_THAT(make(*spm)->encode("<s>", kParse), ElementsAre(1));
  const auto bytes = make(*spm)->encode("<0x41>", kPlain);
  EXPECT_EQ(bytes.size(), 6u);
  EXPECT_EQ(make(*spm)->decode(bytes), "<0x41>");
}

TEST(Tokenizer, UserDefinedTokensAreAlwaysFound) {
  auto owned = byte_level_spec();
  const int32_t tool = add_token(*owned, "<tool>", TokenType::kUserDefined);
  const auto tokenizer = make(*owned);
  EXPECT_THAT(tokenizer->encode("a<tool>b", kPlain), ElementsAre('a', tool, 'b'));
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{'a', tool}, true), "a<tool>");
  EXPECT_FALSE(tokenizer->is_special(tool));
}

TEST(Tokenizer, StripRulesTakeWhiteSpace) {
  auto owned = byte_level_spec();
  const int32_t left = add_token(*owned, "<l>", TokenType::kControl);
  const int32_t right = add_token(*owned, "<r>", TokenType::kControl);
  owned->spec.strips = {{left, true, false}, {right, false, true}};
  const auto tokenizer = make(*owned);
  EXPECT_THAT(tokenizer->encode("a \n\u3000<l> b", kParse), ElementsAre('a', left, ' ', 'b'));
  EXPECT_THAT(tokenizer->encode("c <r> \t\u00A0b", kParse), ElementsAre('c', ' ', right, 'b'));
  EXPECT_THAT(tokenizer->encode(" <l><r> ", kParse), ElementsAre(left, right));
  owned->spec.strips = {{1000, true, true}};
  EXPECT_THAT(spec_refusal(*owned), HasSubstr("1000"));
}

TEST(Tokenizer, AddsBosAndEos) {
  auto owned = byte_level_spec();
  const int32_t bos = add_token(*owned, "<s>", TokenType::kControl),
                eos = add_token(*owned, "</s>", TokenType::kControl);
  owned->spec.bos = bos;
  owned->spec.eos = eos;
  EXPECT_THAT(make(*owned)->encode("ab"), ElementsAre(256));
  owned->spec.add_bos = true;
  EXPECT_THAT(make(*owned)->encode("ab"), ElementsAre(bos, 256));
  EXPECT_THAT(make(*owned)->encode(""), ElementsAre(bos));
  EXPECT_THAT(make(*owned)->encode("ab", kPlain), ElementsAre(256));
  EXPECT_THAT(make(*owned)->encode("<s>ab", {.parse_special = true}), ElementsAre(bos, 256));  // not doubled
  EXPECT_THAT(make(*owned)->encode("<s>ab", {.parse_special = true, .repeats_bos = true}), ElementsAre(bos, bos, 256));
  owned->spec.add_eos = true;
  EXPECT_THAT(make(*owned)->encode("ab"), ElementsAre(bos, 256, eos));
  owned->spec.add_bos.reset();
  owned->spec.pre = "llama-bpe";  // adds a BOS by default
  EXPECT_THAT(make(*owned)->encode("ab"), ElementsAre(bos, 256, eos));
}

TEST(Tokenizer, SentencePieceDefaults) {
  const auto tokenizer = make(*sentencepiece_spec());
  EXPECT_EQ(tokenizer->unk(), 0);
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_TRUE(tokenizer->add_bos());
  EXPECT_TRUE(tokenizer->is_end(2));
  EXPECT_THAT(tokenizer->encode("ab"), ElementsAre(1, 264));
}

TEST(Tokenizer, SentencePieceSpaces) {
  const auto tokenizer = make(*sentencepiece_spec());
  // The space prefix is added at the start and after added tokens. Decoding removes it in the same places.
  for (const char* text :
       {"ab", " ab", "  ", "a b", "</s>ab</s> ab", "ab</s></s>", "\xE2\x96", "\xE2\x96\xFF"}) {
    const auto ids = tokenizer->encode(text, kParse);
    EXPECT_EQ(tokenizer->decode(ids), text);
  }
  EXPECT_THAT(tokenizer->encode("b</s>ab", kParse), ElementsAre(259, 261, 2, 264));
  EXPECT_THAT(tokenizer->encode("a ab", kPlain), ElementsAre(263, 264));
  // A literal U+2581 is a space, as in SentencePiece.
  for (const char* text : {"\u2581", "\u2581ab", "a\u2581b \u2581"}) {
    std::string spaces = text;
    for (size_t at; (at = spaces.find("\u2581")) != spaces.npos;) spaces.replace(at, 3, " ");
    EXPECT_EQ(tokenizer->encode(text, kPlain), tokenizer->encode(spaces, kPlain)) << text;
  }
  auto owned = sentencepiece_spec();
  owned->spec.add_space_prefix = false;
  EXPECT_THAT(make(*owned)->encode("ab ab", kPlain), ElementsAre(262, 264));
  EXPECT_EQ(make(*owned)->decode(std::vector<int32_t>{264}), " ab");
}

// If a token has a space after its first character, the text must not be cut at spaces.
TEST(Tokenizer, SentencePieceMergesAcrossSpaces) {
  auto owned = sentencepiece_spec();
  owned->spec.add_space_prefix = false;
  const int32_t inner = add_token(*owned, "b\u2581", TokenType::kNormal, 5),
                across = add_token(*owned, "b\u2581a", TokenType::kNormal, 9);
  EXPECT_THAT(make(*owned)->encode("ab ab", kPlain), ElementsAre(260, across, 261));
  EXPECT_THAT(make(*owned)->encode("ab b", kPlain), ElementsAre(260, inner, 261));
}

TEST(Tokenizer, MissingBytesBecomeUnknown) {
  auto owned = std::make_unique<OwnedSpec>();
  owned->spec.source = "test";
  owned->spec.model = "gpt2";
  owned->tokens = {"<unk>", "a", "b"};
  owned->spec.token_types = {2, 1, 1};
  EXPECT_THAT(make(*owned)->encode("a\u00e9b", kPlain), ElementsAre(1, 2));
  owned->spec.unk = 0;
  EXPECT_THAT(make(*owned)->encode("a\u00e9b", kPlain), ElementsAre(1, 0, 0, 2));
}

TEST(Tokenizer, KnowsWhatEndsAnAnswer) {
  auto owned = byte_level_spec();
  const int32_t im_end = add_token(*owned, "<|im_end|>", TokenType::kUserDefined);
  const int32_t word = add_token(*owned, "<EOT>", TokenType::kNormal);
  const int32_t end = add_token(*owned, "<|end|>", TokenType::kControl);
  owned->spec.eos = 'z';  // ends a text, not a turn
  auto tokenizer = make(*owned);
  for (int32_t id : {static_cast<int32_t>('z'), im_end, end}) EXPECT_TRUE(tokenizer->is_end(id)) << id;
  EXPECT_FALSE(tokenizer->is_end(word));
  EXPECT_FALSE(tokenizer->is_end('a'));
  EXPECT_GT(tokenizer->encode("<|im_end|>", kPlain).size(),
            1u);  // user-defined or not, a user's text must not end the answer
  add_token(*owned, "<|return|>", TokenType::kControl);
  add_token(*owned, "<|call|>", TokenType::kControl);
  EXPECT_FALSE(make(*owned)->is_end(end));  // harmony: the answer goes on after a message
}

// Names of tokens are only a guess, used for files that do not state their end tokens.
TEST(Tokenizer, WhatAFileSaysEndsAnAnswerIsAllThatDoes) {
  auto owned = byte_level_spec();
  const int32_t separator = add_token(*owned, "<|file_sep|>", TokenType::kControl);
  const int32_t im_end = add_token(*owned, "<|im_end|>", TokenType::kUserDefined);
  const int32_t own = add_token(*owned, "<own>", TokenType::kUserDefined);
  const auto ends = [&] { return make(*owned)->end_tokens(); };
  EXPECT_THAT(ends(), ElementsAre(separator, im_end));
  owned->spec.eos = own;
  EXPECT_THAT(ends(), ElementsAre(im_end, own)) << "a code model writes more than one file";
  EXPECT_GT(make(*owned)->encode("<own>", kPlain).size(), 1u);
  owned->spec.ends = {own, 'q'};  // generation_config.json
  EXPECT_THAT(ends(), ElementsAre('q', own));
  EXPECT_THAT(make(*owned)->encode("<|im_end|>", kPlain), ElementsAre(im_end)) << "the file calls it user-defined";
  owned->spec.ends.clear();
  owned->spec.eot = 'e';
  EXPECT_THAT(ends(), ElementsAre('e', own));
}

TEST(Tokenizer, FilesWithoutTypesHaveTheirSpecialTokens) {
  auto owned = byte_level_spec();
  const int32_t eos = add_token(*owned, "<|endoftext|>", TokenType::kControl);
  owned->spec.token_types.clear();
  owned->spec.eos = eos;
  EXPECT_THAT(make(*owned)->encode("a<|endoftext|>", kParse), ElementsAre('a', eos));
  EXPECT_GT(make(*owned)->encode("<|endoftext|>", kPlain).size(), 1u);

  auto spm = sentencepiece_spec();
  spm->spec.token_types.clear();
  spm->spec.bos = 1;
  spm->spec.unk = 0;
  EXPECT_THAT(make(*spm)->encode("abc", kPlain), ElementsAre(264, 3 + 'c'));
}

TEST(Tokenizer, IdsOutsideOfTheVocabularyAreRefused) {
  const auto tokenizer = make(*byte_level_spec());
  for (int32_t id : {-1, 259, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    EXPECT_THROW(tokenizer->decode(std::vector<int32_t>{id}), Error);
    EXPECT_THROW(tokenizer->token_bytes(id), Error);
    EXPECT_THROW(tokenizer->is_end(id), Error);
  }
}

TEST(TokenizerRefuses, UnsupportedModels) {
  auto owned = byte_level_spec();
  owned->spec.model = "bert\x1b[31m";
  EXPECT_THAT(spec_refusal(*owned), HasSubstr("test: tokenizer model 'bert\\x1b[31m' is not supported; 'gpt2'"));
}

TEST(TokenizerRefuses, TablesThatDisagree) {
  auto owned = byte_level_spec();
  owned->spec.scores.assign(258, 0.0f);
  EXPECT_THAT(spec_refusal(*owned), HasSubstr("scores has 258 entries, but there are 259 tokens"));
  owned = byte_level_spec();
  owned->spec.token_types.push_back(1);
  EXPECT_THAT(spec_refusal(*owned), HasSubstr("token_type has 260 entries, but there are 259 tokens"));
  owned = byte_level_spec();
  owned->spec.token_types[7] = 9;
  EXPECT_THAT(spec_refusal(*owned), HasSubstr("token_type[7] is 9"));
  owned->spec.token_types[7] = -1;
  EXPECT_THAT(spec_refusal(*owned), HasSubstr("token_type[7] is -1"));
  EXPECT_THAT(spec_refusal(OwnedSpec()), HasSubstr("model ''"));
  owned->tokens.clear();
  EXPECT_THAT(spec_refusal(*owned), HasSubstr("no tokens"));
  auto spm = sentencepiece_spec();
  spm->spec.scores.clear();
  EXPECT_THAT(spec_refusal(*spm), HasSubstr("no scores"));
  spm = sentencepiece_spec();
  spm->spec.scores[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(spec_refusal(*spm), HasSubstr("token 5 ('<0x02>') has NaN"));
}

TEST(TokenizerRefuses, BadByteTokens) {
  for (const char* text : {"<0x-1>", "<0xZZ>", "<0x 1>", "<0x1>", "<0x041>", "0x41", "<0x4G>", "<0X41>"}) {
    auto owned = sentencepiece_spec();
    owned->tokens[3 + 0x41] = text;
    EXPECT_THAT(spec_refusal(*owned), HasSubstr("token 68 is a byte token")) << text;
  }
  auto owned = sentencepiece_spec();
  owned->tokens[3 + 0x41] = "<0x42>";
  EXPECT_THAT(spec_refusal(*owned), HasSubstr("tokens 68 and 69 both stand for the byte 0x42"));
  owned->tokens[3 + 0x41] = "x";
  owned->spec.token_types[3 + 0x41] = 1;
  EXPECT_THAT(spec_refusal(*owned), HasSubstr("255 byte tokens"));
}

TEST(TokenizerRefuses, BadMerges) {
  for (const char* merge : {"", " ", "ab", "a b c", "a  b", " a", "a ", "a b ", " a b"}) {
    auto owned = byte_level_spec();
    owned->merges.push_back(merge);
    EXPECT_THAT(spec_refusal(*owned), HasSubstr("merges[3]")) << merge;
  }
  auto owned = byte_level_spec();
  owned->merges.push_back("a b");
  EXPECT_THAT(spec_refusal(*owned), HasSubstr("merges[3] ('a b') occurs twice"));
  owned->merges.back() = "b nosuch";
  EXPECT_THAT(spec_refusal(*owned), HasSubstr("names 'nosuch', which is not in the vocabulary"));
  owned->merges.back() = "b a";
  EXPECT_THAT(spec_refusal(*owned), HasSubstr("names 'ba'"));
}

TEST(TokenizerRefuses, EmptyAndIllFormedTokens) {
  auto owned = byte_level_spec();
  add_token(*owned, "", TokenType::kUserDefined);
  EXPECT_THAT(spec_refusal(*owned), HasSubstr("token 259 ('') is empty"));
  owned->spec.token_types.back() = 1;  // harmless for a normal token, which is not searched for
  EXPECT_EQ(make(*owned)->decode(std::vector<int32_t>{259}), "");
  auto spm = sentencepiece_spec();
  add_token(*spm, "", TokenType::kNormal);
  EXPECT_THAT(spec_refusal(*spm), HasSubstr("is empty"));
  spm->tokens.back() = "\xC3";
  EXPECT_THAT(spec_refusal(*spm), HasSubstr("('\\xc3') is not UTF-8"));
}

TEST(Tokenizer, OddTokensOfByteLevelVocabulariesAreKept) {
  auto owned = byte_level_spec();
  const int32_t ill_formed = add_token(*owned, "\xC3\x28", TokenType::kNormal);
  const int32_t nul = add_token(*owned, std::string("a\0b", 3), TokenType::kUserDefined);
  const int32_t huge = add_token(*owned, std::string(1 << 20, 'x'), TokenType::kUserDefined);
  const auto tokenizer = make(*owned);
  EXPECT_EQ(tokenizer->token_bytes(ill_formed), "\xC3\x28");
  EXPECT_THAT(tokenizer->encode(std::string("ca\0bc", 5), kPlain), ElementsAre('c', nul, 'c'));
  EXPECT_EQ(tokenizer->token_bytes(huge).size(), 1u << 20);
}

TEST(Tokenizer, BadSpecialIdsAreDropped) {
  auto owned = byte_level_spec();
  owned->spec.bos = 259;
  owned->spec.eos = -1;
  owned->spec.pad = 0xFFFFFFFF;
  owned->spec.ends = {259, -1, int64_t{1} << 40, 'z'};
  owned->spec.add_bos = true;
  const auto tokenizer = make(*owned);
  EXPECT_EQ(tokenizer->bos(), std::nullopt);
  EXPECT_EQ(tokenizer->eos(), std::nullopt);
  EXPECT_EQ(tokenizer->pad(), std::nullopt);
  EXPECT_TRUE(tokenizer->is_end('z'));
  EXPECT_FALSE(tokenizer->add_bos());
  EXPECT_THAT(tokenizer->encode("a"), ElementsAre('a'));
  auto spm = sentencepiece_spec();
  spm->spec.bos = 1'000'000;
  EXPECT_THAT(spec_refusal(*spm), HasSubstr("adds BOS, but names no BOS token"));
}

// Half a million merges load in about 0.5 s. The limit leaves room for slow machines and sanitizers.
TEST(Tokenizer, ManyMergesLoadInTime) {
  auto owned = byte_level_spec();
  owned->merges.clear();
  std::vector<std::string> words;
  for (int i = 0; i < 700; ++i) words.push_back(fmt::format("w{}", i));
  for (const auto& word : words) owned->tokens.push_back(word);
  for (const auto& left : words)
    for (const auto& right : words) {
      owned->tokens.push_back(left + right);
      owned->merges.push_back(left + " " + right);
    }
  owned->spec.token_types.clear();
  const std::clock_t start = std::clock();
  const auto tokenizer = make(*owned);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 20.0);
  EXPECT_EQ(tokenizer->n_vocab(), 259 + 700 + 490'000);
}

}  // namespace
}  // namespace ingot
