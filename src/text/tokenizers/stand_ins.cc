#include "text/tokenizers/stand_ins.h"

#include <algorithm>
#include <cstdlib>

#include "base/utf8.h"
#include "text/tokenizers/unicode.h"
#include "text/tokenizers/unicode_table.h"

namespace ingot {
namespace {

constexpr char32_t kChanged[] = {0x1171E};  // another category since Unicode 16

size_t n_bytes(char32_t c) { return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4; }

}  // namespace

StandIns::StandIns(const std::vector<uint64_t>& assigned) {
  std::vector<Run> agreed;
  const std::span<const uint32_t> table = UnicodeRuns::all();
  const char32_t end = static_cast<char32_t>(assigned.size() * 64);
  for (size_t i = 0; i < table.size(); ++i) {
    const uint32_t kind = UnicodeRuns::kind(table[i]);
    const char32_t next = i + 1 < table.size() ? UnicodeRuns::first(table[i + 1]) : end;
    for (char32_t c = std::max<char32_t>(UnicodeRuns::first(table[i]), 0x80); c < std::min(next, end); ++c) {
      const bool known = (assigned[c / 64] >> c % 64 & 1) != 0;
      const bool differs = known == (kind == UnicodeRuns::kUnassigned) || std::ranges::count(kChanged, c) > 0;
      std::vector<Run>& runs = differs ? runs_ : agreed;
      const bool goes_on = !runs.empty() && runs.back().last + 1 == c && runs.back().kind == kind &&
                           n_bytes(runs.back().last) == n_bytes(c);
      goes_on ? void(runs.back().last = c) : runs.push_back({c, c, kind});
    }
  }
  for (Run& run : runs_) {
    run.stand_in = nearest(run, agreed);
    for (char32_t block = run.first / 256; block <= run.last / 256; ++block) has_any_[block] = true;
  }
}

// DeepSeek's first expression lists the cased letters of whole blocks. A new cased letter of three or four bytes is not
// in that list, but all letters near it are. So the stand-in of such a letter comes from another block.
char32_t StandIns::nearest(const Run& run, const std::vector<Run>& others) {
  const bool has_case = run.kind <= UnicodeRuns::kTitle;
  const char32_t wanted = has_case && n_bytes(run.first) == 4 ? 0x16E50 : run.first == 0x1C89 ? 0x10C7 : run.first;
  char32_t best = run.first;
  uint32_t least = UINT32_MAX;
  for (const Run& other : others) {
    if (other.kind != run.kind || n_bytes(other.first) != n_bytes(run.first)) continue;
    const char32_t c = std::clamp(wanted, other.first, other.last);
    const uint32_t distance = c > wanted ? c - wanted : wanted - c;
    if (distance < least) best = c, least = distance;
  }
  return best;
}

char32_t StandIns::stand_in_of(char32_t c) const {
  const auto run = std::ranges::lower_bound(runs_, c, {}, &Run::last);
  return run != runs_.end() && run->first <= c ? run->stand_in : c;
}

std::string_view StandIns::readable(std::string_view text, std::string& changed) const {
  bool is_changed = false;
  for (size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const char32_t c = utf8_decode(text.substr(at));
    const size_t length = n_bytes(c);
    if (has_any_[c / 256]) {
      if (const char32_t other = stand_in_of(c); other != c) {
        if (!is_changed) changed = text;
        is_changed = true;
        std::string spelled;
        utf8_append(spelled, other);
        changed.replace(at, length, spelled);
      }
    }
    at += length;
  }
  return is_changed ? changed : text;
}

}  // namespace ingot
