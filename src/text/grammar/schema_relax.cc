// A lenient reader lets a schema allow more than it says. Under `not`, and wherever a schema has to fail, more would
// become less: there the condition itself is dropped.
#include <algorithm>

#include "text/grammar/schema_reader.h"

namespace ingot {

// Schemas that allow more than they say: those of which something is not enforced, and all that ask for one of them.
std::vector<bool> SchemaReader::find_relaxed() const {
  std::vector<bool> is_relaxed(t_.schemas.size());
  for (SchemaId id : relaxed_) is_relaxed[id] = true;
  const auto asks_for_relaxed = [&](const Schema& schema) {
    bool found = false;
    const auto look = [&](SchemaId id) { found = found || is_relaxed[id]; };
    f_.each_leaf(schema.others, look);
    f_.each_leaf(schema.objects, look);
    if (schema.object >= 0) {
      const ObjectRule& rule = t_.objects[static_cast<size_t>(schema.object)];
      for (const auto& [name, id] : rule.properties) look(id);
      for (const auto& [pattern, id] : rule.patterns) look(id);
      look(rule.additional);
      for (const auto& [object, names] : name_rules_) {
        if (object == schema.object) look(names);
      }
    }
    if (schema.array >= 0) {
      const ArrayRule& rule = t_.arrays[static_cast<size_t>(schema.array)];
      std::ranges::for_each(rule.prefix, look);
      look(rule.rest);
      look(rule.contains);
    }
    return found;
  };
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (SchemaId id = 0; id < t_.schemas.size(); ++id) {
      if (is_relaxed[id] || !asks_for_relaxed(t_.schemas[id])) continue;
      is_relaxed[id] = has_changed = true;
    }
  }
  return is_relaxed;
}

// `id` without the parts that hold where a relaxed schema fails.
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
    if (is_relaxed[rule.contains]) rule.max_contains = -1;  // items that count too much
  }
}

}  // namespace ingot
