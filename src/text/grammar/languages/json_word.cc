#include "text/grammar/languages/json_word.h"

#include <algorithm>
#include <string>

#include "text/tokenizers/unicode.h"

namespace ingot {

namespace {

EscapeStep character(char32_t c) {
  std::string bytes;
  utf8_append(bytes, c);
  EscapeStep step{EscapeStep::kBytes, {}, {}, static_cast<uint8_t>(bytes.size())};
  std::ranges::copy(bytes, step.bytes);
  return step;
}

int hex_digit(uint8_t byte) {
  if (byte >= '0' && byte <= '9') return byte - '0';
  if (byte >= 'a' && byte <= 'f') return byte - 'a' + 10;
  return byte >= 'A' && byte <= 'F' ? byte - 'A' + 10 : -1;
}

// Whether the language allows a character from `low` to `high` next. Searches the tree of UTF-8 bytes, 64 ways a level.
bool has_char(const ByteStep& step, uint32_t state, char32_t low, char32_t high) {
  for (char32_t limit : {0x7fu, 0x7ffu, 0xd7ffu, 0xdfffu, 0xffffu}) {
    if (low <= limit && high > limit)
      return has_char(step, state, low, limit) || has_char(step, state, limit + 1, high);
  }
  if (low > high || (low >= 0xd800 && low <= 0xdfff)) return false;
  const int n = low < 0x80 ? 1 : low < 0x800 ? 2 : low < 0x10000 ? 3 : 4;
  const auto search = [&](auto& self, uint32_t at, char32_t prefix, int left) -> bool {
    if (at == 0) return false;
    if (left == 0) return true;
    const int shift = 6 * (left - 1);
    const int n_ways = left == n ? (n == 1 ? 128 : n == 2 ? 32 : n == 3 ? 16 : 8) : 64;
    const int lead = left == n ? (n == 1 ? 0 : n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) : 0x80;
    for (int i = 0; i < n_ways; ++i) {
      const char32_t first = prefix | static_cast<char32_t>(i) << shift, last = first | ((char32_t{1} << shift) - 1);
      if (last < low || first > high) continue;
      if (self(self, step(at, static_cast<uint8_t>(lead | i)), first, left - 1)) return true;
    }
    return false;
  };
  return search(search, state, 0, n);
}

}  // namespace

EscapeStep step_escape(Escape escape, uint8_t byte) {
  const auto inside = [](Escape next) { return EscapeStep{EscapeStep::kInside, next, {}, 0}; };
  switch (escape.phase) {
    case Escape::kNone:
      if (byte < 0x20) return {};
      if (byte == '\\') return inside({Escape::kBackslash});
      return {EscapeStep::kBytes, {}, {byte}, 1};
    case Escape::kBackslash: {
      if (byte == 'u') return inside({Escape::kHex});
      constexpr std::string_view kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
      const size_t i = kFrom.find(static_cast<char>(byte));
      return i == std::string_view::npos ? EscapeStep{} : character(static_cast<uint8_t>(kTo[i]));
    }
    case Escape::kLowBackslash: return byte == '\\' ? inside({Escape::kLowU, 0, 0, escape.high}) : EscapeStep{};
    case Escape::kLowU: return byte == 'u' ? inside({Escape::kLowHex, 0, 0, escape.high}) : EscapeStep{};
    case Escape::kHex:
    case Escape::kLowHex: break;
  }
  const int digit = hex_digit(byte);
  if (digit < 0) return {};
  escape.value = static_cast<uint16_t>(escape.value * 16 + digit);
  if (++escape.n_digits < 4) return inside(escape);
  const bool is_low = escape.value >= 0xdc00 && escape.value <= 0xdfff;
  if (escape.phase == Escape::kLowHex) {
    return is_low ? character(0x10000 + ((escape.high - 0xd800u) << 10) + (escape.value - 0xdc00u)) : EscapeStep{};
  }
  if (is_low) return {};
  if (escape.value >= 0xd800 && escape.value <= 0xdbff) return inside({Escape::kLowBackslash, 0, 0, escape.value});
  return character(escape.value);
}

bool can_complete(const ByteStep& step, uint32_t state, Escape escape, bool any_ascii) {
  const auto low_half = [&](uint32_t high, uint32_t first, uint32_t last) {
    const char32_t base = 0x10000 + ((high - 0xd800) << 10);
    return first <= last && has_char(step, state, base + (first - 0xdc00), base + (last - 0xdc00));
  };
  const int shift = 4 * (4 - escape.n_digits);
  const uint32_t first = uint32_t{escape.value} << shift, last = first + (1u << shift) - 1;
  switch (escape.phase) {
    case Escape::kNone: return state != 0;
    case Escape::kBackslash: {
      for (char c : std::string_view(any_ascii ? "\"\\\b\f\n\r\t/" : "\"\\\b\f\n\r\t")) {
        if (step(state, static_cast<uint8_t>(c)) != 0) return true;
      }
      return can_complete(step, state, {Escape::kHex}, any_ascii);
    }
    case Escape::kLowBackslash:
    case Escape::kLowU: return low_half(escape.high, 0xdc00, 0xdfff);
    case Escape::kLowHex: return low_half(escape.high, std::max(first, 0xdc00u), std::min(last, 0xdfffu));
    case Escape::kHex: break;
  }
  if (any_ascii && has_char(step, state, first, std::min(last, 0x7fu))) return true;
  if (has_char(step, state, first, std::min(last, 0x1fu)) || has_char(step, state, std::max(first, 0x7fu), last))
    return true;
  const uint32_t from = std::max(first, 0xd800u), to = std::min(last, 0xdbffu);
  return from <= to &&
         has_char(step, state, 0x10000 + ((from - 0xd800) << 10), 0x10000 + ((to - 0xd800) << 10) + 0x3ff);
}

bool may_spell(Escape escape, uint8_t byte, const EscapeStep& step) {
  if (escape.phase == Escape::kBackslash) return byte != '/';
  return escape.phase != Escape::kHex || step.n > 1 || step.bytes[0] < 0x20 || step.bytes[0] == 0x7f;
}

}  // namespace ingot
