// The regular expressions of tokenizer.json are written for Oniguruma (Ruby's syntax); ours run in PCRE2. Most of what
// pre-tokenizers use means the same in both; the rest is translated, or refused rather than taken for something else.
#pragma once
#include <string>
#include <string_view>

namespace ingot {

// The expression in PCRE2's syntax, for PCRE2_UTF and PCRE2_UCP. Throws Error that names what has no translation.
std::string pcre2_from_oniguruma(std::string_view pattern);

// An expression that matches this text and nothing else.
std::string pcre2_from_literal(std::string_view text);

}  // namespace ingot
