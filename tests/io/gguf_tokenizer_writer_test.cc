// Tokenizers that are written as GGUF keys and read again give the same tokens for any text. Properties that GGUF
// cannot express are refused by name.
#include "io/gguf/tokenizer_writer.h"

#include <gmock/gmock.h>

#include <deque>
#include <random>

#include "captured_log.h"
#include "io/gguf/tokenizer.h"
#include "io/refused.h"
#include "test_seed.h"
#include "text/tokenizers/oniguruma.h"
#include "text/tokenizers/pretokenizer_table.h"
#include "text/tokenizers/tokenizer.h"

namespace ingot {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Written {
  explicit Written(const TokenizerSpec& spec, int n_rows) {
    GgufWriter writer;
    write_tokenizer(spec, n_rows, writer);
    bytes = writer.to_bytes();
    file = std::make_unique<Gguf>(Gguf::parse(bytes, "written.gguf"));
  }
  const Metadata& keys() const { return file->metadata(); }
  std::unique_ptr<Tokenizer> tokenizer() const { return Tokenizer::create(tokenizer_spec(*file)); }

  std::vector<uint8_t> bytes;
  std::unique_ptr<Gguf> file;
};

// SentencePiece BPE as in tokenizer.json: bytes, letters, and merges with every way to make each token, best first.
struct Pieces {
  Pieces() {
    spec.model = kSentencePieceBpe;
    spec.source = "tokenizer.json";
    add("<unk>", TokenType::kUnknown);
    add("<s>", TokenType::kControl);
    add("</s>", TokenType::kControl);
    for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), TokenType::kByte);
    for (const char* letter : {"\u2581", "a", "b", "c"}) add(letter, TokenType::kNormal);
    merge("ab", {"a b"});
    merge("\u2581a", {"\u2581 a"});
    merge("bc", {"b c"});
    merge("abc", {"ab c", "a bc"});
    merge("\u2581abc", {"\u2581a bc", "\u2581 abc"});
    merge("abab", {"ab ab"});
    add("<mark>", TokenType::kUserDefined);
    spec.unk = 0;
    spec.bos = 1;
    spec.eos = 2;
    spec.add_bos = true;
    spec.add_space_prefix = true;
  }
  void add(std::string text, TokenType type) {
    spec.tokens.push_back(strings.emplace_back(std::move(text)));
    spec.token_types.push_back(static_cast<int32_t>(type));
  }
  void merge(const char* token, std::initializer_list<const char*> ways) {
    add(token, TokenType::kNormal);
    for (const char* way : ways) spec.merges.push_back(way);
  }
  std::deque<std::string> strings;
  TokenizerSpec spec;
};

TEST(GgufTokenizerWriter, SentencePieceMergesBecomeScores) {
  const Pieces pieces;
  const Written written(pieces.spec, static_cast<int>(pieces.spec.tokens.size()) + 2);
  EXPECT_EQ(written.keys().get_string("tokenizer.ggml.model"), "llama");
  EXPECT_EQ(written.keys().get_string("tokenizer.ggml.pre"), "default");
  EXPECT_FALSE(written.keys().contains("tokenizer.ggml.merges"));
  EXPECT_TRUE(written.keys().find_bool("tokenizer.ggml.add_bos_token").value());
  EXPECT_TRUE(written.keys().find_bool("tokenizer.ggml.add_space_prefix").value());
  const auto tokens = written.keys().get_strings("tokenizer.ggml.tokens");
  const auto types = written.keys().find_i32s("tokenizer.ggml.token_type").value();
  EXPECT_EQ(tokens.size(), pieces.spec.tokens.size() + 2);
  EXPECT_EQ(tokens.back(), fmt::format("[PAD{}]", tokens.size() - 1));
  EXPECT_EQ(types.back(), static_cast<int32_t>(TokenType::kUnused));

  const auto direct = Tokenizer::create(pieces.spec), again = written.tokenizer();
  const uint32_t seed = test_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const char* parts[] = {"a", "b", "c", "ab", "abc", " ", " a", "é", "<mark>", "</s>", "\n"};
  for (int i = 0; i < 500; ++i) {
    std::string text = parts[random() % 3];
    for (size_t n = random() % 20; n > 0; --n) text += parts[random() % std::size(parts)];
    ASSERT_EQ(again->encode(text), direct->encode(text)) << text;
  }
}

// Byte-level BPE with the expressions of a published tokenizer.json.
TokenizerSpec bytes_spec(std::vector<std::string> patterns, bool whole_words) {
  TokenizerSpec spec;
  spec.model = kByteLevelBpe;
  spec.source = "tokenizer.json";
  spec.tokens = {"a", "b", "ab", "<end>", "<stop>"};
  spec.token_types = {1, 1, 1, 3, 3};
  spec.merges = {"a b"};
  spec.patterns = std::move(patterns);
  spec.whole_words = whole_words;
  spec.eos = 3;
  spec.ends = {3, 4};
  return spec;
}

std::vector<std::string> patterns_of(const PretokenizerRow& row) { return {row.patterns.begin(), row.patterns.end()}; }

TEST(GgufTokenizerWriter, ExpressionsGetTheirName) {
  for (const PretokenizerRow& row : pretokenizer_rows()) {
    const Written written(bytes_spec(patterns_of(row), row.whole_words), 5);
    const PretokenizerRow& found = find_pretokenizer(written.keys().get_string("tokenizer.ggml.pre"));
    EXPECT_EQ(patterns_of(found), patterns_of(row)) << row.names.front();
    EXPECT_EQ(found.whole_words, row.whole_words) << row.names.front();
  }
}

// Published expressions are in tokenizer.json exactly as in the table, and reach PCRE2 unchanged.
TEST(GgufTokenizerWriter, PublishedExpressionsAreFound) {
  const std::pair<const char*, const char*> published[] = {
      {"qwen2",
       R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
      {"llama3",
       R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}};
  for (const auto& [name, pattern] : published) {
    const std::string patterns[] = {pcre2_from_oniguruma(pattern)};
    EXPECT_EQ(pretokenizer_name(patterns, find_pretokenizer(name).whole_words), name);
  }
  for (const char* name : {"gpt-2", "gpt-4o", "tekken", "qwen35", "deepseek-v3"})
    for (const std::string_view pattern : find_pretokenizer(name).patterns)
      EXPECT_EQ(pcre2_from_oniguruma(pattern), pattern) << name;
}

// Published expressions that take quadratic time are replaced by expressions that cut the same way, and keep their
// name.
TEST(GgufTokenizerWriter, SlowExpressionsAreReplaced) {
  const auto linear = linear_expressions(R"(\d{1,3}(?=(?:\d{3})*\b))");
  std::vector<std::string> patterns(linear.begin(), linear.end());
  patterns.emplace_back(find_pretokenizer("gpt-4o").patterns.front());
  EXPECT_EQ(pretokenizer_name(patterns, false), "tiny_aya");
  const auto super = linear_expressions(R"((?=(\d{3})+(?!\d)))");
  patterns = {R"(\p{N}+)", std::string(super.front())};
  EXPECT_EQ(pretokenizer_name(patterns, false), "superbpe");
  EXPECT_TRUE(linear_expressions(R"(\p{N}+)").empty());
}

TEST(GgufTokenizerWriter, WritesEveryEnd) {
  const Written written(bytes_spec(patterns_of(find_pretokenizer("gpt-2")), false), 5);
  EXPECT_EQ(written.keys().get_u32("tokenizer.ggml.eos_token_id"), 3u);
  EXPECT_EQ(written.keys().get_u32("tokenizer.ggml.eot_token_id"), 4u);
  EXPECT_FALSE(written.keys().find_bool("tokenizer.ggml.add_bos_token").value());
  EXPECT_THAT(written.tokenizer()->end_tokens(), ElementsAre(3, 4));
}

TEST(GgufTokenizerWriter, RefusesWhatGgufCannotSay) {
  const auto refused = [](const TokenizerSpec& spec, int n_rows) {
    return refusal([&] {
      GgufWriter writer;
      write_tokenizer(spec, n_rows, writer);
    });
  };
  EXPECT_THAT(refused(bytes_spec({"\\p{L}+|z"}, false), 5),
              HasSubstr("tokenizer.json: GGUF has no name (tokenizer.ggml.pre) for this pre-tokenizer: '\\p{L}+|z'"));
  EXPECT_THAT(refused(bytes_spec(patterns_of(find_pretokenizer("gpt-2")), true), 5), HasSubstr("with ignore_merges"));
  TokenizerSpec prefixed = bytes_spec(patterns_of(find_pretokenizer("gpt-2")), false);
  prefixed.prefix_space = true;
  EXPECT_THAT(refused(prefixed, 5), HasSubstr("'add_prefix_space'"));
  EXPECT_THAT(refused(bytes_spec(patterns_of(find_pretokenizer("gpt-2")), false), 4),
              HasSubstr("5 tokens, but the embedding has only 4 rows"));
}

// Each step of a normalizer is written, refused by its name, or causes a warning: none is dropped in silence.
TEST(GgufTokenizerWriter, NoNormalizerIsDroppedInSilence) {
  using Kind = NormalizerStep::Kind;
  const std::pair<NormalizerStep, const char*> steps[] = {
      {{.kind = Kind::kNfd}, "'NFD'"},
      {{.kind = Kind::kNfkc}, "'NFKC'"},
      {{.kind = Kind::kNfkd}, "'NFKD'"},
      {{.kind = Kind::kLowercase}, "'Lowercase'"},
      {{.kind = Kind::kStripMarks}, "strip_accents"},
      {{.kind = Kind::kStripAccents}, "'StripAccents'"},
      {{.kind = Kind::kCleanText}, "clean_text"},
      {{.kind = Kind::kSpaceCjk}, "handle_chinese_chars"},
      {{.kind = Kind::kNmt}, "'Nmt'"},
      {{.kind = Kind::kReplace, .from = "a", .to = "b"}, "'Replace'"},
      {{.kind = Kind::kReplacePattern, .from = "a+", .to = "b"}, "'Replace'"},
      {{.kind = Kind::kPrepend, .to = "x"}, "'Prepend'"},
      {{.kind = Kind::kStrip}, "'Strip'"},
      {{.kind = Kind::kCharsmap}, "'Precompiled'"}};
  const auto outcome = [](const TokenizerSpec& spec) {
    return refusal([&] {
      GgufWriter writer;
      write_tokenizer(spec, static_cast<int>(spec.tokens.size()), writer);
    });
  };
  const Pieces pieces;
  const TokenizerSpec plain[] = {bytes_spec(patterns_of(find_pretokenizer("gpt-2")), false), pieces.spec};
  for (const TokenizerSpec& before : plain) {
    for (const auto& [step, name] : steps) {
      TokenizerSpec spec = before;
      spec.normalize = {{.kind = Kind::kNfc}, step};
      EXPECT_THAT(outcome(spec), AllOf(HasSubstr("tokenizer.json: GGUF cannot store the normalizer"), HasSubstr(name)));
    }
    TokenizerSpec spec = before;
    spec.normalize = {{.kind = Kind::kNfc}};
    const CapturedLog log;
    const Written written(spec, static_cast<int>(spec.tokens.size()));
    EXPECT_THAT(log.text(), HasSubstr("'NFC'"));
    EXPECT_EQ(written.tokenizer()->encode("ab"), Tokenizer::create(before)->encode("ab"));
  }
  for (const auto& [step, name] : steps) {
    TokenizerSpec spec = pieces.spec;
    spec.model = kUnigramModel;
    spec.normalize = {step};
    if (step.kind == Kind::kStrip || step.kind == Kind::kCharsmap) continue;  // these are written
    EXPECT_THAT(outcome(spec), AllOf(HasSubstr("GGUF cannot store the normalizer"), HasSubstr(name)));
    spec.normalize = {{.kind = Kind::kReplacePattern, .from = " {2,}", .to = " "}};
    spec.cuts = {{"[0-9]", Cut::kIsolate}};
    EXPECT_THAT(outcome(spec), HasSubstr("the pre_tokenizer that cuts at '[0-9]'"));
  }
}

}  // namespace
}  // namespace ingot
