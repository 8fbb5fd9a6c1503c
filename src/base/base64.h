// Base64 (RFC 4648), with the alphabets for text and for URLs.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

std::string to_base64(std::string_view bytes);

// The bytes; nothing if the text is not Base64. Line ends and spaces between digits are skipped, and the padding may be
// missing.
std::optional<std::vector<std::byte>> from_base64(std::string_view text);

}  // namespace ingot
