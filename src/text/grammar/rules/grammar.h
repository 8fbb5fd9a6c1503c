// Grammar: a context-free grammar, as rules over terminals. A terminal is a regular language of bytes, or another
// machine (for example, a JSON Schema inside a tool call). Readers of text (gbnf.cc, lark.cc) and C++ code build
// grammars in the same way. pushdown.h runs a grammar.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/grammar/languages/automaton.h"
#include "text/grammar/languages/regular.h"

namespace ingot {

class Grammar {
 public:
  using Part = uint32_t;
  using Rule = uint32_t;
  using Language = RegularLanguages::Id;
  static constexpr int kNoLimit = RegularLanguages::kNoLimit;
  enum class Kind : uint8_t { kLanguage, kMachine, kRule, kSequence, kChoice, kRepeat };

  Grammar() { languages_->meter()->limit(WorkMeter::kMaxCompileWork); }

  Part language(Language id);
  Part literal(std::string_view text);
  Part regex(std::string_view pattern);        // ECMA 262; must match the whole part
  Part text_without(std::string_view marker);  // any text that does not contain `marker`
  Part text_until(std::string_view marker);    // any text up to and including the first `marker`
  Part embed(std::unique_ptr<Automaton> machine);
  Part sequence(std::vector<Part> parts);
  Part choice(std::vector<Part> parts);
  Part repeat(Part part, int min, int max);  // max may be kNoLimit

  // A rule may be used before its definition.
  Rule rule(std::string_view name);
  Part refer(Rule rule);
  // where: the rule's place in the source text, for messages.
  void define(Rule rule, Part body, std::string where = "the grammar");
  bool is_defined(Rule rule) const { return rules_[rule].body != kUndefined; }
  void set_root(Part root) { root_ = root; }

  RegularLanguages& languages() { return *languages_; }

  // The members below are for the machine that runs the grammar.
  struct Node {
    Kind kind;
    uint16_t depth;   // nesting depth of parts
    uint32_t id = 0;  // of the language, machine or rule
    int min = 0, max = 0;
    std::vector<Part> parts;
  };
  struct Facts {                     // indexed by part
    std::vector<Language> language;  // kNone if the part is not regular or too large
    std::vector<bool> has_empty, is_productive;
  };
  static constexpr Language kNone = UINT32_MAX;
  // Rewrites left-recursive rules as repetitions, then computes the facts. Throws Error if a rule is not defined or if
  // no text matches the grammar.
  Facts finish();
  const Node& node(Part part) const { return nodes_[part]; }
  Part root() const { return root_; }
  Part body(Rule rule) const { return rules_[rule].body; }
  const std::string& name(Rule rule) const { return rules_[rule].name; }
  const std::string& where(Rule rule) const { return rules_[rule].where; }
  size_t n_rules() const { return rules_.size(); }
  std::vector<std::unique_ptr<Automaton>>& machines() { return machines_; }
  std::unique_ptr<RegularLanguages> take_languages() { return std::move(languages_); }
  // The depth of the expression of a part's language. Parts deeper than kMaxWeight stay rules, because recursive
  // functions walk languages.
  uint32_t weight(Part part) const { return weights_[part]; }
  static constexpr uint32_t kMaxWeight = 256;

 private:
  static constexpr Part kUndefined = UINT32_MAX;
  struct RuleEntry {
    std::string name, where;
    Part body = kUndefined;
  };
  Part add(Node node);
  void rewrite_left_recursion(Rule rule);
  void add_alternatives(Part part, std::vector<Part>& out) const;
  void flatten_sequence(Part part, std::vector<Part>& out) const;
  template <class Needs, class Accept>
  void propagate(const Needs& needs, const Accept& accept) const;
  std::vector<bool> find(bool is_about_empty);
  Language fold(Part part, const Facts& facts);

  std::unique_ptr<RegularLanguages> languages_ = std::make_unique<RegularLanguages>(1 << 18);
  std::vector<Node> nodes_;
  std::vector<uint32_t> weights_;
  std::vector<RuleEntry> rules_;
  std::unordered_map<std::string, Rule> rule_index_;
  std::vector<std::unique_ptr<Automaton>> machines_;
  Part root_ = kUndefined;
};

}  // namespace ingot
