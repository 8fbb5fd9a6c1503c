#include "base/error.h"

#include "base/utf8.h"

namespace ingot {
namespace {

bool is_control(std::string_view sequence) {
  unsigned lead = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return lead < 0x20 || lead == 0x7F;
  return sequence.size() == 2 && lead == 0xC2 && static_cast<unsigned char>(sequence[1]) < 0xA0;  // C1 controls
}

}  // namespace

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    size_t length = utf8_length(text);
    std::string_view sequence = text.substr(0, length ? length : 1);
    if (out.size() + sequence.size() > max_bytes) return out + "...";
    if (length == 0 || is_control(sequence)) {
      for (char c : sequence) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += sequence;
    }
    text.remove_prefix(sequence.size());
  }
  return out;
}

}  // namespace ingot
