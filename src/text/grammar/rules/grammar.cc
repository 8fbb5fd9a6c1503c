#include "text/grammar/rules/grammar.h"

#include <algorithm>

#include "base/error.h"
#include "text/grammar/languages/regex.h"

namespace ingot {

namespace {

constexpr size_t kMaxParts = 1 << 19, kMaxRules = 10000;
constexpr int kMaxRuleDepth = 1024;

}  // namespace

// ---- Building

Grammar::Part Grammar::add(Node node) {
  if (nodes_.size() >= kMaxParts) throw Error("the grammar is too large: it has more than {} parts", kMaxParts);
  int depth = 0;
  for (Part part : node.parts) depth = std::max(depth, nodes_[part].depth + 1);
  if (depth > kMaxRuleDepth) throw Error("the grammar nests groups deeper than {}", kMaxRuleDepth);
  node.depth = static_cast<uint16_t>(depth);
  nodes_.push_back(std::move(node));
  weights_.push_back(1);
  return static_cast<Part>(nodes_.size() - 1);
}

Grammar::Part Grammar::language(Language id) { return add({Kind::kLanguage, 0, id}); }

Grammar::Part Grammar::literal(std::string_view text) {
  const Part part = language(languages_->literal(text));
  weights_[part] = static_cast<uint32_t>(text.size() + 1);
  return part;
}

Grammar::Part Grammar::regex(std::string_view pattern) {
  const Part part = language(parse_regex(*languages_, pattern, RegexMatch::kWhole));
  weights_[part] = static_cast<uint32_t>(pattern.size());
  return part;
}

Grammar::Part Grammar::text_without(std::string_view marker) {
  RegularLanguages& l = *languages_;
  const Language any = RegularLanguages::kAnything;
  return language(l.all_of({l.any_text(), l.complement(l.concat(any, l.concat(l.literal(marker), any)))}));
}

Grammar::Part Grammar::text_until(std::string_view marker) {
  RegularLanguages& l = *languages_;
  const Language text = l.literal(marker), any_byte = l.bytes(ByteSet().set());
  const Language earlier = l.concat(RegularLanguages::kAnything, l.concat(text, l.repeat(any_byte, 1, kNoLimit)));
  return language(l.all_of({l.concat(l.any_text(), text), l.complement(earlier)}));
}

Grammar::Part Grammar::embed(std::unique_ptr<Automaton> machine) {
  machines_.push_back(std::move(machine));
  return add({Kind::kMachine, 0, static_cast<uint32_t>(machines_.size() - 1)});
}

Grammar::Part Grammar::sequence(std::vector<Part> parts) {
  return parts.size() == 1 ? parts[0] : add({Kind::kSequence, 0, 0, 0, 0, std::move(parts)});
}

Grammar::Part Grammar::choice(std::vector<Part> parts) {
  return parts.size() == 1 ? parts[0] : add({Kind::kChoice, 0, 0, 0, 0, std::move(parts)});
}

Grammar::Part Grammar::repeat(Part part, int min, int max) { return add({Kind::kRepeat, 0, 0, min, max, {part}}); }

Grammar::Rule Grammar::rule(std::string_view name) {
  const auto [it, is_new] = rule_index_.try_emplace(std::string(name), static_cast<Rule>(rules_.size()));
  if (is_new) {
    if (rules_.size() >= kMaxRules) throw Error("the grammar is too large: it has more than {} rules", kMaxRules);
    rules_.push_back({.name = std::string(name)});
  }
  return it->second;
}

Grammar::Part Grammar::refer(Rule rule) { return add({Kind::kRule, 0, rule}); }
void Grammar::define(Rule rule, Part body, std::string where) {
  rules_[rule].body = body;
  rules_[rule].where = std::move(where);
}

// ---- Left recursion: R = R x | y is R = y x*

void Grammar::add_alternatives(Part part, std::vector<Part>& out) const {
  if (nodes_[part].kind != Kind::kChoice) return out.push_back(part);
  for (Part inner : nodes_[part].parts) add_alternatives(inner, out);
}

void Grammar::flatten_sequence(Part part, std::vector<Part>& out) const {
  if (nodes_[part].kind != Kind::kSequence) return out.push_back(part);
  for (Part inner : nodes_[part].parts) flatten_sequence(inner, out);
}

void Grammar::rewrite_left_recursion(Rule rule) {
  std::vector<Part> alternatives, others, tails;
  add_alternatives(rules_[rule].body, alternatives);
  for (Part alternative : alternatives) {
    std::vector<Part> parts;
    flatten_sequence(alternative, parts);
    const bool is_recursive = !parts.empty() && nodes_[parts[0]].kind == Kind::kRule && nodes_[parts[0]].id == rule;
    if (is_recursive) {
      parts.erase(parts.begin());
      tails.push_back(sequence(std::move(parts)));
    } else {
      others.push_back(alternative);
    }
  }
  if (!tails.empty()) rules_[rule].body = sequence({choice(others), repeat(choice(tails), 0, kNoLimit)});
}

// ---- Facts about parts, computed from the leaves upwards

// Calls accept(part) once the fact holds for needs(part) of the part's inner parts.
template <class Needs, class Accept>
void Grammar::propagate(const Needs& needs, const Accept& accept) const {
  std::vector<std::vector<Part>> users(nodes_.size());
  std::vector<size_t> missing(nodes_.size());
  std::vector<bool> is_done(nodes_.size());
  std::vector<Part> ready;
  for (Part part = 0; part < nodes_.size(); ++part) {
    const Node& node = nodes_[part];
    for (Part inner : node.parts) users[inner].push_back(part);
    if (node.kind == Kind::kRule) users[rules_[node.id].body].push_back(part);
    missing[part] = needs(part);
    if (missing[part] == 0) ready.push_back(part);
  }
  while (!ready.empty()) {
    const Part part = ready.back();
    ready.pop_back();
    if (is_done[part] || !accept(part)) continue;
    is_done[part] = true;
    for (Part user : users[part]) {
      if (missing[user] > 0 && --missing[user] == 0) ready.push_back(user);
    }
  }
}

// is_about_empty: the parts that match the empty text. Otherwise: the parts that match any text at all.
std::vector<bool> Grammar::find(bool is_about_empty) {
  std::vector<bool> found(nodes_.size());
  const auto needs = [&](Part part) -> size_t {
    const Node& node = nodes_[part];
    switch (node.kind) {
      case Kind::kSequence: return node.parts.size();
      case Kind::kChoice: return node.parts.empty() ? SIZE_MAX : 1;
      case Kind::kRepeat: return node.min == 0 ? 0 : 1;
      case Kind::kRule: return 1;
      default: return 0;
    }
  };
  propagate(needs, [&](Part part) {
    const Node& node = nodes_[part];
    bool holds = true;
    if (node.kind == Kind::kLanguage) {
      holds = is_about_empty ? languages_->has_empty(node.id) : languages_->is_live(node.id);
    } else if (node.kind == Kind::kMachine && is_about_empty) {
      holds = machines_[node.id]->accepts(machines_[node.id]->start());
    }
    return found[part] = holds;
  });
  return found;
}

Grammar::Language Grammar::fold(Part part, const Facts& facts) {
  const Node& node = nodes_[part];
  if (node.kind == Kind::kLanguage) return node.id;
  const std::vector<Part> inner = node.kind == Kind::kRule ? std::vector{rules_[node.id].body} : node.parts;
  uint64_t weight = 0;
  std::vector<Language> languages;
  for (Part one : inner) {
    weight = node.kind == Kind::kSequence ? weight + weights_[one] : std::max<uint64_t>(weight, weights_[one] + 1);
    languages.push_back(facts.language[one]);
  }
  if (weight > kMaxWeight) return kNone;
  weights_[part] = std::max<uint32_t>(1, static_cast<uint32_t>(weight));
  switch (node.kind) {
    case Kind::kSequence: {
      Language id = RegularLanguages::kEmpty;
      for (size_t i = languages.size(); i-- > 0;) id = languages_->concat(languages[i], id);
      return id;
    }
    case Kind::kChoice: return languages_->any_of(std::move(languages));
    case Kind::kRepeat: return languages_->repeat(languages[0], node.min, node.max);
    default: return languages[0];
  }
}

Grammar::Facts Grammar::finish() {
  for (const RuleEntry& rule : rules_) {
    if (rule.body == kUndefined) throw Error("the grammar: the rule '{}' is not defined", printable(rule.name));
  }
  for (Rule rule = 0; rule < rules_.size(); ++rule) rewrite_left_recursion(rule);
  Facts facts;
  facts.language.assign(nodes_.size(), Language{kNone});
  facts.has_empty = find(true);
  facts.is_productive = find(false);
  if (!facts.is_productive[root_]) {
    Part first = root_;  // the rule at which the text begins, if any
    while (nodes_[first].kind == Kind::kSequence && !nodes_[first].parts.empty()) first = nodes_[first].parts.back();
    const bool has_place = nodes_[first].kind == Kind::kRule;
    throw Error("{}: no text can match", has_place ? rules_[nodes_[first].id].where : "the grammar");
  }
  const auto needs = [&](Part part) -> size_t {
    const Node& node = nodes_[part];
    return node.kind == Kind::kMachine ? SIZE_MAX : node.kind == Kind::kRule ? 1 : node.parts.size();
  };
  propagate(needs, [&](Part part) { return (facts.language[part] = fold(part, facts)) != kNone; });
  return facts;
}

}  // namespace ingot
