// A lenient reader may relax a schema: its rules then allow more values than its text. Where a schema must fail (`not`,
// `oneOf`, `maxContains`), relaxed rules would forbid valid values. So such conditions are dropped.
#include <algorithm>

#include "text/grammar/schema/reader.h"

namespace ingot {

// Calls visit(id) for each schema that `schema` refers to.
template <class Visit>
void SchemaReader::each_referenced(const Schema& schema, const Visit& visit) const {
  f_.each_leaf(schema.others, visit);
  f_.each_leaf(schema.objects, visit);
  if (schema.object >= 0) {
    const ObjectRule& rule = t_.objects[static_cast<size_t>(schema.object)];
    for (const auto& [name, id] : rule.properties) visit(id);
    for (const auto& [pattern, id] : rule.patterns) visit(id);
    visit(rule.additional);
    if (const auto it = name_rules_.find(schema.object); it != name_rules_.end()) visit(it->second);
  }
  if (schema.array >= 0) {
    const ArrayRule& rule = t_.arrays[static_cast<size_t>(schema.array)];
    std::ranges::for_each(rule.prefix, visit);
    visit(rule.rest);
    visit(rule.contains);
  }
}

// Relaxed schemas: schemas with a keyword that is not enforced, and all schemas that refer to them.
std::vector<bool> SchemaReader::find_relaxed() const {
  std::vector<std::vector<SchemaId>> referrers(t_.schemas.size());
  for (SchemaId id = 0; id < t_.schemas.size(); ++id)
    each_referenced(t_.schemas[id], [&](SchemaId referenced) { referrers[referenced].push_back(id); });
  std::vector<bool> is_relaxed(t_.schemas.size());
  for (std::vector<SchemaId> ready(relaxed_.begin(), relaxed_.end()); !ready.empty();) {
    const SchemaId id = ready.back();
    ready.pop_back();
    if (is_relaxed[id]) continue;
    is_relaxed[id] = true;
    ready.insert(ready.end(), referrers[id].begin(), referrers[id].end());
  }
  return is_relaxed;
}

// `id` without the parts that depend on a relaxed schema's failure.
Formulas::Id SchemaReader::relaxed(Formula id, const std::vector<bool>& is_relaxed) {
  using enum Formulas::Kind;
  const Formulas::Kind kind = f_.kind(id);
  if (kind == kFalse || kind == kTrue || kind == kLeaf) return id;
  std::vector<Formula> parts(f_.parts(id).begin(), f_.parts(id).end());
  if (kind == kNot || kind == kOne) {
    bool is_open = false;
    f_.each_leaf(id, [&](uint32_t schema) { is_open = is_open || is_relaxed[schema]; });
    if (!is_open) return id;
    if (kind == kNot) return Formulas::kTrue;
  }
  for (Formula& part : parts) part = relaxed(part, is_relaxed);
  return kind == kAll ? f_.all(std::move(parts)) : f_.any(std::move(parts));
}

void SchemaReader::relax_opposites() {
  const std::vector<bool> is_relaxed = find_relaxed();
  for (Schema& schema : t_.schemas) {
    schema.others = relaxed(schema.others, is_relaxed);
    schema.objects = relaxed(schema.objects, is_relaxed);
  }
  for (ArrayRule& rule : t_.arrays) {
    if (is_relaxed[rule.contains]) rule.max_contains = -1;  // a relaxed schema counts too many items
  }
}

}  // namespace ingot
