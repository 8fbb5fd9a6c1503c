// The expressions are those of each model's published tokenizer.json or tiktoken source, in PCRE2's syntax; the names
// are llama.cpp's. If the source is a sequence with built-in pre-tokenizers (Digits, Punctuation), these are written
// here as expressions.
#include "text/tokenizers/pretokenizer_table.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace ingot {
namespace {

using Names = std::string_view[];
using Patterns = std::string_view[];

constexpr std::string_view kGpt2Words =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kCjk = R"([一-龥ࠀ-一가-퟿]+)";
constexpr std::string_view kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr Patterns kDefault = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Words, R"(\p{N}+)", R"([0-9][0-9][0-9])"};
constexpr Patterns kGpt2 = {kGpt2Words};
constexpr Patterns kGpt2SingleDigits = {kDigit, kGpt2Words};
constexpr Patterns kQwen2 = {kQwen2Words};
// Qwen 2's expression without English contractions: in Turkish, other kinds of endings follow an apostrophe.
constexpr Patterns kUfakzeka = {R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Patterns kQwen35 = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)"};
constexpr Patterns kLlama3 = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)"};
constexpr Patterns kTekken = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Patterns kGpt4o = {
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
// Groups of three digits, counted from the right, as in \d{1,3}(?=(?:\d{3})*\b) and similar expressions. At each group,
// those expressions look ahead to the end of the digits, which takes quadratic time. Here one step isolates the digits.
// The next step looks ahead only at the first group (\A); every later group begins at the end of the previous group
// (\G).
constexpr std::string_view kGroupsOfNumbers = R"(\A\p{N}{1,3}(?=(?:\p{N}{3})*+\z)|(?!\A)\G\p{N}{3})";
constexpr std::string_view kGroupsOfDigits = R"(\A\p{Nd}{1,3}(?=(?:\p{Nd}{3})*+\z)|(?!\A)\G\p{Nd}{3})";
// Digits that no \w of Oniguruma follows; Oniguruma's \w has more characters than PCRE2's.
constexpr std::string_view kDigitsBeforeNoWord =
    R"((?<!\p{Nd})\p{Nd}++(?![\p{L}\p{M}\p{Nl}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149})"
    R"(\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}]))";
constexpr Patterns kTinyAya = {kDigitsBeforeNoWord, kGroupsOfDigits, kGpt4o[0]};
constexpr Patterns kAfmoe = {
    R"(\p{N}+)", kGroupsOfNumbers, R"([一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)"};
// (?=(\d{3})+(?!\d)) cuts runs of numbers before every group of three digits. The numbers after the last group of a run
// of digits belong to that group, up to the next cut: other numbers, and the first digits of a next run that do not
// fill a group.
#define NO_CUT R"((?:[^\p{Nd}]++|(?<!\p{Nd})\p{Nd}{1,2}(?=(?:\p{Nd}{3})*+(?!\p{Nd}))))"
constexpr Patterns kSuperBpe = {R"(\p{N}+)", R"(\G(?:\A)" NO_CUT R"(++|\p{Nd}{3})" NO_CUT R"(*+))"};
#undef NO_CUT
// The published expression ends in \s{512}(?!\S)|\s{256}(?!\S) and so on, down to \s{1}. After each of these lengths,
// the published expression looks for an end of line again. Here a second step cuts the spaces that the first step has
// found.
constexpr Patterns kJais2 = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s)",
    R"((?:\A(?=[^\S\r\n]++\z)|(?!\A)\G)(?:\s{512}|\s{256}|\s{128}|\s{64}|\s{32}|\s{16}|\s{8}|\s{4}|\s{1,2}))"};
constexpr Patterns kLaguna = {R"([^\n]+|[\n]+)", kQwen2Words};
constexpr Patterns kMiniCpm5 = {
    R"(\p{N}{1,3})",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Patterns kYoutu = {
    R"([가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
// The published letter classes exclude Han: [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]. Here they are the complement
// of the other categories and Han. PCRE2 would read \p{Han} alone as script extensions.
constexpr Patterns kKimiK2 = {
    R"(\p{sc:Han}+|)"
    R"([^\r\n\p{L}\p{N}]?[^\p{sc:Han}\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}]*)"
    R"([^\p{sc:Han}\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[^\p{sc:Han}\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}]+)"
    R"([^\p{sc:Han}\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Patterns kDeepseekLlm = {
    R"([\r\n])",
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽ)"
    R"(Ა-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼ)"
    R"(ℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)",
    R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)",
    R"(\s+\z)",
    kCjk,
    kDigit};
constexpr Patterns kDeepseekCoder = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kCjk, kDigit};
constexpr Patterns kDeepseekV3 = {
    R"(\p{N}{1,3})", R"([一-龥぀-ゟ゠-ヿ]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Patterns kSpark2_5 = {
    kDeepseekV3[0], kDeepseekV3[1],
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)",
    kDigit};
constexpr Patterns kFalcon = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Words, R"([0-9][0-9][0-9])"};
constexpr Patterns kBloom = {R"( ?[^(\s|.,!?…。，、।۔،)]+)"};
constexpr Patterns kViking = {R"( ?[^(\s|.,!?…。，、।۔،)]+)", kDigit};
constexpr Patterns kChameleon = {R"(<sentinel:[0-9]+>)", R"((?:IMGIMG)(?:(?:A|B|C|D|E|F|G|H|I){1,4})Z)",
                                 R"([\t\n]|    |  )",    kDigit,
                                 R"([\p{P}!-/:-@\[-`{-~])", kGpt2Words};
constexpr Patterns kBailing = {
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"};
constexpr Patterns kSeedCoder = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)"};
// Possessive quantifiers save memory in a long match. They do not change the match, because nothing follows the group
// in its alternative.
constexpr Patterns kExaoneMoe = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*+(?: \p{L}\p{M}*+)*+)++|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"};

constexpr Names kGpt2Names = {"gpt-2",      "gpt2",       "phi-2",      "jina-es",      "jina-de",     "jina-v2-es",
                              "jina-v2-de", "jina-v1-en", "jina-v2-code", "roberta-bpe", "modern-bert", "gigachat",
                              "a.x-4.0",    "mellum",     "exaone4",    "mpt",          "olmo",        "jais",
                              "trillion",   "granite-docling"};
constexpr Names kSingleDigitNames = {"starcoder", "refact", "command-r",  "smollm",
                                     "codeshell", "exaone", "minerva-7b", "mellum2"};
constexpr Names kQwen2Names = {"qwen2",  "deepseek-r1-qwen", "kormo",  "f2llmv2",   "stablelm2",
                               "megrez", "hunyuan",          "grok-2", "solar-open"};
constexpr Names kLlama3Names = {"llama3",    "llama-v3", "llama-bpe", "falcon3",     "falcon-h1",
                                "pixtral",   "midm-2.0", "lfm2",      "jina-v5-nano"};
constexpr Names kLlama3LikeNames = {"smaug-bpe", "dbrx", "glm4", "chatglm-bpe"};
constexpr Names kGpt4oNames = {"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"};
constexpr Names kDeepseekV3Names = {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"};
constexpr Names kBloomNames = {"bloom", "poro-chat", "gpt3-finnish"};
constexpr Names kBailingNames = {"bailingmoe", "bailingmoe2", "llada-moe"};
constexpr Names kTinyAyaNames = {"tiny_aya", "cohere2moe"}, kAfmoeNames = {"afmoe"}, kSuperBpeNames = {"superbpe"},
                kJais2Names = {"jais-2"};
constexpr Names kGraniteEmbeddingNames = {"granite-embed-multi-97m"}, kLagunaNames = {"laguna"},
                kUfakzekaNames = {"ufakzeka"}, kSparkNames = {"spark2_5"}, kMiniCpm5Names = {"minicpm5"};
constexpr Names kDefaultNames = {"default"}, kQwen35Names = {"qwen35"}, kTekkenNames = {"tekken"},
                kYoutuNames = {"youtu"}, kKimiNames = {"kimi-k2"}, kDeepseekLlmNames = {"deepseek-llm"},
                kDeepseekCoderNames = {"deepseek-coder"}, kFalconNames = {"falcon"}, kVikingNames = {"viking"},
                kChameleonNames = {"chameleon"}, kSeedCoderNames = {"seed-coder"}, kExaoneMoeNames = {"exaone-moe"};

// Gemma 4, and models with its tokenizer, have SentencePiece-like merges instead of expressions.
constexpr Names kSentencePieceLikeNames = {"gemma4", "granite-embed-multi-311m", "mmbert", "sarvam-moe"};

struct Published {
  std::string_view expression;
  std::span<const std::string_view> linear;
};
constexpr Published kPublished[] = {{R"(\d{1,3}(?=(?:\d{3})*\b))", std::span(kTinyAya).first(2)},
                                    {R"((?=(\d{3})+(?!\d)))", std::span(kSuperBpe).subspan(1)}};

constexpr bool kWholeWords = true, kAddBos = true;
constexpr PretokenizerRow kRows[] = {
    {kDefaultNames, kDefault},
    {kGpt2Names, kGpt2},
    {kSingleDigitNames, kGpt2SingleDigits},
    {kQwen2Names, kQwen2},
    {kQwen35Names, kQwen35},
    {kLlama3Names, kLlama3, kWholeWords, kAddBos},
    {kLlama3LikeNames, kLlama3},
    {kTekkenNames, kTekken, kWholeWords, kAddBos},
    {kGpt4oNames, kGpt4o},
    {kGraniteEmbeddingNames, kGpt4o, kWholeWords},
    {kTinyAyaNames, kTinyAya},
    {kAfmoeNames, kAfmoe},
    {kSuperBpeNames, kSuperBpe},
    {kJais2Names, kJais2},
    {kLagunaNames, kLaguna},
    {kMiniCpm5Names, kMiniCpm5, kWholeWords},
    {kYoutuNames, kYoutu, kWholeWords},
    {kKimiNames, kKimiK2},
    {kDeepseekLlmNames, kDeepseekLlm},
    {kDeepseekCoderNames, kDeepseekCoder},
    {kDeepseekV3Names, kDeepseekV3},
    {kSparkNames, kSpark2_5},
    {kUfakzekaNames, kUfakzeka},
    {kFalconNames, kFalcon},
    {kBloomNames, kBloom},
    {kVikingNames, kViking},
    {kChameleonNames, kChameleon, false, kAddBos},
    {kBailingNames, kBailing},
    {kSeedCoderNames, kSeedCoder},
    {kExaoneMoeNames, kExaoneMoe},
};

}  // namespace

std::span<const PretokenizerRow> pretokenizer_rows() { return kRows; }

std::span<const std::string_view> linear_expressions(std::string_view published) {
  for (const auto& [expression, linear] : kPublished)
    if (expression == published) return linear;
  return {};
}

bool is_sentencepiece_like(std::string_view pre) {
  return std::find(std::begin(kSentencePieceLikeNames), std::end(kSentencePieceLikeNames), pre) !=
         std::end(kSentencePieceLikeNames);
}

std::optional<std::string_view> pretokenizer_name(std::span<const std::string> patterns, bool whole_words) {
  for (const PretokenizerRow& row : kRows)
    if (row.whole_words == whole_words &&
        std::equal(patterns.begin(), patterns.end(), row.patterns.begin(), row.patterns.end()))
      return row.names.front();
  return std::nullopt;
}

const PretokenizerRow& find_pretokenizer(std::string_view name) {
  for (const PretokenizerRow& row : kRows)
    for (std::string_view known : row.names)
      if (known == name) return row;
  log_warn("pre-tokenizer '{}' is unknown; using 'default', which may split words differently from the model's own",
           printable(name, 64));
  return kRows[0];
}

}  // namespace ingot
