// TextRegex: a regular expression of a model's tokenizer, which finds its matches in a text one after another. The
// expression is in PCRE2's syntax and JIT-compiled. Limits apply, because the expression may be hostile. (Pattern is
// for expressions that match names.)
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace ingot {

std::string pcre2_message(int code);  // `code`: an error of PCRE2

class TextRegex {
 public:
  // Throws Error for an expression that PCRE2 refuses. \s and \S mean Unicode's White_Space, as in the Rust and
  // Oniguruma engines for which the expressions were written.
  explicit TextRegex(std::string_view pattern);
  ~TextRegex();
  TextRegex(TextRegex&&) noexcept;

  // Tries the expression on short texts, such as 48 times 'a' between other characters of the expression. Throws
  // Error if one takes as many steps as only exponential time explains. Called for expressions from files. It does not
  // find every such expression, so each match has a limit of steps, too.
  void refuse_exponential_time() const;

  // The text that matchers must see (stand_ins.h), with the same length: the text itself or `changed`. The text must be
  // well-formed UTF-8.
  static std::string_view readable(std::string_view text, std::string& changed);

  struct Range {
    size_t begin, end;
  };
  static constexpr uint32_t kMaxSteps = 200'000'000;
  // Memory for matching. Each thread has a Matcher, so threads can share the expression.
  class Matcher {
   public:
    explicit Matcher(const TextRegex& regex, uint32_t max_steps = kMaxSteps);
    ~Matcher();
    // The next match of at least one byte that begins at `from` or later. The text must be well-formed UTF-8. Throws
    // Error if the expression needs too many steps on it.
    std::optional<Range> next(std::string_view text, size_t from);

   private:
    struct Memory;
    int match(std::string_view text, size_t from);
    bool grow_stack();
    const TextRegex& regex_;
    std::unique_ptr<Memory> memory_;
  };

 private:
  struct Code;
  std::string pattern_;
  std::unique_ptr<Code> code_;
};

}  // namespace ingot
