#include "io/huggingface/normalizer.h"

#include "text/tokenizers/oniguruma.h"
#include "text/tokenizers/text_regex.h"
#include "text/tokenizers/wordpiece.h"

namespace ingot {
namespace {

using Kind = NormalizerStep::Kind;

void add_steps(const std::optional<Json>& step, const char* list, std::vector<Json>& steps) {
  if (!step) return;
  if (step->at("type").string() != "Sequence") {
    steps.push_back(*step);
    return;
  }
  for (const Json& inner : step->at(list).elements()) add_steps(inner, list, steps);
}

struct PlainStep {
  std::string_view type;
  Kind kind;
};
constexpr PlainStep kPlainSteps[] = {{"NFC", Kind::kNfc},   {"NFD", Kind::kNfd},
                                     {"NFKC", Kind::kNfkc}, {"NFKD", Kind::kNfkd},
                                     {"Nmt", Kind::kNmt},   {"Lowercase", Kind::kLowercase},
                                     {"StripAccents", Kind::kStripAccents}};

// RFC 4648, padded.
std::string decode_base64(const Json& value) {
  const std::string_view text = value.string();
  std::string out;
  uint32_t bits = 0;
  size_t n_digits = 0;
  for (const char c : text) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (c == '=') break;
    const size_t digit = kDigits.find(c);
    if (digit == kDigits.npos)
      throw value.error("is not base64: '{}' at {}", printable(std::string_view(&c, 1)), n_digits);
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if (++n_digits % 4 != 1) out += static_cast<char>(bits >> (6 - 2 * ((n_digits - 1) % 4)));
  }
  if (text.size() % 4 != 0 || n_digits % 4 == 1 || text.size() - n_digits > 2)
    throw value.error("is not base64: it ends too early");
  return out;
}

NormalizerStep replace_step(const Json& step) {
  const Json pattern = step.at("pattern");
  const std::string content(step.at("content").string());
  if (const auto text = pattern.find("String"))
    return {.kind = Kind::kReplace, .from = std::string(text->string()), .to = content};
  return {.kind = Kind::kReplacePattern, .from = hf_expression(pattern.at("Regex")), .to = content};
}

void read_step(const Json& step, std::vector<NormalizerStep>& out) {
  for (const PlainStep& plain : kPlainSteps)
    if (hf_is_type(step, plain.type)) return out.push_back({.kind = plain.kind});
  if (hf_is_type(step, "BertNormalizer")) {
    const auto strip = step.find("strip_accents");
    for (NormalizerStep& inner :
         bert_normalizer(hf_flag_or(step, "clean_text", true), hf_flag_or(step, "handle_chinese_chars", true),
                         strip ? std::optional(strip->boolean()) : std::nullopt, hf_flag_or(step, "lowercase", true)))
      out.push_back(std::move(inner));
  } else if (hf_is_type(step, "Replace")) {
    out.push_back(replace_step(step));
  } else if (hf_is_type(step, "Prepend")) {
    out.push_back({.kind = Kind::kPrepend, .to = std::string(step.at("prepend").string())});
  } else if (hf_is_type(step, "Strip")) {
    out.push_back({.kind = Kind::kStrip,
                   .left = hf_flag_or(step, "strip_left", true),
                   .right = hf_flag_or(step, "strip_right", true)});
  } else if (hf_is_type(step, "Precompiled")) {
    if (const auto map = step.find("precompiled_charsmap"); map && !map->string().empty())
      out.push_back({.kind = Kind::kCharsmap, .from = decode_base64(*map), .by_grapheme = true});
  } else {
    hf_refuse(step, "the normalizer");
  }
}

}  // namespace

std::string hf_expression(const Json& regex) {
  try {
    std::string pattern = pcre2_from_oniguruma(regex.string());
    TextRegex(pattern).refuse_exponential_time();
    return pattern;
  } catch (const Error& error) {
    throw regex.error("{}", error.what());
  }
}

std::vector<Json> hf_steps(const Json& root, const char* key, const char* list) {
  std::vector<Json> steps;
  add_steps(root.find(key), list, steps);
  return steps;
}

bool hf_is_type(const Json& step, std::string_view type) { return step.at("type").string() == type; }

bool hf_flag_or(const Json& step, const char* key, bool fallback) {
  const auto value = step.find(key);
  return value ? value->boolean() : fallback;
}

void hf_refuse(const Json& step, const char* what) {
  throw step.error("{} '{}' is not supported here: use a GGUF file of this model", what,
                   printable(step.at("type").string(), 64));
}

std::vector<NormalizerStep> read_hf_normalizer(const Json& root) {
  std::vector<NormalizerStep> out;
  for (const Json& step : hf_steps(root, "normalizer", "normalizers")) read_step(step, out);
  return out;
}

}  // namespace ingot
