#include "text/tokenizers/pretokenizer.h"

#include <gmock/gmock.h>

#include <ctime>
#include <random>

#include "base/cpu_time.h"
#include "base/error.h"
#include "base/utf8.h"
#include "test_seed.h"
#include "text/tokenizers/pretokenizer_table.h"
#include "text/tokenizers/tokenizer_fixture.h"
#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> split(const Pretokenizer& pretokenizer, std::string_view text) {
  std::vector<std::string> pieces;
  pretokenizer.split(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

TEST(Pretokenizer, CutsWhereHuggingFaceCuts) {
  const auto json = testing::fixture("pretokenizers");
  const auto texts = json.at("texts").get<std::vector<std::string>>();
  ASSERT_GT(texts.size(), 200u);
  ASSERT_GE(json.at("pieces").size(), 15u);
  for (const auto& [name, expected] : json.at("pieces").items()) {
    const Pretokenizer pretokenizer(find_pretokenizer(name).patterns);
    for (size_t i = 0; i < texts.size(); ++i) {
      std::vector<size_t> lengths;
      for (const std::string& piece : split(pretokenizer, texts[i])) lengths.push_back(testing::n_characters(piece));
      EXPECT_EQ(lengths, expected[i].get<std::vector<size_t>>()) << name << ": " << printable(texts[i]);
    }
  }
  RecordProperty("compared", std::to_string(texts.size() * json.at("pieces").size()));  // for tools/models_table.py
}

// The goldens cannot cover this case, because Python strings are never ill-formed.
TEST(Pretokenizer, IllFormedBytesArePiecesOfTheirOwn) {
  const Pretokenizer pretokenizer(find_pretokenizer("gpt-2").patterns);
  EXPECT_THAT(split(pretokenizer, "ab \xFF\xC0\x80 cd"), ElementsAre("ab", " ", "\xFF\xC0\x80", " cd"));
  EXPECT_THAT(split(pretokenizer, "a\xE2\x82"), ElementsAre("a", "\xE2\x82"));
  EXPECT_THAT(split(pretokenizer, "\xED\xA0\x80z"), ElementsAre("\xED\xA0\x80", "z"));
}

TEST(Pretokenizer, NothingIsLostOfRandomBytes) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  for (const PretokenizerRow& row : pretokenizer_rows()) {
    const Pretokenizer pretokenizer(row.patterns);
    for (int round = 0; round < 50; ++round) {
      std::string text(rng() % 60, 0);
      for (char& c : text) c = static_cast<char>(rng() % 3 ? 32 + rng() % 95 : rng());
      std::string joined;
      for (const std::string& piece : split(pretokenizer, text)) {
        EXPECT_FALSE(piece.empty());
        joined += piece;
      }
      EXPECT_EQ(joined, text) << row.names[0];
    }
  }
}

// The units of long runs, which make a backtracking engine slow or deeply recursive.
constexpr const char* kRepeatedUnits[] = {
    "A",   "a",    " ",    "\n", "7",   ".",  "中文", "e\u0301",  "\u0301",  "👨‍👩‍👧",
    "us",  "\r\n", "   x", "\t", "aB",  "'s", "中A",  "中\u0301", "IMGIMGA", "<sentinel:1",
    " \n", "! ",   "ǅ",    "/",  "12 ", "ʰ"};

std::string run_of(std::string_view unit, size_t n_bytes) {
  std::string text;
  while (text.size() < n_bytes) text += unit;
  return text += "x";  // so that a look-ahead to the end of the run fails
}

// The limit is generous: a row takes some 0.1 s.
TEST(Pretokenizer, LongRunsTakeLinearTime) {
  for (const PretokenizerRow& row : pretokenizer_rows()) {
    const Pretokenizer pretokenizer(row.patterns);
    const std::clock_t start = std::clock();
    for (const char* unit : kRepeatedUnits) {
      const std::string text = run_of(unit, 256u << 10);
      size_t total = 0;
      pretokenizer.split(text, [&](std::string_view piece) { total += piece.size(); });
      EXPECT_EQ(total, text.size());
    }
    EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 60.0) << row.names[0];
  }
}

// Eight times the text takes eight times as long; with a quadratic expression, 64 times as long. The test compares the
// processor times of the fastest attempts, because other programs can only make an attempt slower.
TEST(Pretokenizer, TimeGrowsWithTheText) {
  // In bytes. With a sanitizer, fewer bytes are enough to find bad accesses.
  constexpr size_t kLong = (size_t{512} << 10) / static_cast<size_t>(kSanitizerSlowdown);
  auto seconds = [](const Pretokenizer& pretokenizer, const std::string& text) {
    const std::clock_t start = std::clock();
    size_t n_pieces = 0;
    pretokenizer.split(text, [&](std::string_view) { ++n_pieces; });
    EXPECT_GT(n_pieces, 0u);
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  for (const PretokenizerRow& row : pretokenizer_rows()) {
    const Pretokenizer pretokenizer(row.patterns);
    for (const char* unit : kRepeatedUnits) {
      const std::string text = run_of(unit, kLong / 8), longer = run_of(unit, kLong);
      double least = 1e9, least_longer = 1e9;
      for (int attempt = 0; attempt < 5; ++attempt) {
        least = std::min(least, seconds(pretokenizer, text));
        least_longer = std::min(least_longer, seconds(pretokenizer, longer));
        if (least_longer <= 20 * least + 0.02) break;
      }
      EXPECT_LE(least_longer, 20 * least + 0.02) << row.names[0] << " '" << unit << "'";
    }
  }
}

TEST(Pretokenizer, RefusesWhatItCannotRun) {
  const std::string_view broken[] = {"a(b"};
  EXPECT_THAT([&] { Pretokenizer{broken}; }, ::testing::ThrowsMessage<Error>(HasSubstr("'a(b'")));
  // An expression of the eighth degree, which no check refuses. It must end in an error, and not hang.
  const std::string_view evil[] = {"a*a*a*a*a*a*a*a*[cd]"};
  const Pretokenizer pretokenizer(evil);
  EXPECT_THAT([&] { split(pretokenizer, std::string(300, 'a') + "b"); },
              ::testing::ThrowsMessage<Error>(HasSubstr("match limit exceeded")));
}

TEST(Pretokenizer, UnknownNamesGetTheDefault) {
  EXPECT_EQ(&find_pretokenizer("no-such-model"), &find_pretokenizer("default"));
  EXPECT_NE(&find_pretokenizer("llama3"), &find_pretokenizer("default"));
  EXPECT_TRUE(find_pretokenizer("llama-bpe").whole_words);
}

TEST(Pretokenizer, NamesAreUnique) {
  std::vector<std::string_view> names;
  for (const PretokenizerRow& row : pretokenizer_rows()) names.insert(names.end(), row.names.begin(), row.names.end());
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace ingot
