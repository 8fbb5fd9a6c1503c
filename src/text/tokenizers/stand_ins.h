// Makes token ids independent of PCRE2's version of Unicode. If PCRE2 and unicode_table.h differ about a character,
// PCRE2 gets a stand-in: a character of the same category with the same number of bytes. So a letter that PCRE2's
// version does not contain is still cut as a letter. The stand-in is close to the character, because expressions also
// contain ranges of characters.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

class StandIns {
 public:
  // assigned: a bit for each code point, set if PCRE2 has a category for it. Code points past the end are ignored.
  explicit StandIns(const std::vector<uint64_t>& assigned);

  // The text for PCRE2, with the same length: usually the text itself, otherwise `changed`, which holds the copy. The
  // text must be well-formed UTF-8.
  std::string_view readable(std::string_view text, std::string& changed) const;

 private:
  struct Run {
    char32_t first, last;
    uint32_t kind;
    char32_t stand_in = 0;
  };
  static char32_t nearest(const Run& run, const std::vector<Run>& others);
  char32_t stand_in_of(char32_t c) const;

  std::vector<Run> runs_;                     // ascending: runs that PCRE2 must not see
  std::array<bool, 0x1100> has_any_ = {};     // for each 256 code points: any run in them
};

}  // namespace ingot
