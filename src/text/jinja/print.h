// Values as text: Python's str() and repr(), json.dumps as Hugging Face's tojson calls it, and the conversion from JSON
// to values.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "text/jinja/value.h"

namespace ingot::jinja {

std::string to_str(const Value& value, Meter& meter);
std::string to_repr(const Value& value, Meter& meter, size_t depth = 0);  // depth: the nesting around the value
std::string float_repr(double value);
std::string int_repr(Int value);

struct JsonStyle {
  bool ensure_ascii = false;
  bool multiline = false;  // `indent` was given
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
std::string to_json(const Value& value, const JsonStyle& style, Meter& meter);

// Adds the size of the document to n_bytes.
Value from_json(const nlohmann::ordered_json& json, Meter& meter, size_t& n_bytes);
Value parse_json(std::string_view text, Meter& meter);  // throws Error for text that is not JSON

}  // namespace ingot::jinja
