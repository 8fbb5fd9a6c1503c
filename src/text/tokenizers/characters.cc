#include "text/tokenizers/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "base/check.h"
#include "base/utf8.h"
#include "text/tokenizers/unicode.h"

namespace ingot {

std::string normalize(std::string_view text, NormalForm form) {
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (std::all_of(text.begin(), text.end(), is_ascii)) return std::string(text);
  const bool composed = form == NormalForm::kC || form == NormalForm::kKC;
  const bool compatible = form == NormalForm::kKC || form == NormalForm::kKD;
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (compatible ? UTF8PROC_COMPAT : 0));
  std::string out;
  while (!text.empty()) {
    const size_t good = valid_utf8_prefix(text);
    utf8proc_uint8_t* mapped = nullptr;
    const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                               static_cast<utf8proc_ssize_t>(good), &mapped, options);
    const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(mapped, std::free);
    if (size == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
    CHECK(size >= 0);
    out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
    size_t end = good;
    while (end < text.size() && utf8_length(text.substr(end)) == 0) ++end;
    out += text.substr(good, end - good);
    text.remove_prefix(end);
  }
  return out;
}

void append_lowercase(std::string& out, char32_t c) {
  if (c == 0x130) {
    out += "i\xCC\x87";
  } else {
    utf8_append(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

bool is_nonspacing_mark(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_MN;
}

bool is_mark(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC || category == UTF8PROC_CATEGORY_ME;
}

bool is_control_like(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
}

size_t leading_space(std::string_view text) {
  size_t n = 0;
  while (const size_t length = utf8_length(text.substr(n))) {
    if (!is_unicode_space(utf8_decode(text.substr(n)))) break;
    n += length;
  }
  return n;
}

std::string_view without_trailing_space(std::string_view text) {
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    const std::string_view last = text.substr(begin);
    if (utf8_length(last) != last.size() || !is_unicode_space(utf8_decode(last))) break;
    text = text.substr(0, begin);
  }
  return text;
}

}  // namespace ingot
