// The values of a template: Python's None, bool, int, float, str, list, tuple and dict, jinja2's Undefined, and objects
// (macros, methods, loops, namespaces, ranges, iterators). Strings are immutable and shared. Lists, dicts and objects
// are shared by reference as in Python, so passing messages around copies nothing. Ints have 128 bits: unsigned 64-bit
// numbers of JSON keep their value, and an overflow is an error.
//
// Two rules keep destructors shallow. A container stores its depth, and refuses to nest beyond the limit. The Runtime
// also holds each container that was changed after its creation, and empties the container at the end, which also
// breaks cycles.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/meter.h"

namespace ingot::jinja {

using Int = __int128;

enum class Kind { kUndefined, kNone, kBool, kInt, kFloat, kString, kList, kTuple, kDict, kObject };

struct Undefined {
  std::string what;  // the error message when it is used
};

struct Str {
  std::string text;
  size_t n_chars;       // code points
  bool markup = false;  // made by `safe` or `escape`: `+` escapes the other operand
  bool ascii() const { return n_chars == text.size(); }
  size_t byte_of(size_t index) const;  // where the character with this index begins
};

struct Seq;
class Dict;
class Object;

class Value {
 public:
  Value() : data_(std::shared_ptr<const Undefined>()) {}  // undefined
  static Value undefined(std::string what);
  static Value none() { return Value(std::monostate()); }
  static Value boolean(bool b) { return Value(b); }
  static Value integer(Int i) { return Value(i); }
  static Value real(double d) { return Value(d); }
  static Value string(std::string text, bool markup = false);
  static Value list(std::vector<Value> items, const Meter& meter);
  static Value tuple(std::vector<Value> items, const Meter& meter);
  static Value dict(std::shared_ptr<Dict> dict) { return Value(std::move(dict)); }
  static Value object(std::shared_ptr<Object> object) { return Value(std::move(object)); }

  Kind kind() const;
  bool is_undefined() const { return data_.index() == 0; }
  bool is_none() const { return data_.index() == 1; }
  bool is_bool() const { return data_.index() == 2; }
  bool is_int() const { return data_.index() == 3; }
  bool is_float() const { return data_.index() == 4; }
  bool is_number() const { return data_.index() >= 2 && data_.index() <= 4; }
  bool is_integral() const { return data_.index() == 2 || data_.index() == 3; }  // an int or a bool, as in Python
  bool is_string() const { return data_.index() == 5; }
  bool is_seq() const { return data_.index() == 6; }  // a list or a tuple
  bool is_list() const { return kind() == Kind::kList; }
  bool is_tuple() const { return kind() == Kind::kTuple; }
  bool is_dict() const { return data_.index() == 7; }
  bool is_object() const { return data_.index() == 8; }

  bool as_bool() const { return std::get<bool>(data_); }
  Int as_int() const { return is_bool() ? Int(as_bool()) : std::get<Int>(data_); }
  std::optional<size_t> as_index(size_t n) const;  // the position in a sequence of n items, if there is one
  double as_float() const { return is_float() ? std::get<double>(data_) : static_cast<double>(as_int()); }
  bool is_markup() const { return is_string() && str().markup; }
  const Str& str() const { return *std::get<std::shared_ptr<const Str>>(data_); }
  const std::string& text() const { return str().text; }
  Seq& seq() const { return *std::get<std::shared_ptr<Seq>>(data_); }
  const std::vector<Value>& items() const;  // of a list or tuple
  Dict& dict() const { return *std::get<std::shared_ptr<Dict>>(data_); }
  const std::shared_ptr<Dict>& dict_ptr() const { return std::get<std::shared_ptr<Dict>>(data_); }
  Object& object() const { return *std::get<std::shared_ptr<Object>>(data_); }
  const std::shared_ptr<Object>& object_ptr() const { return std::get<std::shared_ptr<Object>>(data_); }

  size_t depth() const;                 // depth of nested containers; 0 for a scalar
  const char* type_name() const;        // Python's name of the type
  bool same(const Value& other) const;  // Python's `is`
  void clear() const;                   // empties a list, dict or object
  [[noreturn]] void fail_undefined() const;

 private:
  using Data =
      std::variant<std::shared_ptr<const Undefined>, std::monostate, bool, Int, double, std::shared_ptr<const Str>,
                   std::shared_ptr<Seq>, std::shared_ptr<Dict>, std::shared_ptr<Object>>;
  template <class T>
  explicit Value(T data) : data_(std::move(data)) {}
  Data data_;
};

struct Seq {
  std::vector<Value> items;
  bool tuple = false;
  bool group = false;  // a pair made by groupby, with .grouper and .list
  bool kept = false;   // changed since it was made, so the Runtime holds it
  size_t depth = 1;
};

// Entries stay in the order of insertion, as in Python. Keys are hashed as in Python: 1, 1.0 and true are one key.
class Dict {
 public:
  struct Entry {
    Value key, value;
  };
  const std::vector<Entry>& entries() const { return entries_; }
  const Value* find(const Value& key, Meter& meter) const;  // null if absent; throws for an unhashable key
  const Value* find(std::string_view key) const;
  void set(Value key, Value value, Meter& meter);
  bool erase(const Value& key, Meter& meter);
  void clear();

  bool kept = false;
  size_t depth = 1;

 private:
  template <class Matches>
  size_t index_of(size_t hash, const Matches& matches) const;
  size_t index_of(const Value& key, size_t hash, Meter& meter) const;
  void rebuild_index(Meter& meter);
  std::vector<Entry> entries_;
  std::unordered_multimap<size_t, size_t> index_;  // hash -> entry, once there are several entries
};

class Runtime;
struct Args;

class Object {
 public:
  virtual ~Object() = default;
  virtual const char* type_name() const = 0;
  virtual std::string repr(Meter& meter, size_t depth) const;  // depth: the nesting around the object
  virtual bool truthy() const { return true; }
  virtual bool iterable() const { return false; }
  virtual std::vector<Value> drain(Meter&) { return {}; }                    // the items of an iteration
  virtual std::optional<size_t> length() const { return {}; }                // nothing if the object has no len()
  virtual bool sequence() const { return false; }                            // can be indexed and sliced
  virtual std::optional<Value> subscript(const Value&) { return {}; }        // nothing if there is no such element
  virtual std::optional<Value> slice(Int, Int, size_t) const { return {}; }  // first item, step, number of items
  virtual std::optional<bool> contains(const Value&) const { return {}; }    // nothing: compare with each item
  virtual bool consumable() const { return false; }                          // has its items only once
  virtual std::optional<Value> next() { return {}; }                         // the next item of a consumable
  virtual std::optional<Value> attribute(Runtime&, std::string_view) { return {}; }     // nothing if it does not exist
  virtual bool set_attribute(std::string_view, const Value&, Meter&) { return false; }  // false: not possible
  virtual bool callable() const { return false; }
  virtual Value call(Runtime& rt, Args& args);
  virtual bool equals(const Object& other) const { return this == &other; }
  virtual size_t depth() const { return 1; }
  virtual void clear() {}  // drops its references when the rendering has ended
};

bool truthy(const Value& value);
bool equal(const Value& a, const Value& b, Meter& meter, size_t depth = 0);
// Python's ordering: -1, 0, 1, or 2 if unordered (NaN). Throws for types that cannot be compared.
int compare(const Value& a, const Value& b, const char* op, Meter& meter, size_t depth = 0);
int compare_numbers(const Value& a, const Value& b);
size_t hash_value(const Value& value, Meter& meter);
// The depth of a container with these items; throws if it is over the limit.
size_t container_depth(const std::vector<Value>& items, const Meter& meter);

// Values as text, in Python's notation.
std::string to_str(const Value& value, Meter& meter);
std::string to_repr(const Value& value, Meter& meter, size_t depth = 0);  // depth: the nesting around the value
std::string float_repr(double value);

// Values as json.dumps writes them when Hugging Face's tojson calls it.
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
