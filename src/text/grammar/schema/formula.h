// Boolean formulas over numbered leaves, hash-consed. A formula is a condition on a value; its leaves are schemas,
// rules of schemas, or other formulas. Formulas are simplified when made, so a formula with a fixed truth value is
// kTrue or kFalse.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace ingot {

enum class Truth : uint8_t { kFalse, kUnknown, kTrue };

class Formulas {
 public:
  using Id = uint32_t;
  static constexpr Id kFalse = 0, kTrue = 1;
  enum class Kind : uint8_t { kFalse, kTrue, kLeaf, kAll, kAny, kNot, kOne };

  Formulas();
  Id leaf(uint32_t number);
  Id all(std::vector<Id> parts);
  Id any(std::vector<Id> parts);
  Id negation(Id part);
  Id one(std::vector<Id> parts);  // exactly one of the parts holds

  Kind kind(Id id) const { return nodes_[id].kind; }
  std::span<const uint32_t> parts(Id id) const { return {args_.data() + nodes_[id].first, nodes_[id].count}; }
  uint32_t number(Id leaf) const { return parts(leaf)[0]; }

  // Returns `id` with each leaf replaced by a formula: replace(number) -> Id.
  template <class Replace>
  Id substitute(Id id, Replace&& replace);
  // truth_of(number) -> Truth.
  template <class TruthOf>
  Truth evaluate(Id id, TruthOf&& truth_of) const;
  // Calls visit(number) for each leaf, once for each occurrence.
  template <class Visit>
  void each_leaf(Id id, Visit&& visit) const;

 private:
  struct Node {
    Kind kind;
    uint32_t first, count;
  };
  Id intern(Kind kind, std::vector<uint32_t> args);
  Id join(Kind kind, Id neutral, Id ruling, const std::vector<Id>& parts);

  std::vector<Node> nodes_;
  std::vector<uint32_t> args_;
  std::unordered_multimap<uint64_t, Id> index_;
};

template <class Replace>
Formulas::Id Formulas::substitute(Id id, Replace&& replace) {
  const Kind kind = nodes_[id].kind;
  if (kind == Kind::kFalse || kind == Kind::kTrue) return id;
  if (kind == Kind::kLeaf) return replace(number(id));
  std::vector<Id> next(parts(id).begin(), parts(id).end());
  for (Id& part : next) part = substitute(part, replace);
  if (kind == Kind::kNot) return negation(next[0]);
  return kind == Kind::kAll ? all(std::move(next)) : kind == Kind::kAny ? any(std::move(next)) : one(std::move(next));
}

template <class TruthOf>
Truth Formulas::evaluate(Id id, TruthOf&& truth_of) const {
  const Kind kind = nodes_[id].kind;
  if (kind == Kind::kFalse) return Truth::kFalse;
  if (kind == Kind::kTrue) return Truth::kTrue;
  if (kind == Kind::kLeaf) return truth_of(number(id));
  int n[3] = {0, 0, 0};
  for (uint32_t i = 0; i < nodes_[id].count; ++i) {  // truth_of may add formulas, which may move all nodes
    ++n[static_cast<int>(evaluate(args_[nodes_[id].first + i], truth_of))];
  }
  const int n_false = n[0], n_unknown = n[1], n_true = n[2];
  switch (kind) {
    case Kind::kNot: return n_true ? Truth::kFalse : n_false ? Truth::kTrue : Truth::kUnknown;
    case Kind::kAll: return n_false ? Truth::kFalse : n_unknown ? Truth::kUnknown : Truth::kTrue;
    case Kind::kAny: return n_true ? Truth::kTrue : n_unknown ? Truth::kUnknown : Truth::kFalse;
    default: return n_true > 1 || n_true + n_unknown == 0 ? Truth::kFalse : n_unknown ? Truth::kUnknown : Truth::kTrue;
  }
}

template <class Visit>
void Formulas::each_leaf(Id id, Visit&& visit) const {
  if (nodes_[id].kind == Kind::kLeaf) return visit(number(id));
  for (Id part : parts(id)) each_leaf(part, visit);
}

}  // namespace ingot
