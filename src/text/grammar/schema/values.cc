// enum and const: turns values into rules that only these values meet.
#include <array>

#include "text/grammar/schema/reader.h"

namespace ingot {

void SchemaReader::read_values(const Json& json, const std::string& path, std::vector<Formula>& others) {
  if (has(json, "const")) others.push_back(value_formula({&json["const"]}));
  if (!json.contains("enum")) return;
  if (!json["enum"].is_array()) fail(path, "enum", "is not a list of values");
  if (json["enum"].empty()) fail(path, "enum", "is empty, so no value matches");
  std::vector<const Json*> values;
  for (const Json& value : json["enum"]) values.push_back(&value);
  others.push_back(value_formula(values));
}

// Scalars of one type become one language. Each array or object becomes a schema.
Formulas::Id SchemaReader::value_formula(const std::vector<const Json*>& values) {
  std::vector<std::string_view> texts;
  std::array<std::vector<Language>, kScalarTypes> spellings;
  std::vector<Language> unsure;  // other spellings of the numbers
  std::vector<Formula> parts;
  const auto allow = [&](JsonType type, Language language) {
    spellings[static_cast<size_t>(type)].push_back(language);
  };
  for (const Json* value : values) {
    if (value->is_string()) {
      texts.push_back(value->get_ref<const std::string&>());
    } else if (value->is_structured()) {
      parts.push_back(f_.leaf(structure(*value)));
    } else if (value->is_number()) {
      const std::optional<Decimal> number = Decimal::parse(value->dump());
      const NumberSet set = number ? number_literal(l_, *number) : NumberSet{l_.literal(value->dump())};
      allow(JsonType::kNumber, set.inside);
      unsure.push_back(set.unsure);
    } else {
      allow(value->is_null() ? JsonType::kNull : JsonType::kBool, l_.literal(value->dump()));
    }
  }
  if (!texts.empty()) allow(JsonType::kString, l_.literals(texts));
  Schema scalars = plain();
  scalars.types = 0;
  for (size_t type = 0; type < kScalarTypes; ++type) {
    scalars.types |= static_cast<uint8_t>(!spellings[type].empty() << type);
    scalars.languages[type] = l_.any_of(std::move(spellings[type]));
  }
  scalars.unsure[static_cast<size_t>(JsonType::kNumber)] = l_.any_of(std::move(unsure));
  if (scalars.types != 0) parts.push_back(f_.leaf(add(scalars)));
  return f_.any(std::move(parts));
}

// A schema that only this array or object meets.
SchemaId SchemaReader::structure(const Json& value) {
  return add(value.is_array() ? structure_of_array(value) : structure_of_object(value));
}

Schema SchemaReader::structure_of_array(const Json& value) {
  ArrayRule rule;
  for (const Json& item : value) {
    Schema holder = plain();
    holder.others = value_formula({&item});
    rule.prefix.push_back(add(holder));
  }
  rule.rest = kNoSchema;
  rule.min = static_cast<int>(value.size());
  Schema schema = plain();
  schema.types = 1 << static_cast<int>(JsonType::kArray);
  schema.array = add_rule(std::move(rule));
  return schema;
}

Schema SchemaReader::structure_of_object(const Json& value) {
  ObjectRule rule;
  rule.names = l_.any_text();
  rule.additional = kNoSchema;
  for (const auto& [name, item] : value.items()) {
    Schema holder = plain();
    holder.others = value_formula({&item});
    rule.properties.emplace_back(name, add(holder));
    rule.required.push_back(name);
  }
  Schema schema = plain();
  schema.types = 1 << static_cast<int>(JsonType::kObject);
  schema.object = add_rule(std::move(rule));
  return schema;
}

Formulas::Id add_value(std::string_view json, SchemaTable& table) {
  const SchemaIndex::Json root = true, value = SchemaIndex::Json::parse(json, nullptr, false);
  return value.is_discarded() ? Formulas::kFalse : SchemaReader(root, {}, table).value_formula({&value});
}

}  // namespace ingot
