#include "text/grammar/masks/regions.h"

#include <algorithm>

#include "text/grammar/languages/regular.h"

namespace ingot {

namespace {

constexpr size_t kMaxSearchedPlaces = 64;  // most places that a search visits
constexpr int kMaxChars = 24;      // most characters that a search follows; few tokens have more

// Reads the bytes of a character that is beyond ASCII and not special.
struct OtherChars {
  std::vector<std::array<uint32_t, 256>> rows;
  uint32_t start = 0;
  static constexpr uint32_t kNone = 0, kWhole = 1;

  OtherChars() {
    RegularLanguages languages;
    std::vector<CharRange> ranges;
    char32_t from = 0x80;
    for (char32_t c = 0x80; c <= 0x10ffff; ++c) {
      if (c == 0xd800 || PlainTokens::is_special(c)) {
        ranges.push_back({from, c - 1});
        from = c == 0xd800 ? 0xe000 : c + 1;
        if (c == 0xd800) c = 0xdfff;
      }
    }
    ranges.push_back({from, 0x10ffff});
    std::vector<RegularLanguages::Id> states{RegularLanguages::kNothing, RegularLanguages::kEmpty,
                                             languages.characters(ranges)};
    start = 2;
    for (size_t i = 0; i < states.size(); ++i) {
      std::array<uint32_t, 256> row = languages.row(states[i]);
      for (uint32_t& next : row) {
        const auto it = std::ranges::find(states, next);
        next = static_cast<uint32_t>(it - states.begin());
        if (it == states.end())
          states.push_back(row[&next - row.data()]), next = static_cast<uint32_t>(states.size() - 1);
      }
      rows.push_back(row);
    }
  }
};

}  // namespace

const Regions::Next& Regions::next(uint32_t place) {
  if (const auto it = next_.find(place); it != next_.end()) return it->second;
  return next_[place] = find_next(place);
}

Regions::Next Regions::find_next(uint32_t place) {
  static const OtherChars kChars;
  Next next;
  for (int byte = 0x20; byte < 0x80; ++byte) {
    if (byte == '"' || byte == '\\') continue;
    if (automaton_.step_word(place, static_cast<uint8_t>(byte)) > Automaton::kWordOver)
      next.alive.add(static_cast<uint8_t>(byte));
  }
  struct Reading {
    uint32_t place, state;  // of `kChars`
    bool operator==(const Reading&) const = default;
  };
  std::vector<Reading> all{{place, kChars.start}};
  bool is_dead_somewhere = false;
  for (size_t i = 0; i < all.size(); ++i) {
    const Reading at = all[i];
    if (at.state == OtherChars::kWhole) {
      next.others.push_back(at.place);
      continue;
    }
    for (int byte = 0x80; byte < 0x100; ++byte) {
      const uint32_t state = kChars.rows[at.state][static_cast<size_t>(byte)];
      if (state == OtherChars::kNone) continue;
      const uint32_t to = automaton_.step_word(at.place, static_cast<uint8_t>(byte));
      is_dead_somewhere |= to <= Automaton::kWordOver;
      if (to <= Automaton::kWordOver) continue;
      next.alive.add(CharKinds::kOthers);
      if (const Reading found{to, state}; all.back() != found && std::ranges::find(all, found) == all.end())
        all.push_back(found);
    }
  }
  if (is_dead_somewhere) next.others.clear();
  return next;
}

template <class Visit>
void Regions::each_after(uint32_t place, const CharKinds& kinds, Visit&& visit) {
  for (int kind = 0x20; kind < 0x80; ++kind) {
    if (kinds.has(static_cast<uint8_t>(kind))) visit(automaton_.step_word(place, static_cast<uint8_t>(kind)));
  }
  if (!kinds.has(CharKinds::kOthers)) return;
  const std::vector<uint32_t> others = next(place).others;
  for (uint32_t other : others) visit(other);
}

const Region& Regions::of(uint32_t place) {
  if (const auto it = regions_.find(place); it != regions_.end()) return it->second;
  return regions_[place] = find(place);
}

bool Regions::stays_alike(uint32_t place, uint8_t kind, const CharKinds& alive) {
  if (kind != CharKinds::kOthers) return next(automaton_.step_word(place, kind)).alive == alive;
  const std::vector<uint32_t> others = next(place).others;
  return !others.empty() && std::ranges::all_of(others, [&](uint32_t other) { return next(other).alive == alive; });
}

// Follows the characters of `stays` from place to place. Stops when all places are known, or at a place where different
// characters may come next.
Region Regions::find(uint32_t place) {
  if (automaton_.allows_any_text(place)) return kAnyText;
  const CharKinds alive = next(place).alive;
  Region region;
  for (int kind = 0; kind < 0x80; ++kind) {
    const auto k = static_cast<uint8_t>(kind);
    if (alive.has(k)) (stays_alike(place, k, alive) ? region.stays : region.leaves).add(k);
  }
  if (region.stays.is_empty()) return region;
  std::vector<uint32_t> seen{place};
  for (size_t begin = 0, end = 1; begin < end; begin = end, end = seen.size()) {
    bool is_alike = true, is_over = true;
    for (size_t i = begin; i < end; ++i) {
      const uint32_t from = seen[i];
      each_after(from, region.stays, [&](uint32_t to) {
        if (to == from || to == seen.back() || std::ranges::find(seen, to) != seen.end()) {
          is_over = is_over && next(to).alive.is_empty();
          return;
        }
        const Next& after = next(to);
        const bool has_others = !after.others.empty() || !region.stays.has(CharKinds::kOthers);
        is_alike = is_alike && after.alive == alive && has_others;
        is_over = is_over && after.alive.is_empty();
        seen.push_back(to);
      });
    }
    if (!is_alike) {
      region.chars += 1;
      region.ends = is_over;
      return region;
    }
    region.chars += end > begin && seen.size() > end;
    if (seen.size() > kMaxSearchedPlaces || region.chars >= kMaxChars) return region;
  }
  region.chars = Region::kNoEnd;
  return region;
}

}  // namespace ingot
