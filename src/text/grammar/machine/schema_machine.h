// SchemaMachine: reads JSON byte by byte and decides after each byte whether the text can still become a value that a
// schema allows.
//
// The machine follows all parts of the schema in parallel. A value has goals: formulas over schemas. When the first
// byte of the value shows its type, the goals become formulas over rules of that type. For a scalar, the result is one
// regular language. For an object or array, the result is a set of rules that hold so far. Each member has its own
// goals, one for each rule that mentions the member. When the member ends, each rule whose goal was missed is broken.
// The enclosing values determine which goals are needed. So a byte after which no choice of rules can succeed is
// refused at once.
#pragma once
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/grammar/languages/automaton.h"
#include "text/grammar/languages/intern.h"
#include "text/grammar/languages/json_word.h"
#include "text/grammar/schema/schema.h"

namespace ingot {

struct MachineOptions {
  bool any_order = false;    // allow any order of members; otherwise the schema's order, then other members
  bool is_compact = false;   // no white space between values
  uint32_t max_blanks = 16;  // bytes of white space in a row; keeps a model from endless white space
};

class SchemaMachine final : public Automaton {
 public:
  SchemaMachine(std::unique_ptr<SchemaTable> table, MachineOptions options);

  void use_meter(const SharedMeter& meter) override;
  size_t n_bytes() const override;
  GrammarState start() override;
  GrammarState step(GrammarState state, uint8_t byte) override;
  std::string where(GrammarState state) const override;
  bool accepts(GrammarState state) override;
  bool is_word(uint32_t place) const override { return place >= kFirstWord; }
  uint32_t step_word(uint32_t place, uint8_t byte) override { return word_row(place)[byte]; }
  bool is_string(uint32_t place) const override;
  bool allows_any_text(uint32_t place) const override;
  uint32_t word_outcome(uint32_t place) override;
  GrammarState end_word(GrammarState state) override;
  std::pair<int, int> free_chars(uint32_t place) const override;
  std::vector<KnownEnd> known_ends(uint32_t place) override;
  uint32_t free_place(uint32_t place) override;
  GrammarState fresh(GrammarState state) override;
  std::optional<std::vector<std::string>> repeated_ends(GrammarState state) override;

  const SchemaTable& table() const { return *table_; }

 private:
  using Language = RegularLanguages::Id;
  using Formula = Formulas::Id;
  using Words = std::vector<uint32_t>;
  using Outcome = std::vector<Truth>;  // [goal]: whether a value meets the goal; kUnknown: open

  // Places between words: the kind of the place, and in higher bits a count of the white space read so far.
  enum Place : uint32_t {
    kPlaceDead = 0,
    kValue = 3,
    kFirstItem,
    kNextItem,
    kFirstName,
    kNextName,
    kColon,
    kAfterValue,
    kDone,
    kPlaceKinds = 16
  };
  static constexpr uint32_t kFirstWord = 1 << 12;
  static constexpr uint32_t kMaxBlanks = (kFirstWord - kPlaceKinds) / kPlaceKinds - 2;  // limit of the count
  static constexpr size_t kMaxTexts = 1 << 24;

  // The conditions on a value: goals, which are formulas over schemas, and `need`, a formula over goals that must hold.
  struct ValuePlan {
    std::vector<Formula> goals;
    Formula need = Formulas::kTrue;
    bool is_single = false;  // one goal, which must be met, so its result need not be stored
    int8_t is_possible = -1;
    uint32_t depth = 0;  // of the search that is_possible() makes for this plan now; 0: none
    bool has_open_example = false;
    std::array<uint32_t, kScalarTypes> words{};  // first places; UINT32_MAX until built
    int object = -1, array = -1;                 // plans; -1 until built
  };
  // Leaves of `goals` and `need` are rules, by their index in `rules`.
  struct ObjectPlan {
    std::vector<Formula> goals;
    Formula need = Formulas::kTrue;
    std::vector<int> rules;
    std::vector<std::string> names;               // the names in any rule, in order
    std::vector<Words> required;                  // [rule]: required names
    std::vector<Words> bound;                     // [rule]: names with a schema of the rule
    Words binding;                                // rules that more members can break
    std::vector<Language> patterns;               // patterns of names that decide which schemas a member has
    std::vector<Words> schemas;                   // [rule][name]: the rule's schema for the name, or UINT32_MAX
    std::vector<std::vector<bool>> name_matches;  // [name][pattern]
    std::vector<bool> is_unsure;                  // [name]: whether a rule on names may or may not allow the name
    struct NameClass {                            // names that no rule mentions, by the patterns that they match
      std::vector<bool> matched;
      Language names;
      int8_t is_possible = -1;  // whether a member's value is possible, in a plan of one rule; -1: unknown
    };
    std::vector<NameClass> classes;
    bool has_free_names = false;  // any text is a name that breaks no rule
    uint32_t max_count = 0;       // the member count stops here
    bool counts = false, tracks_names = false;
    bool is_ascii = true;  // no name needs an escape
    struct Node {
      std::map<uint8_t, uint32_t> next;
      int name = -1;
      uint32_t depth = 0;
      uint32_t first = 0, last = 0;  // names below the node, as a range of `sorted`
    };
    std::vector<Node> nodes;  // the names as a tree
    Words sorted;
    Words node_of;              // [name]
    std::vector<int8_t> child;  // [name]: whether its value is possible, in a plan of one rule; -1: unknown
  };
  struct ArrayPlan {
    std::vector<Formula> goals;
    Formula need = Formulas::kTrue;
    std::vector<int> rules;
    uint32_t max_count = 0;  // the item count stops here
    bool is_unique = false;
    bool is_monotone = true;  // a rule that is broken never makes the array valid
  };
  struct NameSet {
    uint32_t plan = 0;
    std::vector<bool> allowed;  // [name]
    Words below;                // how many of the first i names of `sorted` are allowed
    Language others = 0;        // the allowed names that no rule mentions
    bool any = false;
    bool is_free = false;  // other names may be any text, and the names are plain ASCII
  };

  // Plans.
  uint32_t value_plan(std::vector<Formula> goals, Formula need);
  Formula typed(Formula schemas, JsonType type);
  Formula typed_schema(SchemaId id, JsonType type);
  Language language_of(Formula typed, JsonType type);
  Language unsure(Formula typed, JsonType type);
  uint32_t first_word(uint32_t plan, JsonType type);
  ObjectPlan& object_plan(uint32_t plan);
  ArrayPlan& array_plan(uint32_t plan);
  bool is_monotone(Formula formula) const;
  void name_tree(ObjectPlan& plan);
  void name_classes(ObjectPlan& plan);
  template <class Plan>
  void take_rules(uint32_t value, JsonType type, Plan& plan);

  // Frames.
  GrammarState begin_value(uint32_t slot, uint8_t byte, uint32_t text);
  GrammarState end_value(uint32_t slot, const Outcome& met, uint32_t text);
  GrammarState close_object(uint32_t frame, uint32_t text);
  GrammarState close_array(uint32_t frame, uint32_t text);
  Truth object_truth(const ObjectPlan& plan, std::span<const uint32_t> frame, uint32_t rule, bool is_final) const;
  Truth array_truth(const ArrayPlan& plan, std::span<const uint32_t> frame, uint32_t rule, bool is_final) const;
  bool can_meet(std::span<const uint32_t> frame) const;  // whether some choice of rules still holds
  uint32_t enter_member(uint32_t frame, int name, const std::vector<bool>& matched, uint32_t text);
  uint32_t enter_item(uint32_t frame, uint32_t text);
  uint32_t begin_item(Words& frame, Words& link, Words& contains);
  void note_member(Words& frame, std::span<const uint32_t> link, const Outcome& met) const;
  void note_item(Words& frame, std::span<const uint32_t> link, std::span<const uint32_t> contains,
                 const Outcome& met) const;
  void note_value(Words& frame, uint32_t value) const;
  bool must_differ(const ArrayPlan& plan, std::span<const uint32_t> frame) const;
  Words seen_values(std::span<const uint32_t> frame) const;
  uint32_t without_seen(uint32_t place, std::span<const uint32_t> frame);
  static bool may_have_to_repeat(std::pair<int, int> counts, const std::string& text);
  bool has_unseen(uint32_t plan, std::span<const uint32_t> frame);
  static std::string string_of(const std::string& json);  // the content of a JSON string
  static std::string json_string(const std::string& text);
  static bool is_structure(const std::string& json) { return json[0] == '{' || json[0] == '['; }
  Formula schema_formula(SchemaId id);
  Formula member_formula(const ObjectPlan& plan, uint32_t rule, int name, const std::vector<bool>& matched);
  uint32_t begin_member(Words& frame, int name, const std::vector<bool>& matched, Words& link, bool in_order);
  uint32_t plan_member(Words& frame, int name, const std::vector<bool>& matched, Words& link);
  bool can_only_hold(const ObjectPlan& plan, const ObjectRule& rule, uint32_t r, std::span<const uint32_t> frame) const;
  uint32_t child_plan(Formula need, const std::vector<Formula>& per_rule, const std::vector<bool>& can_fail_later,
                      const std::vector<Truth>& now, std::vector<Formula> goals, Words& link);
  const NameSet& name_set(uint32_t frame);
  uint32_t name_set_id(uint32_t frame);
  void allow_names(ObjectPlan& plan, const Words& frame, NameSet& set);
  bool allows_plainly(ObjectPlan& plan, const Words& frame, uint32_t name, uint32_t n_missing, uint32_t first_missing);
  uint32_t next_node(const NameSet& set, uint32_t node, uint8_t byte) const;
  bool allows_below(const NameSet& set, uint32_t node) const;
  Language without_names(Language names, std::span<const uint32_t> frame, bool is_exact);
  std::span<const uint32_t> seen_names(std::span<const uint32_t> frame) const;
  bool add_seen_name(Words& frame, uint32_t name) const;

  // Whether values can become complete (life.cc).
  struct Added {
    uint32_t frame;    // after one more item
    std::string text;  // of the item
  };
  static constexpr std::string_view kNowhere = "schema";
  std::string_view where_is(uint32_t plan) const;  // path and keyword of a rule of the plan
  bool is_possible(uint32_t plan);
  bool find_possible(uint32_t plan);
  bool can_be(uint32_t plan, JsonType type);
  Words first_frame(uint32_t plan, uint32_t slot, JsonType type, uint32_t text);
  bool can_end(const Words& frame) const;
  bool can_finish(Words frame);
  class ObjectSearch;  // object_search.h
  bool search_items(uint32_t first, std::string* json);
  std::vector<Added> next_items(uint32_t frame, bool has_text);
  Words ways_to_go_on(const ObjectPlan& plan, std::span<const uint32_t> frame) const;
  uint32_t with_values(uint32_t plan, std::span<const uint32_t> items, bool equals);
  Formula equals_any(std::vector<Formula>& goals, std::span<const uint32_t> items);
  uint32_t with_outcome(uint32_t plan, const Outcome& met);
  Formula outcome_formula(const Outcome& met);
  enum class Visit : uint8_t { kSplit, kSkip, kStop };
  std::optional<std::vector<Outcome>> few_outcomes(uint32_t plan);
  template <class Visitor>
  bool each_outcome(uint32_t plan, const Visitor& visit);
  std::optional<std::string> example_of(uint32_t plan);
  bool is_sure(const Words& frame, std::span<const uint32_t> link);
  bool is_sure_array(const Words& frame, std::span<const uint32_t> link);
  template <class Judge>
  uint32_t keep_outcomes(uint32_t plan, const Judge& judge);
  Truth judge(const Words& after, std::span<const uint32_t> open_link, bool is_whole);
  static Words open_links(const Words& link, const Outcome& met);
  uint32_t only_finishing(const Words& frame, uint32_t child, const Words& link);
  uint32_t only_finishing_items(const Words& frame, uint32_t child, const Words& link, const Words& contains);
  size_t n_needed(const ArrayPlan& plan, std::span<const uint32_t> frame) const;
  uint32_t without_later_values(const Words& frame, uint32_t child, const Words& link, const Words& contains);
  uint32_t only_finishing_values(const Words& frame, uint32_t child, const Words& link, const Words& contains);

  // Words.
  uint32_t word(Words words) { return kFirstWord + words_.intern(words); }
  const std::array<uint32_t, 256>& word_row(uint32_t place);
  std::unique_ptr<std::array<uint32_t, 256>> make_row(const Words& word);
  struct ByteGroups {
    std::array<uint8_t, 256> of{};
    size_t n = 1;
  };
  ByteGroups groups_of(const Words& word);
  uint32_t next_word(const Words& word, uint8_t byte);
  uint32_t advance(Words word, const uint8_t* bytes, int n);
  uint32_t begin_name(uint32_t frame);
  GrammarState find_end(GrammarState state);
  GrammarState end_name(GrammarState state);

  GrammarState step_between(GrammarState state, uint8_t byte);
  GrammarState find_step(GrammarState state, uint8_t byte);
  uint32_t add_blank(GrammarState state, uint8_t byte);
  uint32_t add_text(uint32_t text, uint8_t byte);
  std::string text_between(uint32_t from, uint32_t to) const;
  uint32_t canonical(const std::string& json);

  std::unique_ptr<SchemaTable> table_;
  MachineOptions options_;
  RegularLanguages& languages_;
  Formulas& formulas_;
  std::vector<ValuePlan> values_;
  WordLists value_index_{1 << 20, "goals"};
  std::vector<std::unique_ptr<ObjectPlan>> objects_;
  std::vector<std::unique_ptr<ArrayPlan>> arrays_;
  std::unordered_map<uint64_t, Formula> typed_;
  std::unordered_map<uint64_t, Language> typed_languages_;
  WordLists frames_{1 << 22, "frames"}, words_{1 << 20, "words"};
  std::vector<std::unique_ptr<std::array<uint32_t, 256>>> rows_;
  size_t n_rows_ = 0;
  std::vector<std::unique_ptr<NameSet>> name_sets_;
  std::unordered_map<uint32_t, uint32_t> set_of_frame_;
  std::map<Words, uint32_t> set_index_;
  std::unordered_map<uint32_t, bool> can_finish_;         // [frame]
  std::unordered_map<uint32_t, Formula> value_formulas_;  // [canonical number]: to equal this value
  uint32_t n_open_ = 0;                                   // searches of is_possible() in progress
  uint32_t last_searched_ = 0;                            // the value whose possibility was searched last
  uint32_t lowest_assumed_ = UINT32_MAX;  // the lowest depth of a plan that a search has assumed to be impossible
  std::unordered_map<uint64_t, GrammarState> steps_;
  std::unordered_map<GrammarState, GrammarState> word_ends_;
  // A tree of texts: the text before, and a byte. The first ones are none, kFirstText, kFreshText and kPastFresh.
  std::vector<std::pair<uint32_t, uint8_t>> texts_{4};
  std::unordered_map<uint64_t, uint32_t> text_index_;
  std::map<std::string, uint32_t> canonical_;
  std::vector<std::string> canonical_texts_{""};  // indexed by the number that canonical() returned
  uint32_t root_slot_ = 0;
};

// Compiles the JSON text of a schema. Throws Error.
std::unique_ptr<SchemaMachine> compile_schema(std::string_view json, const SchemaOptions& schema,
                                              const MachineOptions& options);

// Visits the combinations of goals that values of the plan can meet: visit(met, is_whole). `met` is whole, or its last
// goals are open; kSplit: visit its two continuations. Returns true if a visit stopped.
template <class Visitor>
bool SchemaMachine::each_outcome(uint32_t plan, const Visitor& visit) {
  const std::vector<Formula> goals = values_[plan].goals;
  Outcome met(goals.size(), Truth::kUnknown);
  if (!is_possible(plan)) return false;
  if (const Visit first = visit(met, goals.empty()); first != Visit::kSplit) return first == Visit::kStop;
  if (const auto few = few_outcomes(plan)) {
    return std::ranges::any_of(*few, [&](const Outcome& one) { return visit(one, true) == Visit::kStop; });
  }
  const auto split = [&](auto& self, uint32_t n, Formula need) -> bool {  // values that meet `need` are possible
    if (n > 0) {
      const Visit next = visit(met, n == goals.size());
      if (next != Visit::kSplit) return next == Visit::kStop;
    }
    const Formula goal = formulas_.leaf(n), with = formulas_.all({need, goal}),
                  without = formulas_.all({need, formulas_.negation(goal)});
    const bool can_meet = is_possible(value_plan(goals, with));
    const bool can_miss = !can_meet || is_possible(value_plan(goals, without));
    bool stops = false;
    for (const bool is_met : {true, false}) {
      if (stops || !(is_met ? can_meet : can_miss)) continue;
      met[n] = is_met ? Truth::kTrue : Truth::kFalse;
      stops = self(self, n + 1, can_meet && can_miss ? (is_met ? with : without) : need);  // or `need` implies it
      met[n] = Truth::kUnknown;
    }
    return stops;
  };
  return split(split, 0, values_[plan].need);
}

}  // namespace ingot
