#include "text/grammar/constraint.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace ingot {

namespace {

constexpr size_t kMaxCachedBytes = size_t{64} << 20;  // masks of one grammar; then they are made anew
constexpr size_t kMaxForcedTexts = 1 << 13;           // the same, of texts that are forced

}  // namespace

Constraint::Constraint(std::unique_ptr<Automaton> automaton, std::shared_ptr<const GrammarVocabulary> vocabulary)
    : automaton_(std::move(automaton)), vocabulary_(std::move(vocabulary)) {}

std::shared_ptr<const TokenMask> Constraint::mask(GrammarState state) {
  if (const auto it = masks_.find(state); it != masks_.end()) return it->second;
  if (cached_bytes_ > kMaxCachedBytes) {
    masks_.clear();
    words_.clear();
  }
  const std::shared_ptr<const TokenMask> made = make_mask(state);
  if (state.text == 0) masks_[state] = made;
  count_bytes();
  return made;
}

void Constraint::count_bytes() {
  cached_bytes_ = (masks_.size() + words_.size()) * vocabulary_->empty_mask().size() * sizeof(uint32_t);
}

std::shared_ptr<const TokenMask> Constraint::make_mask(GrammarState state) {
  auto mask = std::make_shared<TokenMask>();
  const TokenTrie& trie = vocabulary_->trie();
  std::optional<std::vector<std::string>> repeated;
  const bool is_word = automaton_->is_word(state.place);
  if (is_word && state.text != 0) repeated = automaton_->repeated_ends(state);
  if (!is_word || (state.text != 0 && !repeated)) {
    *mask = vocabulary_->empty_mask();
    add_tokens(trie, state, 0, static_cast<uint32_t>(trie.nodes().size()), *mask);
  } else {
    add_word(automaton_->fresh(state), state, *mask);
    if (state.text != 0) {
      for (int32_t token : vocabulary_->far_closers()) add_if_allowed(token, state, *mask);
    }
    if (repeated) {
      for (const std::string& end : *repeated) add_closers(end, state, *mask);
    }
  }
  if (automaton_->accepts(state)) {
    for (int32_t end : vocabulary_->ends()) allow_token(*mask, end);
  }
  return mask;
}

// Kept, since each byte takes up to 256 steps.
const std::string& Constraint::forced(GrammarState first) {
  if (const auto it = forced_.find(first); it != forced_.end()) return it->second;
  if (forced_.size() >= kMaxForcedTexts) forced_.clear();
  std::string text;
  for (GrammarState state = first; text.size() < Matcher::kMostForced && !automaton_->accepts(state);) {
    int only = -1;
    GrammarState next;
    for (int byte = 0; byte < 256 && only != -2; ++byte) {
      const GrammarState after = automaton_->step(state, static_cast<uint8_t>(byte));
      if (after.is_dead()) continue;
      only = only == -1 ? byte : -2;
      next = after;
    }
    if (only < 0) break;
    text += static_cast<char>(only);
    state = next;
  }
  return forced_[first] = std::move(text);
}

// The tokens that go on with a word, and those that end it: from `fresh`, which is `state` but for its text.
void Constraint::add_word(GrammarState fresh, GrammarState state, TokenMask& mask) {
  const TokenTrie& trie = vocabulary_->trie();
  if (const auto [min, max] = automaton_->free_chars(state.place); min >= 0) {
    const GrammarVocabulary::FreeText& free = vocabulary_->free_text(min, max);
    mask = free.inside;
    add_after(free.after, automaton_->end_word({automaton_->free_place(state.place), fresh.frame, fresh.text}), mask);
    for (int32_t token : free.escaped) add_if_allowed(token, state, mask);
    for (const std::string& known : automaton_->known_ends(state.place)) add_closers(known, state, mask);
    return;
  }
  const WordMask& word = word_mask(state.place);
  mask = word.inside;
  for (const WordMask::Exits& exits : word.exits) {
    const GrammarState over = automaton_->end_word({exits.place, fresh.frame, fresh.text});
    if (over.is_dead()) continue;
    for (const auto& [node, is_after] : exits.all) {
      const TokenTrie::Node& at = trie.nodes()[node];
      if (is_after) {
        for (int32_t token : trie.tokens_at(at)) allow_token(mask, token);
      }
      add_tokens(trie, over, node + is_after, at.end, mask);
    }
  }
}

void Constraint::add_closers(const std::string& text, GrammarState state, TokenMask& mask) {
  for (int32_t token : vocabulary_->closers(text)) add_if_allowed(token, state, mask);
}

void Constraint::add_if_allowed(int32_t token, GrammarState state, TokenMask& mask) {
  for (char c : vocabulary_->bytes(token)) state = state.is_dead() ? state : automaton_->step(state, static_cast<uint8_t>(c));
  uint32_t& word = mask[static_cast<size_t>(token) / 32];
  const uint32_t bit = 1u << (static_cast<uint32_t>(token) % 32);
  word = state.is_dead() ? word & ~bit : word | bit;
}

void Constraint::add_after(const TokenTrie& after, GrammarState state, TokenMask& mask) {
  if (state.is_dead()) return;
  for (int32_t token : after.root_tokens()) allow_token(mask, token);
  add_tokens(after, state, 0, static_cast<uint32_t>(after.nodes().size()), mask);
}

void Constraint::add_tokens(const TokenTrie& trie, GrammarState state, uint32_t first, uint32_t last, TokenMask& mask) {
  trie.walk(
      state, first, last, [&](GrammarState at, uint8_t byte) { return automaton_->step(at, byte); },
      [&](const TokenTrie::Node& node, GrammarState) {
        for (int32_t token : trie.tokens_at(node)) allow_token(mask, token);
      });
}

const Constraint::WordMask& Constraint::word_mask(uint32_t place) {
  std::unique_ptr<WordMask>& made = words_[place];
  if (made) return *made;
  made = std::make_unique<WordMask>();
  made->inside = vocabulary_->empty_mask();
  const TokenTrie& trie = vocabulary_->trie();
  std::unordered_map<uint32_t, size_t> by_outcome;
  const auto leave = [&](uint32_t from, uint32_t node, bool is_after) {
    const auto [it, is_new] = by_outcome.try_emplace(automaton_->word_outcome(from), made->exits.size());
    if (is_new) made->exits.push_back({from, {}});
    made->exits[it->second].all.push_back({node, is_after});
  };
  const TokenTrie::Node* first = trie.nodes().data();
  std::array<uint32_t, TokenTrie::kMaxTokenBytes + 1> places;
  places[0] = place;
  for (uint32_t i = 0; i < trie.nodes().size();) {
    const TokenTrie::Node& node = first[i];
    const uint32_t from = places[node.depth - 1], next = automaton_->step_word(from, node.byte);
    if (next == Automaton::kWordEnds || next == Automaton::kWordOver) leave(from, i, next == Automaton::kWordEnds);
    if (next <= Automaton::kWordOver) {
      i = node.end;
      continue;
    }
    places[node.depth] = next;
    for (int32_t token : trie.tokens_at(node)) allow_token(made->inside, token);
    ++i;
  }
  return *made;
}

Matcher::Matcher(std::shared_ptr<Constraint> constraint) : constraint_(std::move(constraint)) {
  const std::lock_guard lock(constraint_->mutex_);
  states_.push_back(constraint_->automaton_->start());
  can_end_ = constraint_->automaton_->accepts(states_.back());
}

std::shared_ptr<const TokenMask> Matcher::mask() {
  const std::lock_guard lock(constraint_->mutex_);
  return constraint_->mask(states_.back());
}

bool Matcher::accept(int32_t token) {
  const GrammarVocabulary& vocabulary = constraint_->vocabulary();
  if (token < 0 || token >= vocabulary.size()) return false;
  if (vocabulary.is_end(token)) {
    if (!can_end_) return false;
    states_.push_back(states_.back());
    return true;
  }
  const std::lock_guard lock(constraint_->mutex_);
  GrammarState state = states_.back();
  if (vocabulary.bytes(token).empty()) return false;
  for (char c : vocabulary.bytes(token)) {
    state = constraint_->automaton_->step(state, static_cast<uint8_t>(c));
    if (state.is_dead()) return false;
  }
  states_.push_back(state);
  can_end_ = constraint_->automaton_->accepts(state);
  return true;
}

void Matcher::roll_back(int n) {
  CHECK(n >= 0 && n <= n_tokens());
  const std::lock_guard lock(constraint_->mutex_);
  states_.resize(states_.size() - static_cast<size_t>(n));
  can_end_ = constraint_->automaton_->accepts(states_.back());
}

bool Matcher::is_over() {
  if (!can_end_) return false;
  const std::lock_guard lock(constraint_->mutex_);
  for (int byte = 0; byte < 256; ++byte) {
    if (!constraint_->automaton_->step(states_.back(), static_cast<uint8_t>(byte)).is_dead()) return false;
  }
  return true;
}

std::string Matcher::forced() {
  const std::lock_guard lock(constraint_->mutex_);
  return constraint_->forced(states_.back());
}

}  // namespace ingot
