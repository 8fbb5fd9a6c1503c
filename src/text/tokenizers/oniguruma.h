// The regular expressions of tokenizer.json are written for Oniguruma (Ruby's syntax); this program runs them in PCRE2.
// Most constructs of pre-tokenizers have the same meaning in both. Other constructs are translated, or refused if PCRE2
// would give them a different meaning.
#pragma once
#include <string>
#include <string_view>

namespace ingot {

// The expression in PCRE2's syntax, for PCRE2_UTF and PCRE2_UCP. Throws Error for a construct without translation, and
// names the construct.
std::string pcre2_from_oniguruma(std::string_view pattern);

// An expression that matches exactly this text.
std::string pcre2_from_literal(std::string_view text);

}  // namespace ingot
