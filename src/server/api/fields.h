// The body of a request as JSON, read field by field: every field of the wrong type or out of range is a 400 that names
// it. A field that is null counts as absent, unknown fields are ignored.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_value.h"

namespace ingot {

// Strict JSON in UTF-8: no key twice in an object, nested at most kMaxJsonDepth levels. Throws ApiError 400 with the
// place.
JsonValue parse_request_json(std::string_view body);
std::string dump_json(const JsonValue& json);  // ill-formed UTF-8 in it becomes U+FFFD
// The same of a string, with its quotes. It is called for each token.
void append_json_string(std::string& out, std::string_view text);

class Fields {
 public:
  // `object` must outlive it. `path` is what stands before the fields' names in messages ("stream_options.").
  // Throws ApiError when it is no object.
  explicit Fields(const JsonValue& object, std::string path = "");

  const JsonValue* find(const char* name) const;  // null when absent or null
  const JsonValue& at(const char* name) const;    // throws ApiError when absent or null

  // Each is empty when the field is absent, and throws ApiError for a value of another type or out of range.
  std::optional<double> number(const char* name, double low, double high) const;
  std::optional<int64_t> integer(const char* name, int64_t low, int64_t high) const;  // 3.0 is one
  std::optional<bool> boolean(const char* name) const;
  std::optional<std::string> string(const char* name, size_t max_bytes = 1 << 20) const;
  std::optional<std::vector<std::string>> strings(const char* name, size_t max_count,
                                                  size_t max_bytes) const;  // or one string
  std::optional<std::vector<int32_t>> token_ids(const char* name, size_t max_count) const;

  // ApiError 400 for a field: "NAME must be ...".
  [[noreturn]] void refuse(const char* name, const std::string& must) const;

 private:
  const JsonValue& object_;
  const std::string path_;
};

// For what is nested deeper than fields: a complaint about the value at `path`, and a member that must be a string.
[[noreturn]] void refuse_value(const std::string& path, const std::string& must);
const std::string& string_member(const JsonValue& object, const char* name, const std::string& path);

// Throws ApiError for an element that is no integer from 0 to 2^31 - 1.
std::vector<int32_t> token_ids_of(const JsonValue& array, const std::string& path);

}  // namespace ingot
