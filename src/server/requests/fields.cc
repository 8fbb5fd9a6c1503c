#include "server/requests/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <iterator>

#include "base/json.h"
#include "base/utf8.h"
#include "io/json.h"
#include "server/requests/http.h"

namespace ingot {
namespace {

// Builds the value from parser events. Appends members without a search, because ordered_json would compare each with
// all earlier members. Checks for duplicate names when the object is complete.
class Builder {
 public:
  void on_event(const JsonEvent& event) {
    using Kind = JsonEvent::Kind;
    switch (event.kind) {
      case Kind::kNull: put(nullptr); break;
      case Kind::kBool: put(event.integer != 0); break;
      case Kind::kInteger: put(event.integer); break;
      case Kind::kReal: put(event.real); break;
      case Kind::kString: put(std::string(event.text)); break;
      case Kind::kKey: key_ = event.text; break;
      case Kind::kBeginObject: stack_.push_back(&put(JsonValue::object())); break;
      case Kind::kBeginArray: stack_.push_back(&put(JsonValue::array())); break;
      case Kind::kEndObject:
        check_names(*stack_.back(), event.offset);
        stack_.pop_back();
        break;
      case Kind::kEndArray: stack_.pop_back(); break;
    }
  }
  JsonValue take() { return std::move(root_); }

 private:
  JsonValue& put(JsonValue value) {
    if (stack_.empty()) return root_ = std::move(value);
    if (stack_.back()->is_array()) {
      stack_.back()->push_back(std::move(value));
      return stack_.back()->back();
    }
    auto& members = static_cast<JsonValue::object_t::Container&>(stack_.back()->get_ref<JsonValue::object_t&>());
    members.emplace_back(key_, std::move(value));
    return members.back().second;
  }

  static void check_names(const JsonValue& object, size_t end) {
    std::vector<std::string_view> names;
    for (const auto& [name, value] : object.get_ref<const JsonValue::object_t&>()) names.push_back(name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end())
      throw ApiError(400, fmt::format("request body: key '{}' occurs twice in the object that ends at offset {}",
                                      printable(*twice, 64), end));
  }

  JsonValue root_;
  std::string key_;
  std::vector<JsonValue*> stack_;
};

}  // namespace

JsonValue parse_request_json(std::string_view body) {
  if (body.find_first_not_of(" \t\r\n") == body.npos)
    throw ApiError(400, "request body: empty; send a JSON object");
  Builder builder;
  try {
    walk_json(body, "request body", [&](const JsonEvent& event) { builder.on_event(event); });
  } catch (const Error& error) {
    throw ApiError(400, error.what());
  }
  JsonValue json = builder.take();
  if (!json.is_object())
    throw ApiError(400, fmt::format("request body: must be a JSON object, not {}", json.type_name()));
  Fields(json).string("model");  // checks the type, even if the server has one model
  return json;
}

std::string dump_json(const JsonValue& json) { return json.dump(-1, ' ', false, JsonValue::error_handler_t::replace); }

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const unsigned char c = static_cast<unsigned char>(text[0]);
    const Utf8Step step = utf8_step(text);
    if (c == '"' || c == '\\') {
      out += {'\\', text[0]};
    } else if (c >= 0x20 && step.ok) {
      out += text.substr(0, step.length);
    } else if (c >= 0x20) {
      out += "\xEF\xBF\xBD";
    } else if (const size_t known = std::string_view("\b\t\n\f\r").find(text[0]); known != std::string_view::npos) {
      out += {'\\', "btnfr"[known]};
    } else {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
    }
    text.remove_prefix(step.length);
  }
  out += '"';
}

Fields::Fields(const JsonValue& object, std::string path, std::span<const FieldAlias> aliases)
    : object_(object), path_(std::move(path)), aliases_(aliases) {
  if (object.is_object()) return;
  const std::string name = path_.empty() ? "request body" : path_.substr(0, path_.size() - 1);
  throw ApiError(400, fmt::format("{} must be an object, not {}", name, object.type_name()), path_.empty() ? "" : name);
}

// The request's name of a field.
std::string_view Fields::spelled(std::string_view name) const {
  const auto alias = std::ranges::find(aliases_, name, &FieldAlias::own);
  return alias == aliases_.end() ? name : alias->foreign;
}

const JsonValue* find_member(const JsonValue& object, std::string_view path) {
  const size_t dot = path.find('.');
  const auto found = object.find(path.substr(0, dot));
  if (found == object.end() || found->is_null()) return nullptr;
  if (dot == path.npos) return &*found;
  return found->is_object() ? find_member(*found, path.substr(dot + 1)) : nullptr;
}

const JsonValue* Fields::find(const char* name) const { return find_member(object_, spelled(name)); }

const JsonValue& Fields::at(const char* name) const {
  if (const JsonValue* value = find(name)) return *value;
  refuse(name, "is missing");
}

void Fields::refuse(const char* name, const std::string& must) const {
  const std::string where = fmt::format("{}{}", path_, spelled(name));
  throw ApiError(400, where + " " + must, where);
}

std::optional<double> Fields::number(const char* name, double low, double high) const {
  const JsonValue* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number()) refuse(name, fmt::format("must be a number, not {}", value->type_name()));
  const double number = value->get<double>();
  if (number >= low && number <= high) return number;
  if (low == double{std::numeric_limits<float>::min()})
    refuse(name, fmt::format("is {}: it must be above 0, and at most {}", number, high));
  refuse(name, fmt::format("is {}: it must be from {} to {}", number, low, high));
}

std::optional<int64_t> Fields::integer(const char* name, int64_t low, int64_t high) const {
  const JsonValue* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_number()) refuse(name, fmt::format("must be an integer, not {}", value->type_name()));
  if (value->is_number_float()) {
    const double real = value->get<double>();
    if (real != std::floor(real)) refuse(name, fmt::format("is {}: it must be an integer", real));
    if (std::abs(real) > 0x1p53) refuse(name, fmt::format("is {}: it must be from {} to {}", real, low, high));
  }
  const int64_t integer = value->get<int64_t>();
  if (integer < low || integer > high) refuse(name, fmt::format("is {}: it must be from {} to {}", integer, low, high));
  return integer;
}

std::optional<bool> Fields::boolean(const char* name) const {
  const JsonValue* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) refuse(name, fmt::format("must be true or false, not {}", value->type_name()));
  return value->get<bool>();
}

std::optional<std::string> Fields::string(const char* name, size_t max_bytes) const {
  const JsonValue* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_string()) refuse(name, fmt::format("must be a string, not {}", value->type_name()));
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > max_bytes) refuse(name, fmt::format("has {} bytes: at most {}", text.size(), max_bytes));
  return text;
}

std::optional<std::vector<std::string>> Fields::strings(const char* name, size_t max_count, size_t max_bytes) const {
  const JsonValue* value = find(name);
  if (!value) return std::nullopt;
  if (value->is_string()) return std::vector{*string(name, max_bytes)};
  if (!value->is_array())
    refuse(name, fmt::format("must be a string or an array of strings, not {}", value->type_name()));
  if (value->size() > max_count) refuse(name, fmt::format("has {} strings: at most {}", value->size(), max_count));
  std::vector<std::string> strings;
  for (const JsonValue& one : *value) {
    if (!one.is_string())
      refuse(name, fmt::format("must be an array of strings, and [{}] is {}", strings.size(), one.type_name()));
    if (one.get_ref<const std::string&>().size() > max_bytes)
      refuse(name, fmt::format("[{}] is longer than {} bytes", strings.size(), max_bytes));
    strings.push_back(one.get<std::string>());
  }
  return strings;
}

std::optional<std::vector<int32_t>> Fields::token_ids(const char* name, size_t max_count) const {
  const JsonValue* value = find(name);
  if (!value) return std::nullopt;
  if (!value->is_array()) refuse(name, fmt::format("must be an array of token ids, not {}", value->type_name()));
  if (value->size() > max_count) refuse(name, fmt::format("has {} token ids: at most {}", value->size(), max_count));
  return token_ids_of(*value, fmt::format("{}{}", path_, spelled(name)));
}

void refuse_value(const std::string& path, const std::string& must) { throw ApiError(400, path + " " + must, path); }

const std::string& string_member(const JsonValue& object, const char* name, const std::string& path) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) refuse_value(path + "." + name, "must be a string");
  return found->get_ref<const std::string&>();
}

std::vector<int32_t> token_ids_of(const JsonValue& array, const std::string& path) {
  std::vector<int32_t> ids;
  ids.reserve(array.size());
  for (const JsonValue& one : array) {
    if (!one.is_number_integer() || one.get<int64_t>() < 0 || one.get<int64_t>() > INT32_MAX)
      throw ApiError(
          400, fmt::format("{}[{}] must be a token id: an integer from 0 to {}", path, ids.size(), INT32_MAX), path);
    ids.push_back(one.get<int32_t>());
  }
  return ids;
}

}  // namespace ingot
