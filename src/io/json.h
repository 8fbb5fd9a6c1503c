// Reads JSON from untrusted model files: config.json, tokenizer.json, the header of a safetensors file. Accepts strict
// JSON in UTF-8 without a byte order mark, with limited nesting and no duplicate keys in an object. Integers stay
// exact. Every error names the file, the path of the value ('rope_scaling.factor') and its offset. walk_json only
// reports the values as events; JsonDocument stores the values in one flat table, 24 bytes a value. nlohmann's parser
// reads the text.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace ingot {

inline constexpr int kMaxJsonDepth = 64;

struct JsonEvent {
  enum class Kind : uint8_t {
    kNull, kBool, kInteger, kReal, kString, kKey, kBeginObject, kEndObject, kBeginArray, kEndArray
  };
  Kind kind = Kind::kNull;
  size_t offset = 0;      // where the event begins in the text; for an end event, where the event ends
  int64_t integer = 0;    // also for a bool; an integer that does not fit is a real
  double real = 0;
  std::string_view text;  // a string or key, decoded; valid only during the call
};

// Throws Error ("FILE: line 3, column 7 (offset 41): ...") if the text is not JSON or nests deeper than the limit.
void walk_json(std::string_view text, const std::string& source, const std::function<void(const JsonEvent&)>& on_event);

const char* json_kind_name(JsonEvent::Kind kind);  // "null", "bool", "integer", ...

class Json;

class JsonDocument {
 public:
  // `source` is the file's name, for messages. Throws Error.
  static JsonDocument parse(std::string_view text, std::string source);
  // Reads and parses a file of at most max_bytes. If the file is not JSON at all, the Error names the kind of file (a
  // Git LFS pointer, a web page).
  static JsonDocument read(const std::string& path, size_t max_bytes);

  Json root() const;
  const std::string& source() const;

 private:
  friend class Json;
  friend class JsonBuilder;
  struct Table;
  std::shared_ptr<const Table> table_;
};

// One value of a document, cheap to copy. The document must outlive the Json and the strings that it returns.
class Json {
 public:
  using Kind = JsonEvent::Kind;

  Kind kind() const;
  bool is_object() const { return kind() == Kind::kBeginObject; }
  bool is_array() const { return kind() == Kind::kBeginArray; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_null() const { return kind() == Kind::kNull; }
  size_t offset() const;

  // The member `key`; nothing if absent or null. Throws Error if this value is not an object.
  std::optional<Json> find(std::string_view key) const;
  bool has(std::string_view key) const { return member(key).has_value(); }  // true for null members too
  // Throws Error if the member is absent or null.
  Json at(std::string_view key) const;
  std::vector<std::pair<std::string_view, Json>> members() const;  // of an object, in the order of the file
  std::vector<Json> elements() const;                              // of an array

  // Each throws Error if the value is of another kind or out of range. 32.0 counts as an integer, because some programs
  // write integers in this way.
  int64_t integer(int64_t low, int64_t high) const;
  double number() const;  // finite
  bool boolean() const;
  std::string_view string() const;

  std::string path() const;      // "rope_scaling.factor", "merges[3]"; empty for the root
  std::string describe() const;  // for messages: `str "abc"`, `integer 7`, `array of 2`
  std::string render() const;    // for display, on one line; long values are truncated
  // An Error about this value: "FILE: 'rope_scaling.factor' at offset 120: MESSAGE".
  template <class... Args>
  Error error(fmt::format_string<Args...> format, Args&&... args) const {
    return make_error(fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  friend class JsonDocument;
  Json(const JsonDocument::Table* table, uint32_t index) : table_(table), index_(index) {}
  void append_rendered(std::string& out) const;
  Error make_error(const std::string& message) const;
  std::optional<Json> member(std::string_view key) const;

  const JsonDocument::Table* table_;
  uint32_t index_;
};

}  // namespace ingot
