// Properties that hold for every text: decoding the ids gives the text back, streaming gives the same text as decoding
// at once, and time is proportional to the length. Random texts are fresh in each run; the seed is printed on failure.
#include <gtest/gtest.h>

#include <ctime>
#include <random>
#include <thread>

#include "base/cpu_time.h"
#include "test_seed.h"
#include "text/stream_decoder.h"
#include "text/tokenizers/tokenizer_fixture.h"

namespace ingot {
namespace {

constexpr const char* kFixtures[] = {"bpe_gpt2", "bpe_llama3", "bpe_qwen2", "spm_llama", "spm_gemma"};

class TokenizerProperty : public ::testing::Test {
 protected:
  TokenizerProperty()
      : seed_(test_seed()), trace_(__FILE__, __LINE__, "seed " + std::to_string(seed_)), rng_(seed_) {}

  char32_t random_character() {
    for (;;) {
      const char32_t limits[] = {0x80, 0x80, 0x400, 0x3000, 0x10000, 0x110000};
      const char32_t c = static_cast<char32_t>(rng_() % limits[rng_() % 6]);
      if (c < 0xD800 || c > 0xDFFF) return c;
    }
  }
  // Text in pieces, each of characters, bytes, names of special tokens, or spaces.
  std::string random_text() {
    std::string text;
    for (size_t i = 0, n = rng_() % 12; i < n; ++i) {
      const char* words[] = {" ",   "  ",  "\u2581", "<|im_start|>", "<tool_call>",
                             "<s>", "the", " and",   "\r\n",         "\xE2\x96"};
      for (size_t k = 0, m = rng_() % 6, kind = rng_() % 3; k < m; ++k) {
        if (kind == 0) utf8_append(text, random_character());
        if (kind == 1) text += static_cast<char>(rng_());
        if (kind == 2) text += words[rng_() % std::size(words)];
      }
    }
    return text;
  }
  std::vector<int32_t> random_ids(const Tokenizer& tokenizer) {
    std::vector<int32_t> ids(rng_() % 30);
    for (int32_t& id : ids) id = static_cast<int32_t>(rng_() % static_cast<uint32_t>(tokenizer.n_vocab()));
    return ids;
  }

  const uint32_t seed_;
  const ::testing::ScopedTrace trace_;
  std::mt19937 rng_;
};

// The text after encoding and decoding. SentencePiece does not distinguish U+2581 from a space.
std::string as_decoded(std::string_view fixture, std::string text) {
  if (fixture.starts_with("spm"))
    for (size_t at = 0; (at = text.find("\u2581", at)) != text.npos;) text.replace(at, 3, " ");
  return text;
}

TEST_F(TokenizerProperty, AnyBytesComeBack) {
  for (const char* name : kFixtures) {
    const auto tokenizer = testing::fixture_tokenizer(name);
    for (int round = 0; round < 3000; ++round) {
      const std::string text = random_text();
      for (bool parse_special : {false, true}) {
        const auto ids = tokenizer->encode(text, {.add_special = false, .parse_special = parse_special});
        ASSERT_EQ(tokenizer->decode(ids), as_decoded(name, text)) << name << " " << parse_special;
        ASSERT_LE(ids.size(), text.size() + text.empty() + 8);
      }
    }
  }
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, const StreamOptions& options) {
  StreamDecoder decoder(tokenizer, options);
  std::string out;
  for (int32_t id : ids) out += decoder.push(id);
  return out + decoder.flush();
}

TEST_F(TokenizerProperty, StreamingGivesTheWhole) {
  for (const char* name : kFixtures) {
    const auto tokenizer = testing::fixture_tokenizer(name);
    for (int round = 0; round < 2000; ++round) {
      const auto ids = rng_() % 2 ? random_ids(*tokenizer) : tokenizer->encode(random_text());
      for (bool skip : {false, true}) {
        const std::string whole = tokenizer->decode(ids, skip);
        ASSERT_EQ(streamed(*tokenizer, ids, {.skip_special = skip, .replace_invalid = false}), whole) << name;
        ASSERT_EQ(streamed(*tokenizer, ids, {.skip_special = skip}), replace_invalid_utf8(whole)) << name;
      }
    }
  }
}

TEST_F(TokenizerProperty, StreamingNeverCutsACharacter) {
  for (const char* name : kFixtures) {
    const auto tokenizer = testing::fixture_tokenizer(name);
    for (int round = 0; round < 500; ++round) {
      std::string text;
      for (int i = 0; i < 20; ++i) utf8_append(text, random_character());
      StreamDecoder decoder(*tokenizer, {.replace_invalid = false});
      size_t n_held = 0;
      for (int32_t id : tokenizer->encode(text)) {
        n_held += tokenizer->token_bytes(id).size();
        const std::string part = decoder.push(id);
        ASSERT_TRUE(is_valid_utf8(part)) << name;
      }
      ASSERT_GT(n_held, 0u);
      ASSERT_EQ(decoder.flush(), "") << name;  // a whole text leaves no bytes pending
    }
  }
}

TEST_F(TokenizerProperty, ThreadsMayShareATokenizer) {
  for (const char* name : kFixtures) {
    const auto tokenizer = testing::fixture_tokenizer(name);
    std::vector<std::string> texts(200);
    for (std::string& text : texts) text = random_text();
    std::vector<std::vector<std::vector<int32_t>>> ids(4, std::vector<std::vector<int32_t>>(texts.size()));
    std::vector<std::thread> threads;
    for (auto& mine : ids)
      threads.emplace_back([&] {
        for (size_t i = 0; i < texts.size(); ++i) mine[i] = tokenizer->encode(texts[i]);
      });
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(tokenizer->encode(texts[i]), ids[i % 4][i]) << name;
  }
}

// Units of texts that are one word to the pre-tokenizer, or merge completely, or hardly merge (row T10).
constexpr const char* kUnits[] = {
    "A",    " ",    "\n",     "7",     ".",  "中文", "e\u0301\u0302", "👨‍👩‍👧", "us", "aGVsbG8gd29ybGQ",
    "\r\n", "\xFF", "\u2581", "<|im_", " x", "the "};

// Bytes of a long text. With a sanitizer, fewer bytes are enough to find bad accesses.
constexpr size_t kLong = (size_t{1} << 20) / static_cast<size_t>(kSanitizerSlowdown);

TEST_F(TokenizerProperty, AMegabyteOfAnythingTakesLinearTime) {
  for (const char* name : {"bpe_gpt2", "bpe_llama3", "spm_llama"}) {
    const auto tokenizer = testing::fixture_tokenizer(name);
    for (const char* unit : kUnits) {
      std::string text;
      while (text.size() < kLong) text += unit;
      const std::clock_t start = std::clock();
      const auto ids = tokenizer->encode(text, {.add_special = false, .parse_special = true});
      // About 0.05 s each; a quadratic algorithm would need minutes.
      EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 15.0) << name << " '" << unit << "'";
      EXPECT_EQ(tokenizer->decode(ids), as_decoded(name, text)) << name << " '" << unit << "'";
    }
  }
}

// Compares the processor times of the fastest attempts, because other programs can only make an attempt slower. A
// quadratic algorithm would take 256 times as long. Cache misses make a linear one take 20 to 45 times as long.
TEST_F(TokenizerProperty, SixteenTimesTheTextTakesSixteenTimesTheTime) {
  for (const char* name : {"bpe_gpt2", "bpe_llama3", "spm_llama"}) {
    const auto tokenizer = testing::fixture_tokenizer(name);
    for (const char* unit : kUnits) {
      std::string part, whole;
      while (part.size() < kLong / 16) part += unit;
      for (int i = 0; i < 16; ++i) whole += part;
      auto seconds = [&](const std::string& text) {
        const std::clock_t start = std::clock();
        EXPECT_FALSE(tokenizer->encode(text, {.add_special = false, .parse_special = true}).empty());
        return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      };
      constexpr double kTick = 1e-3;  // clock resolution on Windows
      double least_part = 1e9, least_whole = 1e9;
      for (int attempt = 0; attempt < 12; ++attempt) {
        least_part = std::min(least_part, std::max(seconds(part), kTick));
        least_whole = std::min(least_whole, seconds(whole));
        if (least_whole <= 100 * least_part) break;
      }
      EXPECT_LE(least_whole, 100 * least_part) << name << " '" << unit << "'";
    }
  }
}

}  // namespace
}  // namespace ingot
