#include "text/grammar/machine/object_search.h"

#include <algorithm>

#include "text/grammar/machine/layout.h"

namespace ingot {

namespace {

constexpr size_t kChoiceWork = 4, kMemberWork = 8;  // in parts of expressions

}  // namespace

Truth SchemaMachine::ObjectSearch::truth_of(uint32_t rule) const {
  const Truth now = m_.object_truth(plan_, start_, rule, false);
  return now == Truth::kUnknown ? target_[rule] : now;
}

// Whether the rules can get the truth that `pending` needs.
bool SchemaMachine::ObjectSearch::assign(Conditions pending) {
  if (n_left_ == 0) return false;
  --n_left_;
  Conditions choices;
  std::vector<uint32_t> trail;  // rules that this call has assigned
  const bool found = settle(pending, choices, trail) && choose(choices);
  for (const uint32_t rule : trail) target_[rule] = Truth::kUnknown;
  return found;
}

// Assigns what follows without a choice. Returns false if there is a contradiction.
bool SchemaMachine::ObjectSearch::settle(Conditions& pending, Conditions& choices, std::vector<uint32_t>& trail) {
  using enum Formulas::Kind;
  while (!pending.empty()) {
    const auto [formula, value] = pending.back();
    pending.pop_back();
    m_.languages_.spend(1);
    const Formulas::Kind kind = m_.formulas_.kind(formula);
    if (kind == kFalse || kind == kTrue) {
      if ((kind == kTrue) != value) return false;
    } else if (kind == kLeaf) {
      const uint32_t rule = m_.formulas_.number(formula);
      const Truth wanted = value ? Truth::kTrue : Truth::kFalse, truth = truth_of(rule);
      if (truth != Truth::kUnknown && truth != wanted) return false;
      if (truth == Truth::kUnknown && value && !open_.empty() && open_[rule] != 0) return false;
      if (truth == Truth::kUnknown) target_[rule] = wanted, trail.push_back(rule);
    } else if (kind == kNot) {
      pending.emplace_back(m_.formulas_.parts(formula)[0], !value);
    } else if ((kind == kAll && value) || (kind == kAny && !value)) {
      for (const Formula part : m_.formulas_.parts(formula)) pending.emplace_back(part, value);
    } else {
      choices.emplace_back(formula, value);
    }
  }
  return true;
}

// Makes the last of the choices, and then the others.
bool SchemaMachine::ObjectSearch::choose(Conditions& choices) {
  using enum Formulas::Kind;
  const auto truth = [&](Formula formula) {
    m_.languages_.spend(kChoiceWork);
    return m_.formulas_.evaluate(formula, [&](uint32_t rule) { return truth_of(rule); });
  };
  while (!choices.empty()) {
    const Truth known = truth(choices.back().first);
    if (known == Truth::kUnknown) break;
    if ((known == Truth::kTrue) != choices.back().second) return false;
    choices.pop_back();
  }
  if (choices.empty()) {
    seen_.clear();
    return add_members(start_);
  }
  const auto [formula, value] = choices.back();
  choices.pop_back();
  const Words parts(m_.formulas_.parts(formula).begin(), m_.formulas_.parts(formula).end());
  const auto attempt = [&](const Conditions& more) {
    m_.languages_.spend(choices.size() + more.size());
    Conditions all = choices;
    all.insert(all.end(), more.begin(), more.end());
    return assign(std::move(all));
  };
  const bool is_one = m_.formulas_.kind(formula) == kOne;
  if (!is_one) {  // one part decides; a part that only forbids something comes first
    for (const bool is_negation : {true, false}) {
      for (const Formula part : parts) {
        if (((m_.formulas_.kind(part) == kNot) == value) == is_negation && attempt({{part, value}})) return true;
      }
    }
    return false;
  }
  const auto others_fail = [&](size_t but) {
    Conditions all;
    for (size_t i = 0; i < parts.size(); ++i) all.emplace_back(parts[i], i == but);
    return all;
  };
  for (size_t i = 0; value && i < parts.size(); ++i) {
    if (attempt(others_fail(i))) return true;
  }
  if (value) return false;
  if (attempt(others_fail(parts.size()))) return true;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (attempt({{parts[i], true}, {parts[k], true}})) return true;
    }
  }
  return false;
}

// Whether the rule can still get its target.
bool SchemaMachine::ObjectSearch::is_allowed(const Words& frame, uint32_t rule) const {
  const Truth now = m_.object_truth(plan_, frame, rule, false);
  return now == Truth::kUnknown || target_[rule] == Truth::kUnknown || now == target_[rule];
}

// Adds members to `frame` until each rule has its target.
bool SchemaMachine::ObjectSearch::add_members(const Words& frame) {
  if (n_left_ == 0) return false;
  --n_left_;
  m_.languages_.spend(kMemberWork + plan_.rules.size() / 8);
  const auto seen = std::span(frame).subspan(kObjectBits + n_words(plan_.rules.size()));
  uint32_t unmet = kNoRule;  // a rule that does not have its target yet
  for (uint32_t r = 0; r < plan_.rules.size(); ++r) {
    if (target_[r] == Truth::kUnknown || m_.object_truth(plan_, frame, r, true) == target_[r]) continue;
    unmet = r;
    if (target_[r] == Truth::kFalse) continue;
    for (const uint32_t name : plan_.required[r]) {
      if (!has_bit(seen, name)) return add(frame, name, kNoRule);  // without a choice
    }
  }
  if (unmet == kNoRule) return true;
  const Words ways = m_.ways_to_go_on(plan_, frame);
  const ObjectRule& rule = m_.table_->objects[plan_.rules[unmet]];
  const bool needs_members = target_[unmet] == Truth::kTrue;
  if (needs_members && plan_.classes.empty() && frame[kObjectCount] + ways.size() < static_cast<size_t>(rule.min))
    return false;
  const bool counts = needs_members || rule.max >= 0;  // any member helps; otherwise one that breaks the rule
  return std::any_of(ways.rbegin(), ways.rend(),
                     [&](uint32_t way) { return add(frame, way, counts ? kNoRule : unmet); });
}

// Adds the member `way` (ways_to_go_on), which must break the rule `broken`, and then others.
bool SchemaMachine::ObjectSearch::add(const Words& frame, uint32_t way, uint32_t broken) {
  m_.languages_.spend(kMemberWork + plan_.rules.size());
  const auto n_names = static_cast<uint32_t>(plan_.names.size());
  const bool is_named = way < n_names;
  if (is_named && (plan_.is_unsure[way] || (!m_.options_.any_order && way < start_[kObjectOrder]))) return false;
  Words words = frame, link;
  std::string text;
  if (is_named) {
    text = plan_.names[way];
  } else if (plan_.tracks_names || json_ != nullptr) {
    const auto free = m_.languages_.example(m_.without_names(plan_.classes[way - n_names].names, frame, true));
    if (!free) return false;
    text = *free;
    if (plan_.tracks_names) m_.add_seen_name(words, m_.canonical(json_string(text)));
  }
  const std::vector<bool>& matched = is_named ? plan_.name_matches[way] : plan_.classes[way - n_names].matched;
  const uint32_t child = m_.begin_member(words, is_named ? static_cast<int>(way) : -1, matched, link, false);
  for (uint32_t r = 0; r < link.size(); ++r) {  // the other goals have no effect on the targets
    if (target_[r] == Truth::kUnknown) link[r] = 0;
  }
  return m_.each_outcome(child, [&](const Outcome& met, bool is_whole) {
    m_.languages_.spend(1 + plan_.rules.size() / 4);
    Words after = words;
    m_.note_member(after, link, met);
    const Words open = open_links(link, met);
    for (uint32_t r = 0; r < plan_.rules.size(); ++r) {
      if (!is_allowed(after, r)) return Visit::kSkip;
    }
    if (broken != kNoRule && link[broken] == 0 && m_.object_truth(plan_, after, broken, true) == Truth::kTrue)
      return Visit::kSkip;
    if (!is_whole && std::ranges::any_of(open, [](uint32_t goal) { return goal != 0; })) return Visit::kSplit;
    if (broken != kNoRule && m_.object_truth(plan_, after, broken, true) == Truth::kTrue) return Visit::kSkip;
    if (!seen_.insert(m_.frames_.intern(after)).second) return Visit::kSkip;
    std::optional<std::string> value;
    if (json_ != nullptr && !(value = m_.example_of(m_.with_outcome(child, met)))) return Visit::kSkip;
    if (!add_members(after)) return Visit::kSkip;
    if (json_ != nullptr) *json_ += (json_->empty() ? "" : ",") + json_string(text) + ":" + *value;
    return Visit::kStop;
  });
}

}  // namespace ingot
