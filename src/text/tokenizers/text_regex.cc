#include "text/tokenizers/text_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <new>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizers/stand_ins.h"
#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

constexpr uint32_t kSplitHeapKib = 256 * 1024;
constexpr size_t kJitStackBytes = size_t{64} << 20;  // reserved; only the pages that a match needs are touched

template <auto kFree>
struct Free {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using CodePointer = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>>;

// PCRE2's \s contains U+180E, which is not in Unicode's White_Space since version 6.3.
std::string spell_out_spaces(std::string_view pattern) {
  constexpr std::string_view kSpaces = R"(\t-\r\x{85}\p{Z})";
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        out += in_class ? std::string(kSpaces) : fmt::format("[{}]", kSpaces);
      } else if (escaped == 'S') {
        out += in_class ? std::string(R"(\S\x{180E})") : fmt::format("[^{}]", kSpaces);
      } else {
        (out += c) += escaped;
      }
      continue;
    }
    if (c == '[') in_class = true;
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

CodePointer compile(std::string_view pattern, int& error, PCRE2_SIZE& offset) {
  return CodePointer(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP,
                                   &error, &offset, nullptr));
}

// Planes 0 to 3. The planes after them have no scripts, and almost no categories.
constexpr char32_t kEndOfPlanes = 0x40000;

const std::string& all_characters() {
  static const std::string text = [] {
    std::string all;
    for (char32_t c = 1; c < kEndOfPlanes; ++c)
      if (c < 0xD800 || c > 0xDFFF) utf8_append(all, c);
    return all;
  }();
  return text;
}

// The characters that an expression for one character matches in PCRE2: one pass over all characters, run by run.
std::vector<uint64_t> characters_of(std::string_view symbol) {
  std::vector<uint64_t> bits(kEndOfPlanes / 64);
  int error = 0;
  PCRE2_SIZE offset = 0;
  const CodePointer code = compile(fmt::format("(?:{})++", symbol), error, offset);
  const MatchData data(pcre2_match_data_create(1, nullptr));
  if (!code || !data) throw Error("pre-tokenizer expression '{}': {}", printable(symbol, 64), pcre2_message(error));
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  const std::string& text = all_characters();
  for (size_t at = 0; at < text.size();) {
    const int rc = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                               PCRE2_NO_UTF_CHECK, data.get(), nullptr);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) throw Error("pre-tokenizer expression '{}': {}", printable(symbol, 64), pcre2_message(rc));
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
    for (at = bounds[0]; at < bounds[1]; at += utf8_length(std::string_view(text).substr(at))) {
      const char32_t c = utf8_decode(std::string_view(text).substr(at));
      bits[c / 64] |= uint64_t{1} << c % 64;
    }
  }
  return bits;
}

constexpr int kTrialRepeats = 48;
constexpr uint32_t kMaxTrialSteps = 1'000'000;  // 48^3, of three loops in a row, is within it: far below 2^24
constexpr size_t kMaxLetters = 24;

// Characters on which an expression is tried: some of each common kind, then those that the expression names.
std::vector<std::string> letters_to_try(std::string_view pattern) {
  std::vector<std::string> letters = {"a", "A", "1", " ", "\n", "."};
  for (size_t at = 0, length; at < pattern.size() && letters.size() < kMaxLetters; at += length) {
    length = utf8_length(pattern.substr(at));
    const std::string letter(pattern.substr(at, length));
    if (letter == "\\") {  // a kind of character, such as \s or \p{Lu}
      if (at + 1 < pattern.size()) length += utf8_length(pattern.substr(at + 1));
      if (pattern.substr(at + length).starts_with('{')) length = pattern.find('}', at) - at;
      if (length > pattern.size() - at) break;
    } else if ((length > 1 || std::isalnum(static_cast<unsigned char>(letter[0])) != 0) &&
               std::ranges::find(letters, letter) == letters.end()) {
      letters.push_back(letter);
    }
  }
  return letters;
}

}  // namespace

std::string pcre2_message(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

struct TextRegex::Code {
  CodePointer compiled;
};

TextRegex::TextRegex(std::string_view pattern) : pattern_(pattern), code_(std::make_unique<Code>()) {
  const std::string spelled = spell_out_spaces(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->compiled = compile(spelled, error, offset);
  if (!code_->compiled)
    throw Error("pre-tokenizer expression '{}': {} at {}", printable(pattern), pcre2_message(error), offset);
  pcre2_jit_compile(code_->compiled.get(), PCRE2_JIT_COMPLETE);  // on failure, pcre2_match interprets the expression
}

void TextRegex::refuse_exponential_time() const {
  const std::vector<std::string> letters = letters_to_try(pattern_);
  // A character that hardly any expression matches makes matches fail late. The pattern's characters follow, because
  // PCRE2 skips texts that lack a character that the expression needs.
  std::string tail = "\x01";
  for (const char c : pattern_)
    if (static_cast<unsigned char>(c) < 0x80 && tail.find(c) == tail.npos) tail += c;
  Matcher matcher(*this, kMaxTrialSteps);
  const auto try_text = [&](const std::string& begin, const std::string& repeated) {
    std::string text = begin;
    for (int i = 0; i < kTrialRepeats; ++i) text += repeated;
    try {
      matcher.next(text + tail, 0);
    } catch (const Error&) {
      throw Error("the expression '{}' may take exponential time: it takes too many steps if '{}' is repeated",
                  printable(pattern_), printable(repeated));
    }
  };
  for (const std::string& one : letters) {
    try_text("", one);
    for (const std::string& other : letters) try_text(other, one), try_text("", one + other);
  }
}

std::string_view TextRegex::readable(std::string_view text, std::string& changed) {
  static const StandIns stand_ins(characters_of(R"(\P{Cn})"));
  return stand_ins.readable(text, changed);
}

TextRegex::~TextRegex() = default;
TextRegex::TextRegex(TextRegex&&) noexcept = default;

struct TextRegex::Matcher::Memory {
  MatchData data{pcre2_match_data_create(1, nullptr)};
  MatchContext context{pcre2_match_context_create(nullptr)};
  JitStack stack;
};

TextRegex::Matcher::Matcher(const TextRegex& regex, uint32_t max_steps)
    : regex_(regex), memory_(std::make_unique<Memory>()) {
  if (!memory_->data || !memory_->context) throw std::bad_alloc();
  pcre2_set_match_limit(memory_->context.get(), max_steps);
  pcre2_set_heap_limit(memory_->context.get(), kSplitHeapKib);
}

TextRegex::Matcher::~Matcher() = default;

std::optional<TextRegex::Range> TextRegex::Matcher::next(std::string_view text, size_t from) {
  while (from <= text.size()) {
    int rc = match(text, from);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && grow_stack()) rc = match(text, from);
    if (rc == PCRE2_ERROR_NOMATCH) return std::nullopt;
    if (rc < 0)
      throw Error("the pre-tokenizer expression '{}' fails on this text: {}", printable(regex_.pattern_, 64),
                  pcre2_message(rc));
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(memory_->data.get());
    if (bounds[1] > bounds[0]) return Range{bounds[0], bounds[1]};
    if (bounds[0] >= text.size()) break;
    from = bounds[0] + utf8_length(text.substr(bounds[0]));  // an empty match cuts nothing
  }
  return std::nullopt;
}

int TextRegex::Matcher::match(std::string_view text, size_t from) {
  return pcre2_match(regex_.code_->compiled.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                     PCRE2_NO_UTF_CHECK, memory_->data.get(), memory_->context.get());
}

// The JIT begins with 32 KiB of the machine's stack. Returns false if it already had a larger stack.
bool TextRegex::Matcher::grow_stack() {
  if (memory_->stack) return false;
  memory_->stack.reset(pcre2_jit_stack_create(size_t{1} << 16, kJitStackBytes, nullptr));
  if (!memory_->stack) throw std::bad_alloc();
  pcre2_jit_stack_assign(memory_->context.get(), nullptr, memory_->stack.get());
  return true;
}

}  // namespace ingot
