// The general category of every character, and which characters are Han, from one version of Unicode: the version of
// the engine with which vocabularies were trained (tools/tokenizer_goldens/make_unicode.py).
#pragma once
#include <cstdint>
#include <span>

namespace ingot {

// A run of characters of one kind, up to the start of the next run. A word is the first code point << 6 | kind.
struct UnicodeRuns {
  static std::span<const uint32_t> all();
  static char32_t first(uint32_t word) { return word >> 6; }
  static uint32_t kind(uint32_t word) { return word & 63; }  // index of the category | 32 for Han

  static constexpr uint32_t kTitle = 2, kUnassigned = 28;  // with case: up to kTitle
};

}  // namespace ingot
