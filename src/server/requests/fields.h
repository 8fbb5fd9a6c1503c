// Reads the JSON body of a request field by field. A field of the wrong type or out of range causes an error 400 that
// names the field. A null field counts as absent. Unknown fields are ignored.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_value.h"

namespace ingot {

// Parses strict JSON in UTF-8. Duplicate keys in an object and more than kMaxJsonDepth levels are errors. Throws
// ApiError 400 with the position.
JsonValue parse_request_json(std::string_view body);
std::string dump_json(const JsonValue& json);  // replaces ill-formed UTF-8 with U+FFFD
// Appends a string as dump_json writes it, with quotes. Called for each token, so it is fast.
void append_json_string(std::string& out, std::string_view text);

// Another API's name of a field: a handler asks for `own`, and the request has the field as `foreign`.
// "options.num_predict" is the member `num_predict` of the object `options`.
struct FieldAlias {
  std::string_view own, foreign;
};

class Fields {
 public:
  // `object` and `aliases` must outlive the Fields. `path` precedes the field names in messages ("stream_options.").
  // Messages use the request's names. Throws ApiError if `object` is not an object.
  explicit Fields(const JsonValue& object, std::string path = "", std::span<const FieldAlias> aliases = {});

  const JsonValue* find(const char* name) const;  // null when absent or null
  const JsonValue& at(const char* name) const;    // throws ApiError when absent or null

  // Each getter returns nothing if the field is absent, and throws ApiError if the value has another type or is out of
  // range.
  std::optional<double> number(const char* name, double low, double high) const;
  std::optional<int64_t> integer(const char* name, int64_t low, int64_t high) const;  // accepts 3.0
  std::optional<bool> boolean(const char* name) const;
  std::optional<std::string> string(const char* name, size_t max_bytes = 1 << 20) const;
  std::optional<std::vector<std::string>> strings(const char* name, size_t max_count,
                                                  size_t max_bytes) const;  // also accepts one string
  std::optional<std::vector<int32_t>> token_ids(const char* name, size_t max_count) const;

  // Throws ApiError 400: "NAME must be ...".
  [[noreturn]] void refuse(const char* name, const std::string& must) const;

 private:
  std::string_view spelled(std::string_view name) const;

  const JsonValue& object_;
  const std::string path_;
  const std::span<const FieldAlias> aliases_;
};

// A member of an object, or of an object in the object: "options.seed". Null when absent or null.
const JsonValue* find_member(const JsonValue& object, std::string_view path);

// For deeper values: refuse_value() refuses the value at `path`; string_member() returns a member that must be a
// string.
[[noreturn]] void refuse_value(const std::string& path, const std::string& must);
const std::string& string_member(const JsonValue& object, const char* name, const std::string& path);

// Throws ApiError if an element is not an integer from 0 to 2^31 - 1.
std::vector<int32_t> token_ids_of(const JsonValue& array, const std::string& path);

}  // namespace ingot
