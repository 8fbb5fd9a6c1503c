#include "base/base64.h"

#include <array>
#include <cstdint>

namespace ingot {
namespace {

constexpr std::string_view kBase64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int8_t kNoDigit = -1, kSpace = -2, kPadding = -3;

constexpr std::array<int8_t, 256> kBase64Values = [] {
  std::array<int8_t, 256> values{};
  values.fill(kNoDigit);
  for (size_t i = 0; i < kBase64Digits.size(); ++i) values[static_cast<uint8_t>(kBase64Digits[i])] = int8_t(i);
  values['-'] = 62, values['_'] = 63;
  for (const char c : {' ', '\t', '\r', '\n'}) values[static_cast<uint8_t>(c)] = kSpace;
  values['='] = kPadding;
  return values;
}();

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const std::string_view group = bytes.substr(i, 3);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < group.size() ? static_cast<uint8_t>(group[k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += k <= group.size() ? kBase64Digits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

std::optional<std::vector<std::byte>> from_base64(std::string_view text) {
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  size_t n_digits = 0, n_padding = 0;
  for (const char c : text) {
    const int8_t value = kBase64Values[static_cast<uint8_t>(c)];
    if (value == kSpace) continue;
    if (value == kPadding) {
      ++n_padding;
      continue;
    }
    if (value == kNoDigit || n_padding > 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(value);
    ++n_digits;
    if (n_digits % 4 != 1) bytes.push_back(std::byte(bits >> (6 - 2 * ((n_digits - 1) % 4)) & 0xFF));
  }
  if (n_digits % 4 == 1 || n_padding > 2 || (n_padding > 0 && (n_digits + n_padding) % 4 != 0)) return std::nullopt;
  return bytes;
}

}  // namespace ingot
