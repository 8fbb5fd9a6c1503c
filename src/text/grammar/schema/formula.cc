#include "text/grammar/schema/formula.h"

#include "base/splitmix.h"

namespace ingot {

Formulas::Formulas() {
  intern(Kind::kFalse, {});
  intern(Kind::kTrue, {});
}

Formulas::Id Formulas::intern(Kind kind, std::vector<uint32_t> args) {
  uint64_t hash = static_cast<uint64_t>(kind) + 1;
  for (uint32_t arg : args) hash = splitmix(hash ^ arg);
  const auto [begin, end] = index_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (kind == nodes_[it->second].kind && std::ranges::equal(parts(it->second), args)) return it->second;
  }
  nodes_.push_back({kind, static_cast<uint32_t>(args_.size()), static_cast<uint32_t>(args.size())});
  args_.insert(args_.end(), args.begin(), args.end());
  const Id id = static_cast<Id>(nodes_.size() - 1);
  index_.emplace(hash, id);
  return id;
}

Formulas::Id Formulas::leaf(uint32_t number) { return intern(Kind::kLeaf, {number}); }

Formulas::Id Formulas::join(Kind kind, Id neutral, Id ruling, const std::vector<Id>& parts) {
  std::vector<Id> flat;
  for (Id part : parts) {
    if (part == ruling) return ruling;
    if (part == neutral) continue;
    if (nodes_[part].kind == kind) {
      const auto inner = this->parts(part);
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else {
      flat.push_back(part);
    }
  }
  std::ranges::sort(flat);
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  for (Id part : flat) {
    if (nodes_[part].kind == Kind::kNot && std::ranges::binary_search(flat, this->parts(part)[0])) return ruling;
  }
  if (flat.empty()) return neutral;
  return flat.size() == 1 ? flat[0] : intern(kind, std::move(flat));
}

Formulas::Id Formulas::all(std::vector<Id> parts) { return join(Kind::kAll, kTrue, kFalse, parts); }
Formulas::Id Formulas::any(std::vector<Id> parts) { return join(Kind::kAny, kFalse, kTrue, parts); }

Formulas::Id Formulas::negation(Id part) {
  if (part == kFalse || part == kTrue) return part == kFalse ? kTrue : kFalse;
  if (nodes_[part].kind == Kind::kNot) return parts(part)[0];
  return intern(Kind::kNot, {part});
}

Formulas::Id Formulas::one(std::vector<Id> parts) {
  std::erase(parts, kFalse);
  const auto n_true = std::ranges::count(parts, kTrue);
  if (n_true > 1) return kFalse;
  if (n_true == 1) {
    std::erase(parts, kTrue);
    return negation(any(std::move(parts)));
  }
  if (parts.size() < 2) return parts.empty() ? kFalse : parts[0];
  std::ranges::sort(parts);
  return intern(Kind::kOne, std::move(parts));
}

}  // namespace ingot
