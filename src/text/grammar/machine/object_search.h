// ObjectSearch: whether an object can become complete. The search first chooses which rules will hold and which will
// fail, as the object's formula needs. Names are independent of each other, so for such a choice the members follow: the
// names that a rule requires, then for each rule that must fail a member that breaks it.
#pragma once
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "text/grammar/machine/schema_machine.h"

namespace ingot {

class SchemaMachine::ObjectSearch {
 public:
  // frame: between members. json: if not null, receives the members that complete the object. open: rules with an open
  // goal (not 0) may hold or not; then the search tells whether the object can become complete in either case.
  ObjectSearch(SchemaMachine& machine, Words frame, std::string* json, std::span<const uint32_t> open = {})
      : m_(machine),
        plan_(*machine.objects_[frame[kObjectPlanWord]]),
        start_(std::move(frame)),
        json_(json),
        open_(open),
        n_left_(open.empty() ? SIZE_MAX : kMaxOpenSteps),
        target_(plan_.rules.size(), Truth::kUnknown) {}
  bool run() { return assign({{plan_.need, true}}); }

 private:
  using Conditions = std::vector<std::pair<Formula, bool>>;  // formulas and the truth that each must get
  static constexpr size_t kObjectPlanWord = 2;
  static constexpr uint32_t kNoRule = UINT32_MAX;
  static constexpr size_t kMaxOpenSteps = 256;  // with open goals, to find nothing is no answer, so a search is short

  Truth truth_of(uint32_t rule) const;
  bool assign(Conditions pending);
  bool settle(Conditions& pending, Conditions& choices, std::vector<uint32_t>& trail);
  bool choose(Conditions& choices);
  bool add_members(const Words& frame);
  bool add(const Words& frame, uint32_t way, uint32_t broken);
  bool is_allowed(const Words& frame, uint32_t rule) const;

  SchemaMachine& m_;
  const ObjectPlan& plan_;
  const Words start_;
  std::string* const json_;
  const std::span<const uint32_t> open_;  // [rule], or empty
  size_t n_left_;                         // steps
  std::vector<Truth> target_;             // [rule]
  std::unordered_set<uint32_t> seen_;     // frames, for the current targets
};

}  // namespace ingot
