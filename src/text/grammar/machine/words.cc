// SchemaMachine: reads words byte by byte, independently of the frame.
#include <algorithm>

#include "text/grammar/machine/layout.h"
#include "text/grammar/machine/schema_machine.h"

namespace ingot {

namespace {

constexpr uint32_t kUnmade = UINT32_MAX;
constexpr size_t kMaxWordRows = 1 << 13;  // cached rows, 1 KiB each
constexpr size_t kRowWork = 8;            // work for a row, in parts of expressions

}  // namespace

const std::array<uint32_t, 256>& SchemaMachine::word_row(uint32_t place) {
  const uint32_t id = place - kFirstWord;
  if (id >= rows_.size()) rows_.resize(id + 1);
  if (!rows_[id]) {
    if (n_rows_ >= kMaxWordRows) {
      for (auto& row : rows_) row.reset();
      n_rows_ = 0;
    }
    auto made = make_row(words_.copy(id));
    if (id >= rows_.size()) rows_.resize(id + 1);
    rows_[id] = std::move(made);
    ++n_rows_;
  }
  return *rows_[id];
}

// Bytes with equal results in every language of the word share one step, so most of the 256 bytes cost little.
std::unique_ptr<std::array<uint32_t, 256>> SchemaMachine::make_row(const Words& word) {
  languages_.spend(kRowWork);
  auto row = std::make_unique<std::array<uint32_t, 256>>();
  if (word[0] != kBare && escape_of(word).phase != Escape::kNone) {
    for (size_t byte = 0; byte < 256; ++byte) (*row)[byte] = next_word(word, static_cast<uint8_t>(byte));
    return row;
  }
  const ByteGroups groups = groups_of(word);
  std::vector<uint32_t> next(groups.n, kUnmade);
  for (size_t byte = 0; byte < 256; ++byte) {
    const auto b = static_cast<uint8_t>(byte);
    if (word[0] != kBare && b < 0x20) continue;  // kDead: control characters need escapes
    if (word[0] != kBare && (b == '"' || b == '\\')) {
      (*row)[byte] = next_word(word, b);
      continue;
    }
    uint32_t& place = next[groups.of[byte]];
    if (place == kUnmade) place = next_word(word, b);
    (*row)[byte] = place;
  }
  return row;
}

SchemaMachine::ByteGroups SchemaMachine::groups_of(const Words& word) {
  ByteGroups groups;
  std::vector<std::pair<uint64_t, uint8_t>> names;
  const auto divide = [&](const auto& value_of) {
    names.clear();
    uint64_t before = UINT64_MAX;
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint64_t key = uint64_t{value_of(byte)} << 8 | groups.of[byte];
      if (key == before) {
        groups.of[byte] = groups.of[byte - 1];
        continue;
      }
      before = key;
      auto it = std::ranges::find(names, key, &std::pair<uint64_t, uint8_t>::first);
      if (it == names.end()) it = names.insert(it, {key, static_cast<uint8_t>(names.size())});
      groups.of[byte] = it->second;
    }
    groups.n = names.size();
  };
  const auto divide_by = [&](Language language) {
    const std::array<Language, 256>& next = languages_.row(language);
    divide([&](size_t byte) { return next[byte]; });
  };
  if (word[0] == kName) {
    for (size_t k = kOthers; k < word.size(); ++k) divide_by(word[k]);
    const NameSet& set = *name_sets_[word[kNameSet]];
    if (word[kNameNode] != 0)
      divide([&](size_t byte) { return next_node(set, word[kNameNode], static_cast<uint8_t>(byte)); });
  } else {
    divide_by(word[kAlive]);
    for (size_t k = kGoals + 1; k < word.size(); k += 2) divide_by(word[k]);
  }
  return groups;
}

uint32_t SchemaMachine::next_word(const Words& word, uint8_t byte) {
  if (word[0] == kBare) {
    const uint32_t next = advance(word, &byte, 1);
    return next == kDead && languages_.has_empty(word[kAlive]) ? kWordOver : next;
  }
  const Escape escape = escape_of(word);
  const bool is_name = word[0] == kName;
  const NameSet* set = is_name ? name_sets_[word[kNameSet]].get() : nullptr;
  if (byte == '"' && escape.phase == Escape::kNone) {
    if (!is_name) return languages_.has_empty(word[kAlive]) ? kWordEnds : kDead;
    const int name = word[kNameNode] == 0 ? -1 : objects_[set->plan]->nodes[word[kNameNode] - 1].name;
    return (name >= 0 ? set->allowed[static_cast<size_t>(name)] : languages_.has_empty(word[kOthers])) ? kWordEnds
                                                                                                       : kDead;
  }
  const EscapeStep step = step_escape(escape, byte);
  const bool any_ascii = is_name ? set->is_free : word[kAnyAscii] != 0;
  if (step.kind == EscapeStep::kBad) return kDead;
  Words next = word;
  set_escape(next, step.next);
  if (step.kind == EscapeStep::kBytes) {
    return any_ascii || may_spell(escape, byte, step) ? advance(std::move(next), step.bytes, step.n) : uint32_t{kDead};
  }
  const ByteStep language = [&](uint32_t id, uint8_t b) { return languages_.row(id)[b]; };
  bool can_go_on = can_complete(language, word[is_name ? int{kOthers} : int{kAlive}], step.next, any_ascii);
  if (!can_go_on && is_name && word[kNameNode] != 0) {
    const auto step_name = [&](uint32_t node, uint8_t b) {
      const uint32_t after = next_node(*set, node, b);
      return after != 0 && allows_below(*set, after) ? after : 0;
    };
    can_go_on = can_complete(step_name, word[kNameNode], step.next, any_ascii);
  }
  return can_go_on ? this->word(std::move(next)) : uint32_t{kDead};
}

// Returns the node after `byte`, plus 1, or 0 if there is no such node.
uint32_t SchemaMachine::next_node(const NameSet& set, uint32_t node, uint8_t byte) const {
  if (node == 0) return 0;
  const ObjectPlan& plan = *objects_[set.plan];
  const auto it = plan.nodes[node - 1].next.find(byte);
  return it == plan.nodes[node - 1].next.end() ? 0 : it->second + 1;
}

// Whether a name at the node or below it is allowed. node: as next_node() returns it.
bool SchemaMachine::allows_below(const NameSet& set, uint32_t node) const {
  const ObjectPlan::Node& at = objects_[set.plan]->nodes[node - 1];
  return set.below[at.last] > set.below[at.first];
}

uint32_t SchemaMachine::advance(Words word, const uint8_t* bytes, int n) {
  const bool is_name = word[0] == kName;
  for (int i = 0; i < n; ++i) {
    if (is_name) {
      for (size_t k = kOthers; k < word.size(); ++k) word[k] = languages_.row(word[k])[bytes[i]];
      word[kNameNode] = next_node(*name_sets_[word[kNameSet]], word[kNameNode], bytes[i]);
    } else {
      word[kAlive] = languages_.row(word[kAlive])[bytes[i]];
      for (size_t k = kGoals + 1; k < word.size(); k += 2) word[k] = languages_.row(word[k])[bytes[i]];
    }
  }
  if (is_name) {
    const NameSet& set = *name_sets_[word[kNameSet]];
    if (word[kNameNode] != 0 && allows_below(set, word[kNameNode])) return this->word(std::move(word));
    return word[kOthers] != 0 ? this->word(std::move(word)) : uint32_t{kDead};
  }
  if (word[kAlive] == RegularLanguages::kNothing) return kDead;
  size_t kept = kGoals;
  for (size_t k = kGoals; k < word.size(); k += 2) {  // drop goals that can no longer be met
    if (word[k + 1] == RegularLanguages::kNothing) continue;
    word[kept] = word[k];
    word[kept + 1] = word[k + 1];
    kept += 2;
  }
  word.resize(kept);
  return this->word(std::move(word));
}

bool SchemaMachine::is_string(uint32_t place) const {
  const auto word = words_[place - kFirstWord];
  return word[0] != kBare && word[kEscapeLow] == 0 && word[kEscapeHigh] == 0;
}

bool SchemaMachine::allows_any_text(uint32_t place) const {
  const auto word = words_[place - kFirstWord];
  return is_string(place) && languages_.allows_any_text(word[0] == kName ? word[kOthers] : word[kAlive]);
}

uint32_t SchemaMachine::word_outcome(uint32_t place) {
  const Words word = words_.copy(place - kFirstWord);
  Words outcome{UINT32_MAX};
  if (word[0] == kName) {
    const NameSet& set = *name_sets_[word[kNameSet]];
    outcome.push_back(
        word[kNameNode] == 0 ? UINT32_MAX : static_cast<uint32_t>(objects_[set.plan]->nodes[word[kNameNode] - 1].name));
    for (size_t k = kPatterns; k < word.size(); ++k) outcome.push_back(languages_.has_empty(word[k]));
  } else {
    for (size_t k = kGoals; k < word.size(); k += 2) {
      if (languages_.has_empty(word[k + 1])) outcome.push_back(word[k]);
    }
  }
  return words_.intern(outcome);
}

// Cached, because every token that ends the word asks for the same state.
GrammarState SchemaMachine::end_word(GrammarState state) {
  if (state.text > kPastFresh) return find_end(state);
  if (const auto it = word_ends_.find(state); it != word_ends_.end()) return it->second;
  return word_ends_[state] = find_end(state);
}

GrammarState SchemaMachine::find_end(GrammarState state) {
  const Words word = words_.copy(state.place - kFirstWord);
  if (word[0] == kName) return end_name(state);
  const ValuePlan& plan = values_[frames_[state.frame][kSlotPlan]];
  Outcome met(plan.goals.size(), plan.is_single ? Truth::kTrue : Truth::kFalse);
  for (size_t k = kGoals; k < word.size(); k += 2) {
    if (languages_.has_empty(word[k + 1])) met[word[k]] = Truth::kTrue;
  }
  return end_value(state.frame, met, state.text);
}

std::pair<int, int> SchemaMachine::free_chars(uint32_t place) const {
  const auto word = words_[place - kFirstWord];
  if (word[0] == kBare || word[kEscapeLow] != 0 || word[kEscapeHigh] != 0) return {-1, -1};
  if (word[0] == kString)
    return word.size() == kGoals && word[kAnyAscii] != 0 ? languages_.char_counts(word[kAlive]) : std::pair{-1, -1};
  const bool is_free = word[kOthers] == languages_.any_text() && name_sets_[word[kNameSet]]->is_free;
  return is_free ? std::pair{0, RegularLanguages::kNoLimit} : std::pair{-1, -1};
}

std::vector<Automaton::KnownEnd> SchemaMachine::known_ends(uint32_t place) {
  Words word = words_.copy(place - kFirstWord);
  std::vector<KnownEnd> ends;
  if (word[0] != kName || word[kNameNode] == 0) return ends;
  const ObjectPlan& plan = *objects_[name_sets_[word[kNameSet]]->plan];
  const ObjectPlan::Node node = plan.nodes[word[kNameNode] - 1];
  for (uint32_t i = node.first; i < node.last; ++i) {
    word[kNameNode] = plan.node_of[plan.sorted[i]] + 1;
    ends.push_back({plan.names[plan.sorted[i]].substr(node.depth), this->word(word)});
  }
  return ends;
}

uint32_t SchemaMachine::free_place(uint32_t place) {
  Words word = words_.copy(place - kFirstWord);
  if (word[0] == kName) word[kNameNode] = 0;
  return this->word(std::move(word));
}

// Returns `state` if some array around it may need an item that repeats another.
GrammarState SchemaMachine::fresh(GrammarState state) {
  for (uint32_t frame = state.frame; frame != 0;) {
    const auto words = frames_[frame];
    if (words[0] == kArray && !arrays_[words[kArrayPlan]]->is_monotone) return state;
    if (words[0] == kSlot) {
      frame = words[kSlotParent];
    } else {
      frame = words[0] == kArray ? words[kArraySlot] : words[kObjectSlot];
    }
  }
  return {state.place, state.frame, kFreshText};
}

std::optional<std::vector<std::string>> SchemaMachine::repeated_ends(GrammarState state) {
  const Words word = words_.copy(state.place - kFirstWord);
  if (word[0] == kBare) return std::nullopt;
  Words known;  // canonical texts that must not be repeated
  std::string text;
  if (word[0] == kName) {
    const Words frame = frames_.copy(state.frame);
    const ObjectPlan& plan = *objects_[frame[kObjectPlan]];
    if (!plan.tracks_names) return std::vector<std::string>();
    known.assign(seen_names(frame).begin(), seen_names(frame).end());
    text = "\"" + text_between(frame[kNameText], state.text);
  } else {
    const Words slot = frames_.copy(state.frame);
    const Words frame = frames_.copy(slot[kSlotParent]);
    if (frame.empty() || frame[0] != kArray || !arrays_[frame[kArrayPlan]]->is_unique)
      return std::vector<std::string>();
    const size_t n_rules = arrays_[frame[kArrayPlan]]->rules.size();
    known.assign(frame.begin() + static_cast<ptrdiff_t>(kArrayBits + n_words(n_rules) + n_rules), frame.end());
    text = text_between(slot[kSlotText], state.text);
    text.erase(0, text.find('"'));
  }
  std::vector<std::string> ends;
  for (uint32_t number : known) {
    const std::string& other = canonical_texts_[number];
    if (!other.starts_with('"')) continue;
    if (other.find('\\') != std::string::npos || text.find('\\') != std::string::npos) return std::nullopt;
    if (other.starts_with(text)) ends.push_back(other.substr(text.size(), other.size() - 1 - text.size()));
  }
  return ends;
}

}  // namespace ingot
