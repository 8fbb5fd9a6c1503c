// PushdownMachine: runs a context-free grammar byte by byte. The machine follows all ways to read the text in parallel.
// Each way consists of the terminal that is being read, the rest of its rule, and a stack with the rests of the calling
// rules. Ways that enter a rule at the same byte share one stack from then on (a graph-structured stack; Tomita, "An
// efficient context-free parsing algorithm for natural languages", 1985). So memory does not grow exponentially for
// ambiguous grammars.
#pragma once
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/grammar/languages/automaton.h"
#include "text/grammar/languages/intern.h"
#include "text/grammar/rules/grammar.h"

namespace ingot {

class PushdownMachine final : public Automaton {
 public:
  // Throws Error if a rule is left-recursive through other rules.
  explicit PushdownMachine(Grammar grammar);

  void use_meter(const SharedMeter& meter) override;
  size_t n_bytes() const override;
  GrammarState start() override { return start_; }
  GrammarState step(GrammarState state, uint8_t byte) override;
  bool accepts(GrammarState state) override;
  // Words exist only where there is one way to read the text. A word is a terminal up to the first position where the
  // terminal may end, or a word of an embedded machine.
  bool is_word(uint32_t place) const override { return place >= kFirstWord; }
  uint32_t step_word(uint32_t place, uint8_t byte) override;
  bool is_string(uint32_t place) const override;
  bool allows_any_text(uint32_t place) const override;
  uint32_t word_outcome(uint32_t place) override;
  GrammarState end_word(GrammarState state) override;
  std::pair<int, int> free_chars(uint32_t place) const override;
  std::vector<KnownEnd> known_ends(uint32_t place) override;
  uint32_t free_place(uint32_t place) override;
  GrammarState fresh(GrammarState state) override;
  std::optional<std::vector<std::string>> repeated_ends(GrammarState state) override;

 private:
  using Expr = uint32_t;   // the rest of a rule: a part of its body, or the remainder of a part
  using Stack = uint32_t;  // a set of pairs (expression to continue with, its stack)
  using Language = RegularLanguages::Id;
  using Words = std::vector<uint32_t>;
  static constexpr uint32_t kBetween = 3, kFirstWord = 16;
  static constexpr Expr kNothing = 0, kEmpty = 1, kAccept = UINT32_MAX;
  enum ExprKind : uint32_t { kLanguage = 2, kMachine, kRule, kSequence, kChoice, kRepeat };

  // A symbol that may begin an expression, and the rest of the expression.
  struct Head {
    ExprKind kind;
    uint32_t id;
    Expr rest;
  };
  struct RuleBody {
    Expr body = kNothing;
    int rank = -1;  // a rule begins only with rules of higher ranks
  };
  // One way to read the text. `terminal`: 2 * language, or 1 + 2 * state of a machine.
  struct Item {
    uint32_t terminal;
    Expr rest;
    Stack stack;
    auto operator<=>(const Item&) const = default;
  };
  // The result of a byte while it is computed.
  struct Closure {
    std::vector<Item> items;
    std::map<int, Words> entered;  // by rank of the rule: pairs (rest, stack) of the ways that enter it
    std::unordered_set<uint64_t> seen;
    bool accepts = false;
  };

  // Expressions.
  Expr expr(const Words& words, bool has_empty);
  Expr build(Grammar& grammar, const Grammar::Facts& facts, Grammar::Part part);
  Expr build_sequence(Grammar& grammar, const Grammar::Facts& facts, std::span<const Grammar::Part> parts);
  Expr sequence(Expr first, Expr second);
  Expr repeat(Expr part, int min, int max);
  const std::vector<Head>& heads(Expr id);
  std::vector<Head> find_heads(Expr id);
  void rank_rules(const Grammar& grammar);

  // States.
  void spend(size_t n_parts);
  void go_on(Closure& closure, Expr rest, Stack stack);
  void add_heads(Closure& closure, Expr id, Stack stack);
  void add_terminal(Closure& closure, const Item& item);
  Stack intern_stack(Words& callers);
  void count_words(size_t n);
  GrammarState close(Closure& closure);
  GrammarState between(const Words& frame);
  GrammarState word_state(const Item& item);
  GrammarState find_step(uint32_t frame, uint8_t byte);
  GrammarState end_terminal(uint32_t terminal, uint32_t context);
  uint32_t machine_terminal(uint32_t machine, GrammarState state);
  uint32_t word(uint32_t kind, uint32_t place) const;
  uint32_t kind_of(uint32_t place) const { return (place - kFirstWord) % n_kinds_; }  // 0: a language; n: machine n - 1
  uint32_t place_of(uint32_t place) const { return (place - kFirstWord) / n_kinds_; }
  bool can_be_word(uint32_t machine, GrammarState state);
  uint32_t number_of(GrammarState state);

  std::unique_ptr<RegularLanguages> languages_;
  std::vector<std::unique_ptr<Automaton>> machines_;
  std::vector<GrammarState> machine_starts_;
  uint32_t n_kinds_ = 1;
  std::vector<RuleBody> rules_;
  std::vector<uint32_t> rule_of_rank_;
  WordLists exprs_{1 << 19, "positions"};
  std::vector<bool> has_empty_;
  std::deque<std::unique_ptr<std::vector<Head>>> heads_;
  size_t n_heads_ = 0;
  WordLists stacks_{1 << 20, "stacks"};
  std::vector<uint32_t> depths_;  // [stack]
  size_t n_words_ = 0;            // in all stacks and frames
  size_t n_parse_parts_ = 0;      // of parses, not yet in the meter
  WordLists frames_{1 << 20, "sets of configurations"}, contexts_{1 << 20, "configurations"};
  WordLists machine_states_{1 << 22, "states of machines"};
  std::vector<GrammarState> states_;
  std::unordered_map<GrammarState, uint32_t> state_index_;
  std::unordered_map<uint32_t, std::unique_ptr<std::array<uint32_t, 256>>> rows_;
  std::unordered_map<uint64_t, GrammarState> ends_;
  GrammarState start_;
};

}  // namespace ingot
