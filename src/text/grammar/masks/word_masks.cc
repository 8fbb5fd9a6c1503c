#include "text/grammar/masks/word_masks.h"

#include <algorithm>
#include <array>

namespace ingot {

namespace {

constexpr int kFewKinds = 6;  // with few kinds, a walk of the trie is short anyway

}  // namespace

void WordMasks::clear() {
  made_.clear();
  regions_.clear();
  n_bytes_ = 0;
}

const WordMask& WordMasks::of(uint32_t place) {
  std::unique_ptr<WordMask>& made = made_[place];
  if (made) return *made;
  auto mask = std::make_unique<WordMask>();
  Outcomes outcomes;
  if (automaton_.is_string(place)) {
    walk_plain(place, *mask);
    mask->tree = &vocabulary_.odd();
    walk_closers(place, *mask, outcomes);
  } else {
    mask->inside = vocabulary_.empty_mask();
    mask->tree = &vocabulary_.trie();
  }
  walk_tree(place, *mask, outcomes);
  n_bytes_ += sizeof(WordMask) + mask->inside.size() * sizeof(uint32_t);
  for (const WordMask::Exits& exits : mask->exits) {
    n_bytes_ += sizeof(exits) + exits.all.size() * sizeof(exits.all[0]) + exits.closers.size() * sizeof(uint64_t);
  }
  return *(made_[place] = std::move(mask));
}

WordMask::Exits& WordMasks::exits_at(uint32_t place, WordMask& made, Outcomes& outcomes) {
  const auto [it, is_new] = outcomes.try_emplace(automaton_.word_outcome(place), made.exits.size());
  if (is_new) made.exits.push_back({place, {}, {}});
  return made.exits[it->second];
}

void WordMasks::walk_tree(uint32_t place, WordMask& made, Outcomes& outcomes) {
  const std::vector<TokenTrie::Node>& nodes = made.tree->nodes();
  std::array<uint32_t, TokenTrie::kMaxTokenBytes + 1> places;
  places[0] = place;
  for (uint32_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const uint32_t from = places[node.depth - 1], next = automaton_.step_word(from, node.byte);
    if (next == Automaton::kWordEnds || next == Automaton::kWordOver) {
      exits_at(from, made, outcomes).all.push_back({i, next == Automaton::kWordEnds});
    }
    if (next <= Automaton::kWordOver) {
      i = node.end;
      continue;
    }
    places[node.depth] = next;
    for (int32_t token : made.tree->tokens_at(node)) allow_token(made.inside, token);
    ++i;
  }
}

void WordMasks::walk_closers(uint32_t place, WordMask& made, Outcomes& outcomes) {
  const TokenTrie& trie = vocabulary_.closers_tree();
  const std::vector<TokenTrie::Node>& nodes = trie.nodes();
  std::array<uint32_t, TokenTrie::kMaxTokenBytes + 1> places;
  places[0] = place;
  for (uint32_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const uint32_t from = places[node.depth - 1], next = automaton_.step_word(from, node.byte);
    if (next == Automaton::kWordEnds) {
      CloserSet& closers = exits_at(from, made, outcomes).closers;
      if (closers.empty()) closers = vocabulary_.no_closers();
      for (int32_t closer : trie.tokens_at(node)) add_closer(closers, closer);
    }
    places[node.depth] = next;
    i = next <= Automaton::kWordOver ? node.end : i + 1;
  }
}

std::vector<WordMasks::Group> WordMasks::groups_after(uint32_t place) {
  if (automaton_.allows_any_text(place)) return {{kAnyText.stays, kAnyText}};
  std::vector<Group> groups;
  const Regions::Next next = regions_.next(place);
  if (next.alive.count() <= kFewKinds) return groups;
  const auto add = [&](uint8_t kind, uint32_t after) {
    const Region& region = regions_.of(after);
    if (region.stays.is_empty()) return;
    auto it = std::ranges::find(groups, region, &Group::region);
    if (it == groups.end()) it = groups.insert(it, {{}, region});
    it->first.add(kind);
  };
  for (int kind = 0x20; kind < 0x80; ++kind) {
    const auto k = static_cast<uint8_t>(kind);
    if (next.alive.has(k)) add(k, automaton_.step_word(place, k));
  }
  if (next.others.size() == 1) add(CharKinds::kOthers, next.others[0]);
  return groups;
}

// Finds the tokens of each group by their characters. Walks the trie only for tokens that leave their region.
void WordMasks::walk_plain(uint32_t place, WordMask& made) {
  constexpr uint8_t kNoGroup = 0xff;
  const PlainTokens& plain = vocabulary_.plain();
  const std::vector<Group> groups = groups_after(place);
  made.inside = vocabulary_.empty_mask();
  std::array<uint8_t, 128> group_of;
  group_of.fill(kNoGroup);
  for (size_t g = 0; g < groups.size(); ++g) {
    const Region& region = groups[g].region;
    const auto mask =
        plain.mask(groups[g].first, region.stays, region.chars == Region::kNoEnd ? region.chars : region.chars + 1);
    for (size_t i = 0; i < mask->size(); ++i) made.inside[i] |= (*mask)[i];
    for (size_t kind = 0; kind < 128; ++kind) {
      if (groups[g].first.has(static_cast<uint8_t>(kind))) group_of[kind] = static_cast<uint8_t>(g);
    }
  }
  const std::vector<TokenTrie::Node>& nodes = plain.trie().nodes();
  struct At {
    uint32_t place;
    uint8_t group;
  };
  std::array<At, TokenTrie::kMaxTokenBytes + 1> path;
  path[0] = {place, kNoGroup};
  for (uint32_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const At from = path[node.depth - 1];
    const uint32_t next = automaton_.step_word(from.place, node.byte);
    uint8_t group = node.depth == 1 ? group_of[CharKinds::of(node.byte)] : from.group;
    const bool begins_char = (node.byte & 0xc0) != 0x80;
    if (node.depth > 1 && group != kNoGroup && begins_char && !groups[group].region.stays.has(CharKinds::of(node.byte)))
      group = kNoGroup;
    bool is_known = next <= Automaton::kWordOver;
    if (!is_known && group != kNoGroup) {
      const Region& region = groups[group].region;
      const PlainTokens::Below& below = plain.below(i);
      is_known = !below.kinds.meets(region.leaves) &&
                 (region.ends || region.chars == Region::kNoEnd || below.max_chars <= region.chars + 1);
    }
    if (is_known) {
      i = node.end;
      continue;
    }
    path[node.depth] = {next, group};
    for (int32_t token : plain.trie().tokens_at(node)) allow_token(made.inside, token);
    ++i;
  }
}

}  // namespace ingot
