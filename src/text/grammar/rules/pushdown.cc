#include "text/grammar/rules/pushdown.h"

#include <algorithm>

#include "base/error.h"

namespace ingot {

namespace {

constexpr uint32_t kMaxStackDepth = 4096;  // text that nests deeper is not allowed
constexpr size_t kMaxHeads = 1 << 22;
constexpr size_t kMaxItems = 1 << 14;        // ways to read the text at one state
constexpr size_t kMaxCachedSteps = 1 << 14;  // cached steps, 1 KiB each
constexpr size_t kMaxWords = 1 << 23;
constexpr size_t kParseParts = 16;  // take as much time as one part of an expression
constexpr uint32_t kUnknownStep = UINT32_MAX;

}  // namespace

PushdownMachine::PushdownMachine(Grammar grammar) {
  meter_->limit(WorkMeter::kMaxCompileWork);
  const Grammar::Facts facts = grammar.finish();
  expr(Words{kNothing}, false);
  expr(Words{kEmpty}, true);
  const uint32_t bottom[] = {kAccept, 0};
  stacks_.intern(bottom);
  depths_.push_back(0);
  frames_.intern({});
  rules_.resize(grammar.n_rules());
  const Expr root = build(grammar, facts, grammar.root());
  for (uint32_t rule = 0; rule < rules_.size(); ++rule) rules_[rule].body = build(grammar, facts, grammar.body(rule));
  languages_ = grammar.take_languages();
  machines_ = std::move(grammar.machines());
  n_kinds_ = static_cast<uint32_t>(machines_.size() + 1);
  use_meter(meter_);
  for (const auto& machine : machines_) machine_starts_.push_back(machine->start());
  rank_rules(grammar);
  Closure closure;
  go_on(closure, root, 0);
  start_ = close(closure);
  meter_->limit(SIZE_MAX);
}

// ---- Expressions

PushdownMachine::Expr PushdownMachine::expr(const Words& words, bool has_empty) {
  const Expr id = exprs_.intern(words);
  if (id == has_empty_.size()) {
    has_empty_.push_back(has_empty);
    heads_.emplace_back();
  }
  return id;
}

PushdownMachine::Expr PushdownMachine::build(Grammar& grammar, const Grammar::Facts& facts, Grammar::Part part) {
  if (!facts.is_productive[part]) return kNothing;
  const Grammar::Node& node = grammar.node(part);
  const bool has_empty = facts.has_empty[part];
  if (facts.language[part] == RegularLanguages::kEmpty) return kEmpty;
  if (facts.language[part] != Grammar::kNone) return expr({kLanguage, facts.language[part]}, has_empty);
  switch (node.kind) {
    case Grammar::Kind::kMachine: return expr({kMachine, node.id}, has_empty);
    case Grammar::Kind::kRule: return expr({kRule, node.id}, has_empty);
    case Grammar::Kind::kSequence: return build_sequence(grammar, facts, node.parts);
    case Grammar::Kind::kRepeat: return repeat(build(grammar, facts, node.parts[0]), node.min, node.max);
    default: break;
  }
  Words words;
  std::vector<Language> languages;  // alternatives that become one language
  for (Grammar::Part inner : node.parts) {
    if (facts.language[inner] != Grammar::kNone) {
      languages.push_back(facts.language[inner]);
    } else if (const Expr id = build(grammar, facts, inner); id != kNothing) {
      words.push_back(id);
    }
  }
  const Language joined = grammar.languages().any_of(std::move(languages));
  if (joined != RegularLanguages::kNothing) {
    words.push_back(joined == RegularLanguages::kEmpty
                        ? Expr{kEmpty}
                        : expr({kLanguage, joined}, grammar.languages().has_empty(joined)));
  }
  std::ranges::sort(words);
  words.erase(std::unique(words.begin(), words.end()), words.end());
  if (words.size() == 1) return words[0];
  words.insert(words.begin(), kChoice);
  return expr(words, has_empty);
}

// Adjacent regular parts become one terminal.
PushdownMachine::Expr PushdownMachine::build_sequence(Grammar& grammar, const Grammar::Facts& facts,
                                                      std::span<const Grammar::Part> parts) {
  Expr id = kEmpty;
  Language language = RegularLanguages::kEmpty;  // of the adjacent regular parts so far
  uint32_t weight = 0;
  const auto end_terminal = [&] {
    if (language != RegularLanguages::kEmpty)
      id = sequence(expr({kLanguage, language}, grammar.languages().has_empty(language)), id);
    language = RegularLanguages::kEmpty;
    weight = 0;
  };
  for (size_t i = parts.size(); i-- > 0;) {
    const Language first = facts.language[parts[i]];
    if (first == Grammar::kNone || weight + grammar.weight(parts[i]) > Grammar::kMaxWeight) end_terminal();
    if (first == Grammar::kNone) {
      id = sequence(build(grammar, facts, parts[i]), id);
    } else {
      language = grammar.languages().concat(first, language);
      weight += grammar.weight(parts[i]);
    }
  }
  end_terminal();
  return id;
}

PushdownMachine::Expr PushdownMachine::sequence(Expr first, Expr second) {
  if (first == kNothing || second == kNothing) return kNothing;
  if (second == kEmpty) return first;
  Words firsts;
  while (exprs_[first][0] == kSequence) {
    firsts.push_back(exprs_[first][1]);
    first = exprs_[first][2];
  }
  if (first != kEmpty) firsts.push_back(first);
  for (size_t i = firsts.size(); i-- > 0;)
    second = expr({kSequence, firsts[i], second}, has_empty_[firsts[i]] && has_empty_[second]);
  return second;
}

PushdownMachine::Expr PushdownMachine::repeat(Expr part, int min, int max) {
  if (part == kEmpty || max == 0) return kEmpty;
  if (part == kNothing) return min == 0 ? kEmpty : kNothing;
  if (min == 1 && max == 1) return part;
  if (has_empty_[part]) min = 0;
  return expr({kRepeat, part, static_cast<uint32_t>(min), static_cast<uint32_t>(max)}, min == 0);
}

const std::vector<PushdownMachine::Head>& PushdownMachine::heads(Expr id) {
  if (!heads_[id]) {
    std::vector<Head> found = find_heads(id);
    n_heads_ += found.size();
    if (n_heads_ > kMaxHeads) throw Error("the grammar is too large: too many symbols can come next");
    heads_[id] = std::make_unique<std::vector<Head>>(std::move(found));
  }
  return *heads_[id];
}

// Computes partial derivatives by symbols (Antimirov 1996). The rest of a repetition repeats one time fewer.
std::vector<PushdownMachine::Head> PushdownMachine::find_heads(Expr id) {
  spend(1);
  std::vector<Head> found;
  const Words words = exprs_.copy(id);
  switch (words[0]) {
    case kLanguage:
    case kMachine:
    case kRule: found.push_back({static_cast<ExprKind>(words[0]), words[1], kEmpty}); break;
    case kChoice:
      for (size_t i = 1; i < words.size(); ++i) {
        const std::vector<Head>& inner = heads(words[i]);
        found.insert(found.end(), inner.begin(), inner.end());
      }
      break;
    case kRepeat: {
      const int min = static_cast<int>(words[2]), max = static_cast<int>(words[3]);
      const Expr again = repeat(words[1], std::max(0, min - 1), max == Grammar::kNoLimit ? max : max - 1);
      for (const Head& head : heads(words[1])) found.push_back({head.kind, head.id, sequence(head.rest, again)});
      break;
    }
    case kSequence:
      for (Expr at = id; at != kEmpty;) {
        const bool is_pair = exprs_[at][0] == kSequence;
        const Expr first = is_pair ? exprs_[at][1] : at, second = is_pair ? exprs_[at][2] : Expr{kEmpty};
        for (const Head& head : heads(first)) found.push_back({head.kind, head.id, sequence(head.rest, second)});
        if (!has_empty_[first]) break;
        at = second;
      }
      break;
    default: break;
  }
  return found;
}

// Sorts the rules: each rule comes before the rules that it may begin with.
void PushdownMachine::rank_rules(const Grammar& grammar) {
  std::vector<Words> begins(rules_.size());
  Words n_before(rules_.size()), ready;
  for (uint32_t rule = 0; rule < rules_.size(); ++rule) {
    for (const Head& head : heads(rules_[rule].body)) {
      if (head.kind == kRule) begins[rule].push_back(head.id);
    }
    for (uint32_t other : begins[rule]) ++n_before[other];
  }
  for (uint32_t rule = 0; rule < rules_.size(); ++rule) {
    if (n_before[rule] == 0) ready.push_back(rule);
  }
  for (size_t i = 0; i < ready.size(); ++i) {
    rules_[ready[i]].rank = static_cast<int>(i);
    for (uint32_t other : begins[ready[i]]) {
      if (--n_before[other] == 0) ready.push_back(other);
    }
  }
  rule_of_rank_ = ready;
  if (ready.size() == rules_.size()) return;
  // Each remaining rule has a remaining predecessor. So a walk over predecessors meets a rule twice, and that path is a
  // cycle.
  Words before(rules_.size(), kUnknownStep);
  for (uint32_t rule = 0; rule < rules_.size(); ++rule) {
    if (rules_[rule].rank >= 0) continue;
    for (uint32_t other : begins[rule]) before[other] = rule;
  }
  uint32_t rule = static_cast<uint32_t>(std::ranges::find(rules_, -1, &RuleBody::rank) - rules_.begin());
  Words path;
  for (; std::ranges::find(path, rule) == path.end(); rule = before[rule]) path.push_back(rule);
  std::string circle = grammar.name(rule);
  while (path.back() != rule) circle += " -> " + grammar.name(path.back()), path.pop_back();
  circle += " -> " + grammar.name(rule);
  throw Error("{}: a rule begins with itself ({}); only a direct 'rule = rule rest | first' is supported",
              grammar.where(rule), printable(circle));
}

// ---- States

void PushdownMachine::spend(size_t n_parts) {
  n_parse_parts_ += n_parts;
  meter_->spend(n_parse_parts_ / kParseParts,
                "the grammar is too ambiguous: the parses of the text need too much work; "
                "give each text fewer parses");
  n_parse_parts_ %= kParseParts;
}

// Adds all terminals and rules that may come next if the way continues with `rest`.
void PushdownMachine::go_on(Closure& closure, Expr rest, Stack stack) {
  std::vector<std::pair<Expr, Stack>> ready{{rest, stack}};
  while (!ready.empty()) {
    const auto [id, at] = ready.back();
    ready.pop_back();
    spend(1);
    if (!closure.seen.insert(uint64_t{id} << 32 | at).second) continue;
    add_heads(closure, id, at);
    if (!has_empty_[id]) continue;
    const auto above = stacks_[at];
    spend(above.size());
    for (size_t i = 0; i < above.size(); i += 2) {
      if (above[i] == kAccept) {
        closure.accepts = true;
      } else {
        ready.push_back({above[i], above[i + 1]});
      }
    }
  }
}

void PushdownMachine::add_heads(Closure& closure, Expr id, Stack stack) {
  spend(heads(id).size());
  for (const Head& head : heads(id)) {
    if (head.kind == kLanguage) {
      closure.items.push_back({2 * head.id, head.rest, stack});
    } else if (head.kind == kMachine) {
      closure.items.push_back({machine_terminal(head.id, machine_starts_[head.id]), head.rest, stack});
    } else if (depths_[stack] < kMaxStackDepth) {
      Words& callers = closure.entered[rules_[head.id].rank];
      if (head.rest == kEmpty) {  // at a rule's end, reuse the caller's stack: right recursion stays flat
        const auto above = stacks_[stack];
        spend(above.size());
        callers.insert(callers.end(), above.begin(), above.end());
      } else {
        callers.push_back(head.rest);
        callers.push_back(stack);
      }
    }
  }
}

// Adds a terminal after a byte. The terminal may continue, end here, or both.
void PushdownMachine::add_terminal(Closure& closure, const Item& item) {
  const uint32_t id = item.terminal / 2;
  if (item.terminal % 2 == 0) {
    if (id != RegularLanguages::kEmpty) closure.items.push_back(item);
    if (languages_->has_empty(id)) go_on(closure, item.rest, item.stack);
    return;
  }
  closure.items.push_back(item);
  const auto words = machine_states_[id];
  if (machines_[words[0]]->accepts({words[1], words[2], words[3]})) go_on(closure, item.rest, item.stack);
}

namespace {

// Sorts pairs of words and removes duplicates.
void sort_pairs(std::vector<uint32_t>& words) {
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  for (size_t i = 0; i < words.size(); i += 2) pairs.push_back({words[i], words[i + 1]});
  std::ranges::sort(pairs);
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  words.clear();
  for (auto [first, second] : pairs) words.push_back(first), words.push_back(second);
}

}  // namespace

PushdownMachine::Stack PushdownMachine::intern_stack(Words& callers) {
  spend(callers.size());
  sort_pairs(callers);
  const Stack stack = stacks_.intern(callers);
  if (stack == depths_.size()) {
    uint32_t depth = 0;
    for (size_t i = 0; i < callers.size(); i += 2) depth = std::max(depth, depths_[callers[i + 1]] + 1);
    depths_.push_back(depth);
    count_words(callers.size());
  }
  return stack;
}

void PushdownMachine::count_words(size_t n) {
  n_words_ += n;
  if (n_words_ > kMaxWords)
    throw Error("the grammar is too ambiguous: the parses of the text need more than {} words of memory", kMaxWords);
}

GrammarState PushdownMachine::close(Closure& closure) {
  while (!closure.entered.empty()) {  // in order of rank, because all callers of a rule must be known first
    auto node = closure.entered.extract(closure.entered.begin());
    add_heads(closure, rules_[rule_of_rank_[static_cast<size_t>(node.key())]].body, intern_stack(node.mapped()));
    if (closure.items.size() > kMaxItems) break;
  }
  spend(closure.items.size());
  std::ranges::sort(closure.items);
  std::vector<Item> items;
  for (size_t begin = 0, end; begin < closure.items.size(); begin = end) {
    Item item = closure.items[begin];
    Words callers;
    for (end = begin; end < closure.items.size() && closure.items[end].terminal == item.terminal &&
                      closure.items[end].rest == item.rest;
         ++end) {
      if (closure.items[end].stack == item.stack && end > begin) continue;
      const auto above = stacks_[closure.items[end].stack];
      spend(above.size());
      callers.insert(callers.end(), above.begin(), above.end());
      item.stack = closure.items[end].stack;
    }
    if (item.stack != closure.items[begin].stack) item.stack = intern_stack(callers);
    items.push_back(item);
  }
  if (items.size() > kMaxItems)
    throw Error("the grammar is too ambiguous: the text has more than {} parses", kMaxItems);
  if (items.empty() && !closure.accepts) return {};
  if (items.size() == 1 && !closure.accepts) {
    if (const GrammarState word = word_state(items[0]); !word.is_dead()) return word;
  }
  Words frame{closure.accepts};
  for (const Item& item : items) frame.insert(frame.end(), {item.terminal, item.rest, item.stack});
  return between(frame);
}

// The state of several ways to read the text. The state's text is the text of the one machine that has a text.
GrammarState PushdownMachine::between(const Words& frame) {
  const size_t n_frames = frames_.size();
  const uint32_t id = frames_.intern(frame);
  if (frames_.size() > n_frames) count_words(frame.size());
  uint32_t text = 0, n_texts = 0;
  for (size_t i = 1; i < frame.size(); i += 3) {
    const uint32_t of_machine = frame[i] % 2 == 0 ? 0 : machine_states_[frame[i] / 2][3];
    if (of_machine != 0) text = of_machine, ++n_texts;
  }
  return {kBetween, id, n_texts == 1 ? text : 0};
}

uint32_t PushdownMachine::machine_terminal(uint32_t machine, GrammarState state) {
  const uint32_t words[] = {machine, state.place, state.frame, state.text};
  return 1 + 2 * machine_states_.intern(words);
}

// Whether the machine is in a word with a clear end. A word that is the machine's whole text has no clear end, because
// the text after the machine may begin with bytes that would also continue the word.
bool PushdownMachine::can_be_word(uint32_t machine, GrammarState state) {
  return state.place < (UINT32_MAX - kFirstWord) / n_kinds_ - 1 && machines_[machine]->is_word(state.place) &&
         state.frame != machine_starts_[machine].frame && !machines_[machine]->accepts(state);
}

uint32_t PushdownMachine::word(uint32_t kind, uint32_t place) const {
  if (place >= (UINT32_MAX - kFirstWord) / n_kinds_ - 1)
    throw Error("the grammar is too large: embedded grammars have too many states");
  return kFirstWord + place * n_kinds_ + kind;
}

// The state of a single way to read the text; dead if the way is not in a word.
GrammarState PushdownMachine::word_state(const Item& item) {
  const uint32_t id = item.terminal / 2;
  uint32_t context[] = {0, item.rest, item.stack};
  if (item.terminal % 2 == 0) {
    if (languages_->has_empty(id)) return {};
    return {word(0, id), contexts_.intern(context), 0};
  }
  const Words words = machine_states_.copy(id);
  const GrammarState inner{words[1], words[2], words[3]};
  if (!can_be_word(words[0], inner)) return {};
  context[0] = inner.frame;
  return {word(words[0] + 1, inner.place), contexts_.intern(context), inner.text};
}

uint32_t PushdownMachine::number_of(GrammarState state) {
  const auto [it, is_new] = state_index_.try_emplace(state, static_cast<uint32_t>(states_.size()));
  if (is_new) states_.push_back(state);
  return it->second;
}

GrammarState PushdownMachine::step(GrammarState state, uint8_t byte) {
  if (state.is_dead()) return {};
  if (is_word(state.place)) {
    const uint32_t kind = kind_of(state.place), place = place_of(state.place);
    if (kind == 0) {
      const Language next = languages_->row(place)[byte];
      if (next == RegularLanguages::kNothing) return {};
      if (!languages_->has_empty(next)) return {word(0, next), state.frame, 0};
      return end_terminal(2 * next, state.frame);
    }
    const uint32_t frame = contexts_[state.frame][0];
    const GrammarState next = machines_[kind - 1]->step({place, frame, state.text}, byte);
    if (next.is_dead()) return {};
    if (next.frame == frame && can_be_word(kind - 1, next)) return {word(kind, next.place), state.frame, next.text};
    return end_terminal(machine_terminal(kind - 1, next), state.frame);
  }
  if (rows_.size() > kMaxCachedSteps) {
    rows_.clear();
    states_.clear();
    state_index_.clear();
  }
  auto& row = rows_[state.frame];
  if (!row) {
    row = std::make_unique<std::array<uint32_t, 256>>();
    row->fill(kUnknownStep);
  }
  uint32_t& number = (*row)[byte];
  if (number == kUnknownStep) number = number_of(find_step(state.frame, byte));
  return states_[number];
}

GrammarState PushdownMachine::find_step(uint32_t frame, uint8_t byte) {
  Closure closure;
  const Words words = frames_.copy(frame);
  spend(words.size());
  for (size_t i = 1; i < words.size(); i += 3) {
    const uint32_t id = words[i] / 2;
    uint32_t next = 0;
    if (words[i] % 2 == 0) {
      next = 2 * languages_->row(id)[byte];
      if (next == 2 * RegularLanguages::kNothing) continue;
    } else {
      const Words inner = machine_states_.copy(id);
      const GrammarState state = machines_[inner[0]]->step({inner[1], inner[2], inner[3]}, byte);
      if (state.is_dead()) continue;
      next = machine_terminal(inner[0], state);
    }
    add_terminal(closure, {next, words[i + 1], words[i + 2]});
  }
  return close(closure);
}

// The state after a step in a word that turned the word's terminal into `terminal`, which may end here.
GrammarState PushdownMachine::end_terminal(uint32_t terminal, uint32_t context) {
  const uint64_t key = uint64_t{terminal} << 32 | context;
  if (const auto it = ends_.find(key); it != ends_.end()) return it->second;
  Closure closure;
  const Words words = contexts_.copy(context);
  add_terminal(closure, {terminal, words[1], words[2]});
  return ends_[key] = close(closure);
}

bool PushdownMachine::accepts(GrammarState state) {
  if (state.is_dead()) return false;
  if (!is_word(state.place)) return frames_[state.frame][0] != 0;
  if (kind_of(state.place) != 0 || !languages_->has_empty(place_of(state.place))) return false;
  return accepts(end_word(state));
}

// ---- Words. A word ends where its terminal may end, because the text can then continue in two ways: with more of the
// terminal or with the part after it.

uint32_t PushdownMachine::step_word(uint32_t place, uint8_t byte) {
  const uint32_t kind = kind_of(place), inner = place_of(place);
  if (kind == 0) {
    if (languages_->has_empty(inner)) return kWordOver;
    const Language next = languages_->row(inner)[byte];
    return next == RegularLanguages::kNothing ? kDead : word(0, next);
  }
  const uint32_t next = machines_[kind - 1]->step_word(inner, byte);
  return next == kDead || next == kWordEnds || next == kWordOver ? next : word(kind, next);
}

void PushdownMachine::use_meter(const SharedMeter& meter) {
  meter_.share(meter);
  languages_->use_meter(meter_);
  for (const auto& machine : machines_) machine->use_meter(meter_);
}

size_t PushdownMachine::n_bytes() const {
  constexpr size_t kEntry = 48;  // approximate bytes per hash table entry
  size_t n = languages_->n_bytes() + exprs_.n_bytes() + stacks_.n_bytes() + frames_.n_bytes() + contexts_.n_bytes() +
             machine_states_.n_bytes();
  for (const auto& machine : machines_) n += machine->n_bytes();
  return n + rows_.size() * 256 * sizeof(uint32_t) + (states_.size() + ends_.size()) * kEntry + n_heads_ * sizeof(Head);
}

GrammarState PushdownMachine::fresh(GrammarState state) {
  if (is_word(state.place)) {
    const GrammarState inner{place_of(state.place), contexts_[state.frame][0], state.text};
    return {state.place, state.frame, machines_[kind_of(state.place) - 1]->fresh(inner).text};
  }
  Words frame = frames_.copy(state.frame);
  for (size_t i = 1; i < frame.size(); i += 3) {
    if (frame[i] % 2 == 0) continue;
    const Words words = machine_states_.copy(frame[i] / 2);
    const GrammarState inner{words[1], words[2], words[3]};
    if (inner.text != 0) frame[i] = machine_terminal(words[0], machines_[words[0]]->fresh(inner));
  }
  return between(frame);
}

std::optional<std::vector<std::string>> PushdownMachine::repeated_ends(GrammarState state) {
  const GrammarState inner{place_of(state.place), contexts_[state.frame][0], state.text};
  return machines_[kind_of(state.place) - 1]->repeated_ends(inner);
}

bool PushdownMachine::is_string(uint32_t place) const {
  const uint32_t kind = kind_of(place);
  return kind != 0 && machines_[kind - 1]->is_string(place_of(place));
}

bool PushdownMachine::allows_any_text(uint32_t place) const {
  const uint32_t kind = kind_of(place);
  return kind != 0 && machines_[kind - 1]->allows_any_text(place_of(place));
}

uint32_t PushdownMachine::word_outcome(uint32_t place) {
  const uint32_t kind = kind_of(place);
  return kind == 0 ? place : machines_[kind - 1]->word_outcome(place_of(place));
}

GrammarState PushdownMachine::end_word(GrammarState state) {
  const uint32_t kind = kind_of(state.place), place = place_of(state.place);
  if (kind == 0) return end_terminal(2 * place, state.frame);
  const GrammarState next = machines_[kind - 1]->end_word({place, contexts_[state.frame][0], state.text});
  return next.is_dead() ? next : end_terminal(machine_terminal(kind - 1, next), state.frame);
}

std::pair<int, int> PushdownMachine::free_chars(uint32_t place) const {
  const uint32_t kind = kind_of(place);
  return kind == 0 ? std::pair{-1, -1} : machines_[kind - 1]->free_chars(place_of(place));
}

std::vector<Automaton::KnownEnd> PushdownMachine::known_ends(uint32_t place) {
  const uint32_t kind = kind_of(place);
  if (kind == 0) return {};
  std::vector<KnownEnd> ends = machines_[kind - 1]->known_ends(place_of(place));
  for (KnownEnd& end : ends) end.place = word(kind, end.place);
  return ends;
}

uint32_t PushdownMachine::free_place(uint32_t place) {
  const uint32_t kind = kind_of(place);
  return kind == 0 ? place : word(kind, machines_[kind - 1]->free_place(place_of(place)));
}

}  // namespace ingot
