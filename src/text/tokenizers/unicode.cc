#include "text/tokenizers/unicode.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"

namespace ingot {
namespace {

bool is_gpt2_printable(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Gpt2Map {
  std::array<char32_t, 256> to_char{};
  std::array<int, 0x144> to_byte{};  // the map ends at U+0143
};

const Gpt2Map& gpt2_map() {
  static const Gpt2Map map = [] {
    Gpt2Map m;
    m.to_byte.fill(-1);
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      m.to_char[byte] = is_gpt2_printable(byte) ? byte : next++;
      m.to_byte[m.to_char[byte]] = static_cast<int>(byte);
    }
    return m;
  }();
  return map;
}

}  // namespace

size_t valid_utf8_prefix(std::string_view text) {
  size_t n = 0;
  while (n < text.size()) {
    const size_t length = utf8_length(text.substr(n));
    if (length == 0) break;
    n += length;
  }
  return n;
}

bool is_valid_utf8(std::string_view text) { return valid_utf8_prefix(text) == text.size(); }

char32_t utf8_decode(std::string_view text) {
  auto tail = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i]) & 0x3F); };
  const char32_t lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return lead;
  if (lead < 0xE0) return (lead & 0x1F) << 6 | tail(1);
  if (lead < 0xF0) return (lead & 0x0F) << 12 | tail(1) << 6 | tail(2);
  return (lead & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3);
}

void utf8_append(std::string& out, char32_t c) {
  auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    tail(6), tail(0);
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    tail(12), tail(6), tail(0);
  }
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.ok) {
      out += text.substr(0, step.length);
    } else {
      out += "\xEF\xBF\xBD";
    }
    text.remove_prefix(step.length);
  }
  return out;
}

size_t utf8_incomplete_tail(std::string_view text) {
  for (size_t n = std::min<size_t>(3, text.size()); n > 0; --n) {
    const Utf8Step step = utf8_step(text.substr(text.size() - n));
    if (step.cut && step.length == n) return n;
  }
  return 0;
}

bool is_unicode_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string gpt2_from_bytes(std::string_view bytes) {
  std::string out;
  for (char c : bytes) utf8_append(out, gpt2_map().to_char[static_cast<unsigned char>(c)]);
  return out;
}

std::optional<std::string> bytes_from_gpt2(std::string_view text) {
  const Gpt2Map& map = gpt2_map();
  std::string out;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) return std::nullopt;
    const char32_t c = utf8_decode(text);
    if (c >= map.to_byte.size() || map.to_byte[c] < 0) return std::nullopt;
    out += static_cast<char>(map.to_byte[c]);
    text.remove_prefix(length);
  }
  return out;
}

}  // namespace ingot
