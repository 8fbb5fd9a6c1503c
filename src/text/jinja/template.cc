#include "text/jinja/template.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "text/jinja/runtime.h"
#include "text/tokenizers/unicode.h"

namespace ingot {

using jinja::Value;

Template::Template(std::shared_ptr<const jinja::Program> program) : program_(std::move(program)) {}

Template Template::parse(std::string_view source, const TemplateLimits& limits) {
  if (source.size() > limits.source_bytes) {
    throw Error("the template has {} bytes, over the limit of {}", source.size(), limits.source_bytes);
  }
  if (const size_t valid = valid_utf8_prefix(source); valid != source.size()) {
    throw Error("the template is not UTF-8: bad byte at offset {}", valid);
  }
  const std::string text = jinja::normalized_source(source);
  return Template(std::make_shared<const jinja::Program>(jinja::parse_program(jinja::tokenize(text), limits.depth)));
}

std::string Template::render(const nlohmann::ordered_json& variables, const TemplateLimits& limits,
                             const TemplateClock& clock) const {
  if (!variables.is_object()) throw Error("the variables of a template must be a JSON object");
  TemplateLimits free = limits;  // reading the variables costs no fuel, because their size sets the fuel
  free.fuel = SIZE_MAX / 2;
  free.fuel_per_byte = 0;
  jinja::Meter reading(free, 0);
  const std::vector<std::string>& names = program_->names;
  std::vector<std::optional<Value>> values(names.size());
  size_t n_bytes = 0;
  for (const auto& [key, json] : variables.items()) {
    const auto found = program_->ids.find(key);
    if (found == program_->ids.end()) continue;  // the template does not use this variable
    values[static_cast<size_t>(found->second)] = jinja::from_json(json, reading, n_bytes);
  }
  for (size_t i = 0; i < names.size(); ++i) {
    const jinja::Builtin* global = values[i] ? nullptr : jinja::find_global(names[i]);
    if (global != nullptr) values[i] = make_function(Value(), *global);
  }
  jinja::Runtime runtime(*program_, std::move(values), jinja::Meter(limits, n_bytes), clock);
  try {
    return runtime.render();
  } catch (const Error& error) {
    throw Error("template line {}: {}", runtime.line(), error.what());
  }
}

bool Template::mentions(std::string_view name) const { return program_->ids.count(std::string(name)) > 0; }

}  // namespace ingot
