#include "text/grammar/masks/constraint.h"

#include <algorithm>
#include <bit>
#include <new>

#include "base/check.h"

namespace ingot {

namespace {

constexpr size_t kMaxCachedBytes = size_t{64} << 20;  // masks of one grammar; beyond this, the cache is cleared
constexpr size_t kMaxForcedTexts = 1 << 13;           // the same for forced texts
constexpr int kCallsSlow = 64;                        // some four calls for each token
constexpr size_t kMaxGrowth = size_t{32} << 20;       // bytes of states that a machine collects

}  // namespace

Constraint::Constraint(std::unique_ptr<Automaton> automaton, std::shared_ptr<const GrammarVocabulary> vocabulary)
    : automaton_(std::move(automaton)), vocabulary_(std::move(vocabulary)), words_(*automaton_, *vocabulary_) {
  start_ = automaton_->start();
  may_be_empty_ = automaton_->accepts(start_);
  n_first_bytes_ = automaton_->n_bytes();
  count_bytes();
}

std::shared_ptr<const TokenMask> Constraint::mask(GrammarState state) {
  if (const auto it = masks_.find(state); it != masks_.end()) return it->second;
  if (n_mask_bytes_ > kMaxCachedBytes) {
    masks_.clear();
    words_.clear();
    closers_before_.clear();
  }
  const std::shared_ptr<const TokenMask> made = make_mask(state);
  if (state.text == 0) masks_[state] = made;
  count_bytes();
  return made;
}

void Constraint::count_bytes() {
  const size_t n_mask = (static_cast<size_t>(vocabulary_->size()) + 31) / 32 * sizeof(uint32_t);
  const size_t n_closers = vocabulary_->no_closers().size() * sizeof(uint64_t);
  n_mask_bytes_ = masks_.size() * n_mask + words_.n_bytes() + closers_before_.size() * n_closers;
  const size_t n_machine = automaton_->n_bytes();
  n_bytes_ = n_mask_bytes_ + n_machine;
  is_worn_ = n_machine > 2 * n_first_bytes_ + kMaxGrowth;
}

std::shared_ptr<const TokenMask> Constraint::make_mask(GrammarState state) {
  auto mask = std::make_shared<TokenMask>(vocabulary_->empty_mask());
  const bool is_word = automaton_->is_word(state.place);
  if (is_word && state.text == 0) {
    add_word(state, *mask);
  } else if (!is_word || !add_new_word(state, *mask)) {
    add_all_tokens(state, *mask);
  }
  if (automaton_->accepts(state)) {
    for (int32_t end : vocabulary_->ends()) allow_token(*mask, end);
  }
  return mask;
}

// Adds the tokens in a word of any characters that may not repeat an earlier text. Most of these tokens are found from
// the fresh state. Returns false if this is not possible.
bool Constraint::add_new_word(GrammarState state, TokenMask& mask) {
  const GrammarState fresh = automaton_->fresh(state);
  const auto [min_chars, max_chars] = automaton_->free_chars(state.place);
  // After a word without characters, the text after the word may depend on the word: all words may have been used.
  if (fresh.text != Automaton::kFreshText || min_chars < 0 || max_chars == 0) return false;
  const auto repeated = automaton_->repeated_ends(state);
  if (!repeated) return false;
  add_free_word(fresh, state, mask);
  for (int32_t token : vocabulary_->far_closers()) add_if_allowed(token, state, mask);
  for (const std::string& end : *repeated) add_known_end(end, state, mask);
  return true;
}

// Adds the tokens that `state` allows. Only the end of a text depends on the text. So this function walks through fresh
// states, which many tokens share, and reads a token from `state` once a text has ended in the token.
void Constraint::add_all_tokens(GrammarState state, TokenMask& mask) {
  struct At {
    GrammarState state;
    uint32_t n_bytes = 0;   // of the token so far
    bool is_exact = false;  // read from `state`
    bool is_dead() const { return state.is_dead(); }
  };
  const auto without_text = [&](GrammarState at) { return at.text == 0 ? at : automaton_->fresh(at); };
  const auto has_text = [](GrammarState at) { return at.text > Automaton::kPastFresh; };
  std::array<char, TokenTrie::kMaxTokenBytes> bytes;
  const auto step = [&](const At& at, uint8_t byte) -> At {
    bytes[at.n_bytes] = static_cast<char>(byte);
    const uint32_t n = at.n_bytes + 1;
    const GrammarState next = automaton_->step(at.state, byte);
    if (at.is_exact || next.is_dead() || next.text == at.state.text) return {next, n, at.is_exact};
    if (at.state.text == Automaton::kFreshText) return {read(state, {bytes.data(), n}), n, true};
    return {without_text(next), n, has_text(without_text(next))};
  };
  const GrammarState first = without_text(state);
  const TokenTrie& trie = vocabulary_->trie();
  trie.walk(At{first, 0, has_text(first)}, 0, static_cast<uint32_t>(trie.nodes().size()), step,
            [&](const TokenTrie::Node& node, const At&) {
              for (int32_t token : trie.tokens_at(node)) allow_token(mask, token);
            });
}

// Cached, because each byte takes up to 256 steps.
const std::string& Constraint::forced(GrammarState first) {
  if (const auto it = forced_.find(first); it != forced_.end()) return it->second;
  if (forced_.size() >= kMaxForcedTexts) forced_.clear();
  std::string text;
  for (GrammarState state = first; text.size() < Matcher::kMaxForced && !automaton_->accepts(state);) {
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

// Adds the tokens that continue a word, and the tokens that end it.
void Constraint::add_word(GrammarState state, TokenMask& mask) {
  if (automaton_->free_chars(state.place).first >= 0) return add_free_word(state, state, mask);
  const WordMask& word = words_.of(state.place);
  mask = word.inside;
  for (const WordMask::Exits& exits : word.exits) {
    const GrammarState over = automaton_->end_word({exits.place, state.frame, 0});
    if (over.is_dead()) continue;
    add_closers(exits.closers, over, mask);
    for (const auto& [node, is_after] : exits.all) {
      const TokenTrie::Node& at = word.tree->nodes()[node];
      if (is_after) {
        for (int32_t token : word.tree->tokens_at(at)) allow_token(mask, token);
      }
      add_tokens(*word.tree, over, node + is_after, at.end, mask);
    }
  }
}

// The same for a word of any characters. The tokens that end it are found from `fresh`, which differs from `state` only
// in its text.
void Constraint::add_free_word(GrammarState fresh, GrammarState state, TokenMask& mask) {
  const auto [min, max] = automaton_->free_chars(state.place);
  mask = vocabulary_->free_text(max);
  const GrammarState over = automaton_->end_word({automaton_->free_place(state.place), fresh.frame, fresh.text});
  if (!over.is_dead()) add_closers(vocabulary_->closers_with(min, max), over, mask);
  const std::vector<Automaton::KnownEnd> known_ends = automaton_->known_ends(state.place);
  if (known_ends.empty() && state.text == 0) return;
  for (int32_t token : vocabulary_->escaped_closers())
    add_if_allowed(token, state, mask);  // they may spell a known end
  for (const auto& [text, place] : known_ends) {
    const std::span<const int32_t> closers = vocabulary_->closers_of(text);
    if (closers.empty()) continue;
    if (state.text != 0) {
      add_known_end(text, state, mask);
      continue;
    }
    const bool can_end = automaton_->step_word(place, '"') == Automaton::kWordEnds;
    const GrammarState known = can_end ? automaton_->end_word({place, state.frame, 0}) : GrammarState{};
    for (int32_t token : closers) set_allowed(token, read(known, vocabulary_->text_after_quote(token)), mask);
  }
}

void Constraint::add_known_end(const std::string& text, GrammarState state, TokenMask& mask) {
  for (int32_t token : vocabulary_->closers_of(text)) add_if_allowed(token, state, mask);
}

// Adds the tokens of `closers` that `over`, the state after the quote, allows.
void Constraint::add_closers(const CloserSet& closers, GrammarState over, TokenMask& mask) {
  if (closers.empty()) return;
  const CloserSet& allowed = closers_before(over);
  for (size_t i = 0; i < closers.size(); ++i) {
    for (uint64_t left = closers[i] & allowed[i]; left != 0; left &= left - 1) {
      allow_token(mask, vocabulary_->closers()[i * 64 + static_cast<size_t>(std::countr_zero(left))]);
    }
  }
}

// The closers whose text after the quote is allowed at `over`.
const CloserSet& Constraint::closers_before(GrammarState over) {
  if (over.text == 0) {
    if (const auto it = closers_before_.find(over); it != closers_before_.end()) return it->second;
  }
  CloserSet set = vocabulary_->no_closers();
  const TokenTrie& after = vocabulary_->after_closers();
  for (int32_t closer : after.root_tokens()) add_closer(set, closer);
  after.walk(
      over, 0, static_cast<uint32_t>(after.nodes().size()),
      [&](GrammarState at, uint8_t byte) { return automaton_->step(at, byte); },
      [&](const TokenTrie::Node& node, GrammarState) {
        for (int32_t closer : after.tokens_at(node)) add_closer(set, closer);
      });
  return (over.text == 0 ? closers_before_[over] : closers_now_) = std::move(set);
}

GrammarState Constraint::read(GrammarState state, std::string_view text) {
  for (char c : text) {
    if (state.is_dead()) break;
    state = automaton_->step(state, static_cast<uint8_t>(c));
  }
  return state;
}

void Constraint::set_allowed(int32_t token, GrammarState after, TokenMask& mask) {
  uint32_t& word = mask[static_cast<size_t>(token) / 32];
  const uint32_t bit = 1u << (static_cast<uint32_t>(token) % 32);
  word = after.is_dead() ? word & ~bit : word | bit;
}

void Constraint::add_if_allowed(int32_t token, GrammarState state, TokenMask& mask) {
  set_allowed(token, read(state, vocabulary_->bytes(token)), mask);
}

void Constraint::add_tokens(const TokenTrie& trie, GrammarState state, uint32_t first, uint32_t last, TokenMask& mask) {
  trie.walk(
      state, first, last, [&](GrammarState at, uint8_t byte) { return automaton_->step(at, byte); },
      [&](const TokenTrie::Node& node, GrammarState) {
        for (int32_t token : trie.tokens_at(node)) allow_token(mask, token);
      });
}

// Runs a call that uses the machine at `state`. Counts its work in work_left, the rest of an answer's work.
template <class F>
auto Constraint::metered(const Effort& effort, GrammarState state, size_t& work_left, F call) {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!effort.is_quick) {
    lock.lock();
  } else if (!lock.try_lock()) {
    n_calls_slow_ = kCallsSlow;
    throw NotQuick();
  }
  if (is_broken_) throw std::bad_alloc();
  WorkMeter& meter = automaton_->meter();
  const size_t limit = std::min(effort.max_work, work_left);
  meter.limit(limit);
  try {
    auto result = call();
    work_left -= limit - meter.left();
    if (!effort.is_quick) note_work(limit - meter.left());
    return result;
  } catch (const std::bad_alloc&) {
    is_broken_ = is_worn_ = true;
    throw;
  } catch (const TooMuchWork& error) {
    work_left -= limit - meter.left();
    n_calls_slow_ = kCallsSlow;
    if (effort.is_quick) throw NotQuick();
    const std::string where = automaton_->where(state);
    throw TooMuchWork("{}{}{}", where, where.empty() ? "" : ": ",
                      limit == effort.max_work ? error.what()
                                               : "the constraint needs too much work for an answer of this "
                                                 "length: simplify the constraint");
  }
}

void Constraint::note_work(size_t work) {
  if (work > kQuickEffort.max_work)
    n_calls_slow_ = kCallsSlow;
  else if (n_calls_slow_ > 0)
    --n_calls_slow_;
}

void Constraint::prepare() {
  size_t work_left = WorkMeter::kMaxWork;
  metered(kFullEffort, start_, work_left, [this] { return mask(start_); });
}

template <class F>
auto Matcher::metered(const Effort& effort, F call) {
  return constraint_->metered(effort, places_.back().state, work_left_, std::move(call));
}

Matcher::Matcher(std::shared_ptr<Constraint> constraint) : constraint_(std::move(constraint)) {
  places_.push_back({constraint_->start_, constraint_->may_be_empty_});
}

std::shared_ptr<const TokenMask> Matcher::mask(const Effort& effort) {
  return metered(effort, [this] { return constraint_->mask(places_.back().state); });
}

bool Matcher::accept(int32_t token, const Effort& effort) {
  const GrammarVocabulary& vocabulary = constraint_->vocabulary();
  if (token < 0 || token >= vocabulary.size()) return false;
  if (vocabulary.is_end(token)) {
    if (!can_end()) return false;
    places_.push_back(places_.back());
    return true;
  }
  if (vocabulary.bytes(token).empty()) return false;
  const Place next = metered(effort, [&]() -> Place {
    const GrammarState state = constraint_->read(places_.back().state, vocabulary.bytes(token));
    return {state, !state.is_dead() && constraint_->automaton_->accepts(state)};
  });
  if (next.state.is_dead()) return false;
  places_.push_back(next);
  work_left_ += kTokenWork;
  return true;
}

void Matcher::roll_back(int n) {
  CHECK(n >= 0 && n <= n_tokens());
  places_.resize(places_.size() - static_cast<size_t>(n));
  work_left_ -= std::min(work_left_, static_cast<size_t>(n) * kTokenWork);
}

bool Matcher::is_over(const Effort& effort) {
  if (!can_end()) return false;
  return metered(effort, [this] {
    for (int byte = 0; byte < 256; ++byte)
      if (!constraint_->automaton_->step(places_.back().state, static_cast<uint8_t>(byte)).is_dead()) return false;
    return true;
  });
}

std::string Matcher::forced(const Effort& effort) {
  return metered(effort, [this] { return constraint_->forced(places_.back().state); });
}

}  // namespace ingot
