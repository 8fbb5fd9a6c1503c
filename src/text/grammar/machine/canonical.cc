#include <cmath>

#include "base/json.h"
#include "text/grammar/machine/schema_machine.h"

namespace ingot {

namespace {

// Turns 1.0 into 1, because JSON Schema compares numbers by value.
void make_canonical(nlohmann::json& value) {
  if (value.is_structured()) {
    for (auto& item : value) make_canonical(item);
  } else if (value.is_number_float()) {
    const double number = value;
    if (number == std::floor(number) && std::abs(number) < 9e15) value = static_cast<int64_t>(number);
  }
}

}  // namespace

std::string SchemaMachine::string_of(const std::string& json) { return nlohmann::json::parse(json).get<std::string>(); }

std::string SchemaMachine::json_string(const std::string& text) { return nlohmann::json(text).dump(); }

// A number that identifies the value of a JSON text. Equal values have equal numbers, even if they are spelled
// differently.
uint32_t SchemaMachine::canonical(const std::string& json) {
  nlohmann::json value = nlohmann::json::parse(json, nullptr, false);
  const bool is_readable = !value.is_discarded();  // false: a number is too large, so only its spelling is compared
  if (is_readable) make_canonical(value);
  const auto [it, is_new] =
      canonical_.try_emplace(is_readable ? value.dump() : json, static_cast<uint32_t>(canonical_texts_.size()));
  if (is_new) canonical_texts_.push_back(it->first);
  return it->second;
}

}  // namespace ingot
