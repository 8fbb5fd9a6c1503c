// WordPiece and Unigram without files. A Unigram model with the settings of a GGUF file is compared with sentencepiece
// (tools/tokenizer_goldens/make_encoders.py). Other tests use damaged tables of normalizations (bad-input row T07),
// bytes that are not text, and long texts, which must take linear time.
#include <gmock/gmock.h>

#include <chrono>
#include <random>

#include "base/error.h"
#include "test_seed.h"
#include "text/tokenizers/charsmap.h"
#include "text/tokenizers/tokenizer_fixture.h"
#include "text/tokenizers/wordpiece.h"

namespace ingot {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::add_token;
using testing::OwnedSpec;
using Kind = NormalizerStep::Kind;

std::string from_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int n_bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(digits.find(c));
    if ((n_bits += 6) >= 8) out += static_cast<char>(bits >> (n_bits -= 8));
  }
  return out;
}

std::unique_ptr<OwnedSpec> word_piece_spec() {
  auto owned = std::make_unique<OwnedSpec>();
  owned->spec.source = "test";
  owned->spec.model = "bert";
  owned->spec.cuts = bert_cuts();
  owned->spec.normalize = bert_normalizer(true, true, std::nullopt, true);
  for (const char* token : {"[UNK]", "[CLS]", "[SEP]"}) add_token(*owned, token, TokenType::kControl);
  for (const char* token : {"\u2581un", "\u2581u", "aff", "able", "a", "\u2581.", "\u2581\u4e2d", "\u2581cafe"})
    add_token(*owned, token, TokenType::kNormal);
  owned->spec.unk = 0;
  owned->spec.bos = 1;
  owned->spec.eos = 2;
  return owned;
}

std::unique_ptr<OwnedSpec> unigram_spec() {
  auto owned = std::make_unique<OwnedSpec>();
  owned->spec.source = "test";
  owned->spec.model = "t5";
  owned->tokens = {"<unk>", "</s>", "\u2581", "a", "b", "ab", "\u2581a"};
  owned->spec.token_types = {2, 3, 1, 1, 1, 1, 1};
  owned->spec.scores = {0, 0, -2, -3, -3, -5, -4.5};
  owned->spec.unk = 0;
  owned->spec.eos = 1;
  return owned;
}

TEST(Unigram, EncodesLikeSentencePiece) {
  const auto json = testing::fixture("encoders/spm");
  auto owned = testing::spec_from_json([&] {
    auto spec = json.at("spec");
    spec["pre"] = "";
    return spec;
  }());
  owned->spec.normalize = {{.kind = Kind::kCharsmap, .from = from_base64(json.at("spec").at("charsmap"))}};
  const Normalizer charsmap(owned->spec.normalize);
  owned->spec.normalize.push_back({.kind = Kind::kReplacePattern, .from = "^ +| +$|(?<= ) +"});
  ASSERT_TRUE(json.at("spec").at("remove_extra_whitespaces").get<bool>());
  const auto tokenizer = Tokenizer::create(owned->view());
  const auto texts = json.at("texts").get<std::vector<std::string>>();
  ASSERT_GT(texts.size(), 200u);
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].find('\0') != std::string::npos) continue;  // SentencePiece's trie ends at NUL
    EXPECT_EQ(tokenizer->encode(texts[i], {.add_special = false}), json["ids"][i].get<std::vector<int32_t>>())
        << printable(texts[i]);
  }
}

TEST(Unigram, TakesTheLikeliestWay) {
  auto owned = unigram_spec();
  const auto tokenizer = Tokenizer::create(owned->view());
  EXPECT_THAT(tokenizer->encode("ab"), ElementsAre(2, 5, 1)) << "-2 - 5 beats -4.5 - 3";
  EXPECT_THAT(tokenizer->encode("a ba"), ElementsAre(6, 2, 4, 3, 1));
  EXPECT_THAT(tokenizer->encode("xyab zz"), ElementsAre(2, 0, 5, 2, 0, 1)) << "neighbours that are unknown join";
  EXPECT_THAT(tokenizer->encode(""), ElementsAre(1));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a ba"), true), "a ba");
  owned->spec.scores[5] = -5.6F;
  EXPECT_THAT(Tokenizer::create(owned->view())->encode("ab"), ElementsAre(6, 4, 1));
}

TEST(Unigram, ControlTokensAreNotPieces) {
  auto owned = unigram_spec();
  add_token(*owned, "<", TokenType::kNormal, -3);
  EXPECT_THAT(Tokenizer::create(owned->view())->encode("</s>"), ElementsAre(2, 7, 0, 1));
  EXPECT_THAT(Tokenizer::create(owned->view())->encode("</s>", {.add_special = false, .parse_special = true}),
              ElementsAre(1));
}

TEST(WordPiece, LongestFirstOrUnknown) {
  auto owned = word_piece_spec();
  const auto tokenizer = Tokenizer::create(owned->view());
  EXPECT_THAT(tokenizer->encode("Unaffable."), ElementsAre(1, 3, 5, 6, 8, 2));
  EXPECT_THAT(tokenizer->encode("unx u unaffablex"), ElementsAre(1, 0, 4, 0, 2));
  EXPECT_THAT(tokenizer->encode("u\u4e2du caf\u00e9"), ElementsAre(1, 4, 9, 4, 10, 2));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("unaffable ."), true), "unaffable .");
  std::string longest = "u";
  while (longest.size() < 100) longest += "a";
  EXPECT_EQ(tokenizer->encode(longest).size(), 102u);
  EXPECT_THAT(tokenizer->encode(longest + "a"), ElementsAre(1, 0, 2)) << "101 characters";
  owned->spec.max_word_chars = 200;
  EXPECT_EQ(Tokenizer::create(owned->view())->encode(longest + "a").size(), 103u);
}

TEST(WordPiece, ControlTokensAreNotWords) {
  const auto tokenizer = Tokenizer::create(word_piece_spec()->view());
  EXPECT_THAT(tokenizer->encode("[CLS]", {.add_special = false}), ElementsAre(0, 0, 0));
  EXPECT_THAT(tokenizer->encode("u[SEP]u", {.add_special = false, .parse_special = true}), ElementsAre(4, 2, 4));
}

TEST(EncoderTokenizers, BytesThatAreNoTextBecomeReplacementCharacters) {
  const auto word_piece = Tokenizer::create(word_piece_spec()->view());
  EXPECT_THAT(word_piece->encode("u\xFFn"), ElementsAre(1, 3, 2)) << "which BERT drops";
  const auto unigram = Tokenizer::create(unigram_spec()->view());
  EXPECT_EQ(unigram->encode("a\xC3(\xED\xA0\x80"), unigram->encode("a\uFFFD(\uFFFD\uFFFD\uFFFD"));
}

TEST(EncoderTokenizers, RefuseWhatTheyNeed) {
  auto refused = [](const OwnedSpec& owned) {
    try {
      Tokenizer::create(owned.view());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("was accepted");
  };
  auto owned = word_piece_spec();
  owned->spec.unk.reset();
  EXPECT_THAT(refused(*owned), HasSubstr("test: the tokenizer names no unknown token; 'bert' tokenizers need one"));
  owned = word_piece_spec();
  owned->spec.bos.reset();
  EXPECT_THAT(refused(*owned), HasSubstr("adds BOS, but names no BOS token"));
  owned = word_piece_spec();
  add_token(*owned, "\xFF", TokenType::kNormal);
  EXPECT_THAT(refused(*owned), HasSubstr("is not UTF-8"));
  owned = unigram_spec();
  owned->spec.scores.clear();
  EXPECT_THAT(refused(*owned), HasSubstr("no scores"));
  owned = unigram_spec();
  owned->spec.unk = 99;
  EXPECT_THAT(refused(*owned), HasSubstr("no unknown token"));
  owned->spec.normalize = {{.kind = Kind::kReplacePattern, .from = "("}};
  EXPECT_THAT(refused(*owned), HasSubstr("'('"));
  owned->spec.normalize = {{.kind = Kind::kReplace}};
  EXPECT_THAT(refused(*owned), HasSubstr("replaces an empty text"));
}

// ---- precompiled_charsmap

const std::string& good_charsmap() {
  static const std::string map = from_base64(testing::fixture("encoders/spm").at("spec").at("charsmap"));
  return map;
}

TEST(Charsmap, EveryPrefixIsRefused) {
  for (size_t n = 0; n < good_charsmap().size(); ++n) {
    if (n > 0 && good_charsmap()[n - 1] == '\0' && n + 64 > good_charsmap().size())
      continue;  // the table may end after a replacement
    std::string error;
    try {
      const Charsmap map(std::string_view(good_charsmap()).substr(0, n));
      error = "accepted";
      map.apply("a\uFB01\u00BD");
    } catch (const Error& e) {
      error = e.what();
    }
    if (error == "accepted") {
      // Some replacements are missing, so the trie must not lead to them.
      EXPECT_EQ(good_charsmap()[n - 1], '\0') << n;
    } else {
      EXPECT_THAT(error, HasSubstr("precompiled_charsmap")) << n;
    }
  }
}

TEST(Charsmap, FlippedBitsAreRefusedOrHarmless) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  const auto texts = testing::fixture("encoders/spm").at("texts").get<std::vector<std::string>>();
  int n_refused = 0;
  for (int round = 0; round < 300; ++round) {
    std::string blob = good_charsmap();
    for (int i = 0, n = 1 + static_cast<int>(rng() % 4); i < n; ++i)
      blob[rng() % blob.size()] ^= static_cast<char>(1u << rng() % 8);
    try {
      const Charsmap map(blob);
      for (int i = 0; i < 20; ++i) {
        const std::string& text = texts[rng() % texts.size()];
        EXPECT_LT(map.apply(text).size() + map.apply_by_grapheme(text).size(), (text.size() + 1) * blob.size());
      }
    } catch (const Error&) {
      ++n_refused;
    }
  }
  EXPECT_GT(n_refused, 0);
}

// A trie whose only node points to itself, and tries with a node that leads outside.
TEST(Charsmap, LoopsAndFarNodes) {
  auto blob = [](std::vector<uint32_t> units, std::string_view rest) {
    std::string out(4 + units.size() * 4, '\0');
    const auto size = static_cast<uint32_t>(units.size() * 4);
    std::memcpy(out.data(), &size, 4);
    std::memcpy(out.data() + 4, units.data(), units.size() * 4);
    return out + std::string(rest);
  };
  std::vector<uint32_t> units(256);
  units['a'] = 'a' | 97u << 10;  // 'a' leads from 0 back to 0
  const Charsmap loop(blob(units, std::string_view("\0", 1)));
  EXPECT_EQ(loop.apply("aaaab"), "aaaab");
  units['a'] = 'a' | 1u << 20;
  EXPECT_THROW(Charsmap(blob(units, std::string_view("\0", 1))), Error);
  units['a'] = 'a' | 1u << 8 | 3u << 10;  // a leaf whose value is outside the replacements
  units['a' ^ 3] = 5;
  EXPECT_THROW(Charsmap(blob(units, std::string_view("xy\0", 3))), Error);
  EXPECT_THROW(Charsmap(blob(units, "xyz")), Error) << "no zero byte at the end";
}

// ---- length

TEST(EncoderTokenizers, AMegabyteOfAnythingTakesLinearTime) {
  const char* units[] = {
      "A",   "a",  " ",    "\n",     "7",      ".",   "\u4e2d", "e\u0301\u0302", "\U0001F468\u200D\U0001F469",
      "us ", "ab", "\xFF", "\u2581", "\uFDFA", "the "};
  auto golden = testing::fixture("encoders/spm");
  golden["spec"]["pre"] = "";
  auto spm = testing::spec_from_json(golden["spec"]);
  spm->spec.normalize = {{.kind = Kind::kCharsmap, .from = good_charsmap()},
                         {.kind = Kind::kReplacePattern, .from = "^ +| +$|(?<= ) +"}};
  auto by_grapheme = testing::spec_from_json(golden["spec"]);
  by_grapheme->spec.normalize = spm->spec.normalize;
  by_grapheme->spec.normalize[0].by_grapheme = true;
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  for (const auto& owned : {std::move(spm), std::move(by_grapheme), word_piece_spec(), unigram_spec()})
    tokenizers.push_back(Tokenizer::create(owned->view()));
  for (const auto& tokenizer : tokenizers) {
    for (const char* unit : units) {
      std::string text;
      while (text.size() < 1u << 20) text += unit;
      const std::clock_t start = std::clock();
      const size_t n_ids = tokenizer->encode(text).size();
      // About 0.2 s each; a quadratic algorithm would need minutes.
      EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 15.0)
          << tokenizer->model() << " '" << unit << "'";
      EXPECT_LE(n_ids, 8 * text.size() + 2);  // U+FDFA becomes 18 characters
    }
  }
}

}  // namespace
}  // namespace ingot
