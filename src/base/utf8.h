// The one definition of well-formed UTF-8 (Unicode 15, table 3-7); all other code here uses it.
#pragma once
#include <cstddef>
#include <string_view>

namespace ingot {

// The first sequence of a byte string. For a well-formed sequence, `ok` is true and `length` is the sequence's length.
// Otherwise `length` is the length of the maximal subpart (the bytes that the WHATWG decoder replaces by one U+FFFD),
// and `cut` is true when the string ends inside a sequence that more bytes could complete.
struct Utf8Step {
  size_t length = 0;
  bool ok = false;
  bool cut = false;
};

inline Utf8Step utf8_step(std::string_view s) {
  if (s.empty()) return {};
  auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {1, false, false};
  const size_t need = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // Only the second byte's bounds depend on the lead byte. They exclude overlong forms, surrogates, and code points
  // above U+10FFFF.
  unsigned low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < need; ++i, low = 0x80, high = 0xBF) {
    if (i == s.size()) return {i, false, true};
    if (byte(i) < low || byte(i) > high) return {i, false, false};
  }
  return {need, true, false};
}

// The number of bytes that follow this byte in its character, if it begins one; otherwise 0.
inline int utf8_bytes_after(char c) {
  const auto lead = static_cast<unsigned char>(c);
  return lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
}

// Length of the well-formed sequence at the front of s; 0 when s begins with none.
inline size_t utf8_length(std::string_view s) {
  const Utf8Step step = utf8_step(s);
  return step.ok ? step.length : 0;
}

}  // namespace ingot
