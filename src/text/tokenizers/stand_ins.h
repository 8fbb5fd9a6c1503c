// Makes token ids independent of which version of Unicode PCRE2 has. Where it and unicode_table.h differ about a
// character, PCRE2 sees another one in its place: of the same category, as many bytes, and near it, since expressions
// have ranges of neighbours too. So a letter that PCRE2 does not know is cut as one.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

class StandIns {
 public:
  // assigned: a bit for each code point that PCRE2 has a category for; those past its end are not looked at.
  explicit StandIns(const std::vector<uint64_t>& assigned);

  // The text as PCRE2 has to see it, of the same length: itself, mostly; else `changed`, which keeps it. The text must
  // be well-formed UTF-8.
  std::string_view readable(std::string_view text, std::string& changed) const;

 private:
  struct Run {
    char32_t first, last;
    uint32_t kind;
    char32_t stand_in = 0;
  };
  static char32_t nearest(const Run& run, const std::vector<Run>& others);
  char32_t stand_in_of(char32_t c) const;

  std::vector<Run> runs_;                     // ascending: those that PCRE2 must not see
  std::array<bool, 0x1100> has_any_ = {};     // for each 256 code points
};

}  // namespace ingot
