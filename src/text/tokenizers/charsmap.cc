#include "text/tokenizers/charsmap.h"

#include <utf8proc.h>

#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizers/unicode.h"

namespace ingot {
namespace {

// A unit of the double array.
bool has_leaf(uint32_t unit) { return unit >> 8 & 1; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

template <class... Args>
Error bad(fmt::format_string<Args...> format, Args&&... args) {
  return Error("precompiled_charsmap: {}; the file is damaged: download it again",
               fmt::format(format, std::forward<Args>(args)...));
}

// The length of the grapheme at the start of text; one byte if the text is not UTF-8.
size_t grapheme_length(std::string_view text) {
  utf8proc_int32_t state = 0;
  size_t n = utf8_length(text);
  if (n == 0) return 1;
  for (char32_t before = utf8_decode(text); n < text.size();) {
    const size_t length = utf8_length(text.substr(n));
    if (length == 0) break;
    const char32_t next = utf8_decode(text.substr(n));
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before), static_cast<utf8proc_int32_t>(next),
                                         &state))
      break;
    n += length;
    before = next;
  }
  return n;
}

}  // namespace

Charsmap::Charsmap(std::string_view blob) {
  static_assert(std::endian::native == std::endian::little);
  uint32_t size = 0;
  if (blob.size() < sizeof size) throw bad("it has {} bytes, but begins with a size of 4 bytes", blob.size());
  std::memcpy(&size, blob.data(), sizeof size);
  blob.remove_prefix(sizeof size);
  if (size > blob.size() || size % sizeof(uint32_t) != 0 || size == 0)
    throw bad("its trie has {} bytes, but {} bytes are left: expected a multiple of 4 that fits", size, blob.size());
  units_.resize(size / sizeof(uint32_t));
  std::memcpy(units_.data(), blob.data(), size);
  replacements_ = blob.substr(size);
  if (replacements_.empty() || replacements_.back() != '\0')
    throw bad("its last replacement does not end with a zero byte");
  check_trie();
}

// Visits every reachable node once, and checks that its children and its value are inside the table.
void Charsmap::check_trie() const {
  std::vector<bool> seen(units_.size());
  std::vector<uint32_t> open{offset_of(units_[0])};
  while (!open.empty()) {
    const uint32_t base = open.back();
    open.pop_back();
    if (base >= units_.size()) throw bad("a node of its trie is at {}, but the trie has {} nodes", base, units_.size());
    if (seen[base]) continue;
    seen[base] = true;
    for (uint32_t label = 1; label < 256; ++label) {
      const uint32_t at = base ^ label;
      if (at >= units_.size() || label_of(units_[at]) != label) continue;
      const uint32_t child = at ^ offset_of(units_[at]);
      if (has_leaf(units_[at]) && (child >= units_.size() || value_of(units_[child]) >= replacements_.size()))
        throw bad("the replacement of node {} is outside of the {} bytes of replacements", child, replacements_.size());
      open.push_back(child);
    }
  }
}

std::optional<Charsmap::Match> Charsmap::find(std::string_view text, bool longest) const {
  std::optional<Match> found;
  uint32_t node = offset_of(units_[0]);
  for (size_t i = 0; i < text.size() && text[i] != '\0'; ++i) {
    const uint32_t label = static_cast<uint8_t>(text[i]);
    node ^= label;
    if (node >= units_.size() || label_of(units_[node]) != label) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    found = Match{i + 1, value_of(units_[node])};
    if (!longest) break;
  }
  return found;
}

std::string Charsmap::apply(std::string_view text) const {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto match = find(text, true);
    const size_t length = match ? match->length : std::max<size_t>(1, utf8_length(text));
    out += match ? replacement(match->replacement) : text.substr(0, length);
    text.remove_prefix(length);
  }
  return out;
}

std::string Charsmap::apply_by_grapheme(std::string_view text) const {
  constexpr size_t kShort = 6;
  std::string out;
  out.reserve(text.size());
  auto append = [&](std::string_view part) {
    const auto match = find(part, false);
    if (match) out += replacement(match->replacement);
    return match.has_value();
  };
  while (!text.empty()) {
    std::string_view grapheme = text.substr(0, grapheme_length(text));
    text.remove_prefix(grapheme.size());
    if (grapheme.size() < kShort && append(grapheme)) continue;
    while (!grapheme.empty()) {
      const size_t length = std::max<size_t>(1, utf8_length(grapheme));
      if (!append(grapheme.substr(0, length))) out += grapheme.substr(0, length);
      grapheme.remove_prefix(length);
    }
  }
  return out;
}

}  // namespace ingot
