#include "model/speech/silence.h"

#include <utf8proc.h>

#include <algorithm>
#include <cmath>

#include "io/audio/decode.h"

namespace ingot {

size_t quiet_beginning(std::span<const float> samples, double level) {
  constexpr size_t kPiece = kSpeechRate * 30 / 1000;
  const double least = std::pow(10, level / 10) / 2;  // a sine has half the power of its peak
  for (size_t at = 0; at < samples.size(); at += kPiece) {
    const auto piece = samples.subspan(at, std::min(kPiece, samples.size() - at));
    double sum = 0;
    for (const float x : piece) sum += double{x} * x;
    if (sum >= least * static_cast<double>(piece.size())) return at;
  }
  return samples.size();
}

bool says_something(std::string_view text) {
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t c = -1;
    const auto n = utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &c);
    if (n <= 0 || c == 0xFFFD) return true;  // not UTF-8, but something
    switch (utf8proc_category(c)) {
      case UTF8PROC_CATEGORY_LU:
      case UTF8PROC_CATEGORY_LL:
      case UTF8PROC_CATEGORY_LT:
      case UTF8PROC_CATEGORY_LM:
      case UTF8PROC_CATEGORY_LO:
      case UTF8PROC_CATEGORY_ND:
      case UTF8PROC_CATEGORY_NL:
      case UTF8PROC_CATEGORY_NO:
      case UTF8PROC_CATEGORY_SC: return true;
      default: at += static_cast<size_t>(n);
    }
  }
  return false;
}

}  // namespace ingot
