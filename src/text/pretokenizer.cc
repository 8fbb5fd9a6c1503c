#include "text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <optional>
#include <string>

#include "base/error.h"
#include "base/utf8.h"
#include "text/unicode.h"

namespace ingot {
namespace {

constexpr uint32_t kHeapLimitKib = 256 * 1024;
constexpr uint32_t kMatchLimit = 200'000'000;
constexpr size_t kJitStackBytes = size_t{64} << 20;  // reserved, touched only as far as a match needs

template <auto kFree>
struct Free {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Code = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>>;

// PCRE2's \s has U+180E, which Unicode's White_Space lost in version 6.3.
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

std::string pcre2_message(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

// One compiled expression. Its matches are made with memory of the call's own, so that threads may share it.
class Pretokenizer::Regex {
 public:
  explicit Regex(std::string_view pattern) : pattern_(pattern) {
    const std::string spelled = spell_out_spaces(pattern);
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled.data()), spelled.size(), PCRE2_UTF | PCRE2_UCP,
                              &error, &offset, nullptr));
    if (!code_)
      throw Error("pre-tokenizer expression '{}': {} at {}", printable(pattern), pcre2_message(error), offset);
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // when it cannot, pcre2_match interprets
  }

  class Matcher;

 private:
  std::string pattern_;
  Code code_;
};

class Pretokenizer::Regex::Matcher {
 public:
  explicit Matcher(const Regex& regex)
      : regex_(regex), data_(pcre2_match_data_create(1, nullptr)), context_(pcre2_match_context_create(nullptr)) {
    if (!data_ || !context_) throw std::bad_alloc();
    pcre2_set_match_limit(context_.get(), kMatchLimit);
    pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
  }

  // The next match with at least one byte that begins at `from` or later: its bounds; or nothing.
  struct Range {
    size_t begin, end;
  };
  std::optional<Range> next(std::string_view text, size_t from) {
    while (from <= text.size()) {
      int rc = match(text, from);
      if (rc == PCRE2_ERROR_JIT_STACKLIMIT && grow_stack()) rc = match(text, from);
      if (rc == PCRE2_ERROR_NOMATCH) return std::nullopt;
      if (rc < 0)
        throw Error("the pre-tokenizer expression '{}' fails on this text: {}", printable(regex_.pattern_, 64),
                    pcre2_message(rc));
      const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data_.get());
      if (bounds[1] > bounds[0]) return Range{bounds[0], bounds[1]};
      if (bounds[0] >= text.size()) break;
      from = bounds[0] + utf8_length(text.substr(bounds[0]));  // an empty match cuts nothing
    }
    return std::nullopt;
  }

 private:
  int match(std::string_view text, size_t from) {
    return pcre2_match(regex_.code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK, data_.get(), context_.get());
  }

  // The JIT begins with 32 KiB of the machine's stack. False when it has had more already.
  bool grow_stack() {
    if (stack_) return false;
    stack_.reset(pcre2_jit_stack_create(size_t{1} << 16, kJitStackBytes, nullptr));
    if (!stack_) throw std::bad_alloc();
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
    return true;
  }

  const Regex& regex_;
  MatchData data_;
  MatchContext context_;
  JitStack stack_;
};

Pretokenizer::Pretokenizer(std::span<const std::string_view> patterns) {
  for (std::string_view pattern : patterns) steps_.push_back(std::make_unique<Regex>(pattern));
}

Pretokenizer::~Pretokenizer() = default;

void Pretokenizer::split(std::string_view text, const OnPiece& on_piece) const {
  while (!text.empty()) {
    const size_t good = valid_utf8_prefix(text);
    if (good > 0) split_well_formed(text.substr(0, good), on_piece);
    size_t end = good;
    while (end < text.size() && utf8_length(text.substr(end)) == 0) ++end;
    if (end > good) on_piece(text.substr(good, end - good));
    text.remove_prefix(end);
  }
}

void Pretokenizer::split_well_formed(std::string_view text, const OnPiece& on_piece) const {
  std::vector<std::string_view> pieces{text}, finer;
  for (const auto& step : steps_) {
    Regex::Matcher matcher(*step);
    const bool last = &step == &steps_.back();
    finer.clear();
    auto emit = [&](std::string_view piece) { last ? on_piece(piece) : finer.push_back(piece); };
    for (std::string_view piece : pieces) {
      size_t done = 0;
      while (const auto match = matcher.next(piece, done)) {
        if (match->begin > done) emit(piece.substr(done, match->begin - done));
        emit(piece.substr(match->begin, match->end - match->begin));
        done = match->end;
        if (done == piece.size()) break;
      }
      if (done < piece.size()) emit(piece.substr(done));
    }
    std::swap(pieces, finer);
  }
}

}  // namespace ingot
