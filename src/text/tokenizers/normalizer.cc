#include "text/tokenizers/normalizer.h"

#include <optional>
#include <span>

#include "base/check.h"
#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizers/characters.h"
#include "text/tokenizers/charsmap.h"
#include "text/tokenizers/text_regex.h"
#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

using Kind = NormalizerStep::Kind;
constexpr size_t kMaxNormalizedBytes = size_t{1} << 30;

struct CharRange {
  char32_t first, last;
};
bool is_in(std::span<const CharRange> ranges, char32_t c) {
  for (const CharRange& range : ranges)
    if (c >= range.first && c <= range.last) return true;
  return false;
}

// BERT's ranges, as in Hugging Face.
constexpr CharRange kCjk[] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
                              {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
constexpr CharRange kNmtDropped[] = {{0x01, 0x08}, {0x0B, 0x0B}, {0x0E, 0x1F},
                                     {0x7F, 0x7F}, {0x8F, 0x8F}, {0x9F, 0x9F}};
constexpr CharRange kNmtSpaces[] = {{0x09, 0x0A},     {0x0C, 0x0D},     {0x1680, 0x1680}, {0x200B, 0x200F},
                                    {0x2028, 0x2029}, {0x2581, 0x2581}, {0xFEFF, 0xFEFF}, {0xFFFD, 0xFFFD}};

// Calls f(out, c) for every character; copies other bytes.
template <class F>
std::string map_characters(std::string_view text, F&& f) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) {
      out += text[0];
    } else {
      f(out, utf8_decode(text));
    }
    text.remove_prefix(std::max<size_t>(1, length));
  }
  return out;
}

std::string without(std::string_view text, bool (*drop)(char32_t)) {
  return map_characters(text, [&](std::string& out, char32_t c) {
    if (!drop(c)) utf8_append(out, c);
  });
}

void clean(std::string& out, char32_t c) {
  const bool is_space = c != 0x0B && c != 0x0C && c != 0x85 && is_unicode_space(c);  // those three are controls
  if (is_space) {
    out += ' ';
  } else if (c != 0 && c != 0xFFFD && !is_control_like(c)) {
    utf8_append(out, c);
  }
}

void space_cjk(std::string& out, char32_t c) {
  const bool spaced = is_in(kCjk, c);
  if (spaced) out += ' ';
  utf8_append(out, c);
  if (spaced) out += ' ';
}

void clean_nmt(std::string& out, char32_t c) {
  if (is_in(kNmtDropped, c)) return;
  utf8_append(out, is_in(kNmtSpaces, c) ? U' ' : c);
}

void check_growth(const std::string& out) {
  if (out.size() > kMaxNormalizedBytes)
    throw Error("the tokenizer's normalizer makes the text longer than {} bytes: use a shorter text",
                kMaxNormalizedBytes);
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t done = 0;
  for (size_t at; (at = text.find(from, done)) != text.npos; done = at + from.size()) {
    (out += text.substr(done, at - done)) += to;
    check_growth(out);
  }
  return out += text.substr(done);
}

// Replaces within each well-formed run.
std::string replace_pattern(std::string_view text, const TextRegex& regex, std::string_view to) {
  std::string out;
  TextRegex::Matcher matcher(regex);
  while (!text.empty()) {
    const std::string_view good = text.substr(0, valid_utf8_prefix(text));
    std::string changed;
    const std::string_view seen = TextRegex::readable(good, changed);
    size_t done = 0;
    while (const auto match = done < good.size() ? matcher.next(seen, done) : std::nullopt) {
      (out += good.substr(done, match->begin - done)) += to;
      done = match->end;
      check_growth(out);
    }
    out += good.substr(done);
    text.remove_prefix(good.size());
    if (text.empty()) break;
    out += text[0];
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace

struct Normalizer::Step {
  NormalizerStep step;
  std::optional<TextRegex> regex;
  std::optional<Charsmap> charsmap;

  explicit Step(const NormalizerStep& given) : step(given) {
    if (step.kind == Kind::kReplacePattern) regex.emplace(step.from);
    if (step.kind == Kind::kCharsmap) charsmap.emplace(step.from);
    if (step.kind == Kind::kReplace && step.from.empty())
      throw Error("the normalizer replaces an empty text, which would match everywhere");
  }

  std::string apply(std::string_view text) const {
    switch (step.kind) {
      case Kind::kNfc: return normalize(text, NormalForm::kC);
      case Kind::kNfd: return normalize(text, NormalForm::kD);
      case Kind::kNfkc: return normalize(text, NormalForm::kKC);
      case Kind::kNfkd: return normalize(text, NormalForm::kKD);
      case Kind::kLowercase: return map_characters(text, append_lowercase);
      case Kind::kStripMarks: return without(text, is_nonspacing_mark);
      case Kind::kStripAccents: return without(text, is_mark);
      case Kind::kCleanText: return map_characters(text, clean);
      case Kind::kSpaceCjk: return map_characters(text, space_cjk);
      case Kind::kNmt: return map_characters(text, clean_nmt);
      case Kind::kReplace: return replace_all(text, step.from, step.to);
      case Kind::kReplacePattern: return replace_pattern(text, *regex, step.to);
      case Kind::kPrepend: return text.empty() ? std::string() : step.to + std::string(text);
      case Kind::kStrip: return std::string(stripped(text));
      case Kind::kCharsmap: return step.by_grapheme ? charsmap->apply_by_grapheme(text) : charsmap->apply(text);
    }
    CHECK(false);
  }

  std::string_view stripped(std::string_view text) const {
    if (step.left) text.remove_prefix(leading_space(text));
    return step.right ? without_trailing_space(text) : text;
  }
};

Normalizer::Normalizer(const std::vector<NormalizerStep>& steps) {
  for (const NormalizerStep& step : steps) steps_.push_back(std::make_unique<const Step>(step));
}

Normalizer::~Normalizer() = default;

std::string Normalizer::apply(std::string_view text) const {
  std::string out(text);
  for (const auto& step : steps_) {
    out = step->apply(out);
    check_growth(out);
  }
  return out;
}

}  // namespace ingot
