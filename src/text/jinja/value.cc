#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/text.h"

namespace ingot::jinja {
namespace {

bool equal_items(const std::vector<Value>& a, const std::vector<Value>& b, Meter& meter, size_t depth) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!a[i].same(b[i]) && !equal(a[i], b[i], meter, depth)) return false;
  }
  return true;
}

bool equal_dicts(const Dict& a, const Dict& b, Meter& meter, size_t depth) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const Dict::Entry& entry : a.entries()) {
    const Value* other = b.find(entry.key, meter);
    if (other == nullptr || !equal(entry.value, *other, meter, depth)) return false;
  }
  return true;
}

int compare_int_with_float(Int a, double b) {
  if (std::isnan(b)) return 2;
  if (b >= 0x1p127) return -1;
  if (b < -0x1p127) return 1;
  const Int whole = static_cast<Int>(b);
  if (a != whole) return a < whole ? -1 : 1;
  const double rest = b - std::trunc(b);
  return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

size_t mix(size_t a, size_t b) { return a ^ (b + 0x9E3779B97F4A7C15ull + (a << 6) + (a >> 2)); }

}  // namespace

size_t Str::byte_of(size_t index) const { return ascii() ? index : byte_of_char(text, index); }

Value Value::undefined(std::string what) {
  return Value(std::make_shared<const Undefined>(Undefined{std::move(what)}));
}

Value Value::string(std::string text, bool markup) {
  auto str = std::make_shared<Str>();
  str->n_chars = count_chars(text);
  str->text = std::move(text);
  str->markup = markup;
  return Value(std::shared_ptr<const Str>(std::move(str)));
}

Value Value::list(std::vector<Value> items, const Meter& meter) {
  auto seq = std::make_shared<Seq>();
  seq->depth = container_depth(items, meter);
  seq->items = std::move(items);
  return Value(std::move(seq));
}

Value Value::tuple(std::vector<Value> items, const Meter& meter) {
  Value value = list(std::move(items), meter);
  value.seq().tuple = true;
  return value;
}

Kind Value::kind() const {
  static constexpr Kind kKinds[] = {Kind::kUndefined, Kind::kNone, Kind::kBool, Kind::kInt,   Kind::kFloat,
                                    Kind::kString,    Kind::kList, Kind::kDict, Kind::kObject};
  return is_seq() && seq().tuple ? Kind::kTuple : kKinds[data_.index()];
}

const std::vector<Value>& Value::items() const { return seq().items; }

std::optional<size_t> Value::as_index(size_t n) const {
  if (!is_integral()) return std::nullopt;
  const Int i = as_int() < 0 ? as_int() + static_cast<Int>(n) : as_int();
  return i < 0 || i >= static_cast<Int>(n) ? std::nullopt : std::optional(static_cast<size_t>(i));
}

size_t Value::depth() const {
  if (is_seq()) return seq().depth;
  if (is_dict()) return dict().depth;
  return is_object() ? object().depth() : 0;
}

const char* Value::type_name() const {
  static constexpr const char* kNames[] = {"Undefined", "NoneType", "bool",  "int", "float",
                                           "str",       "list",     "tuple", "dict"};
  if (is_object()) return object().type_name();
  return is_string() && str().markup ? "Markup" : kNames[static_cast<int>(kind())];
}

bool Value::same(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_undefined()) return true;
  if (is_string()) return text() == other.text();
  return data_ == other.data_;
}

void Value::clear() const {
  if (is_seq()) {
    const std::vector<Value> dropped = std::exchange(seq().items, {});
  } else if (is_dict()) {
    dict().clear();
  } else if (is_object()) {
    object().clear();
  }
}

void Value::fail_undefined() const {
  const auto& info = std::get<0>(data_);
  throw Error("{}", info ? info->what : std::string("the value is undefined"));
}

// The position of the entry with this hash whose key matches, or the number of entries.
template <class Matches>
size_t Dict::index_of(size_t hash, const Matches& matches) const {
  if (index_.empty()) {
    auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return matches(entry.key); });
    return static_cast<size_t>(found - entries_.begin());
  }
  for (auto [at, end] = index_.equal_range(hash); at != end; ++at) {
    if (matches(entries_[at->second].key)) return at->second;
  }
  return entries_.size();
}

size_t Dict::index_of(const Value& key, size_t hash, Meter& meter) const {
  return index_of(hash, [&](const Value& other) { return equal(other, key, meter); });
}

const Value* Dict::find(const Value& key, Meter& meter) const {
  const size_t i = index_of(key, hash_value(key, meter), meter);
  return i < entries_.size() ? &entries_[i].value : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const size_t hash = index_.empty() ? 0 : std::hash<std::string_view>()(key);
  const size_t i = index_of(hash, [&](const Value& other) { return other.is_string() && other.text() == key; });
  return i < entries_.size() ? &entries_[i].value : nullptr;
}

void Dict::set(Value key, Value value, Meter& meter) {
  const size_t hash = hash_value(key, meter);
  depth = std::max({depth, value.depth() + 1, key.depth() + 1});
  meter.nested(depth);
  const size_t i = index_of(key, hash, meter);
  if (i < entries_.size()) {
    entries_[i].value = std::move(value);
    return;
  }
  meter.items(1);
  entries_.push_back({std::move(key), std::move(value)});
  if (!index_.empty()) {
    index_.emplace(hash, i);
  } else {
    rebuild_index(meter);
  }
}

void Dict::rebuild_index(Meter& meter) {
  static constexpr size_t kScanned = 8;
  index_.clear();
  if (entries_.size() <= kScanned) return;
  for (size_t i = 0; i < entries_.size(); ++i) index_.emplace(hash_value(entries_[i].key, meter), i);
}

bool Dict::erase(const Value& key, Meter& meter) {
  const size_t i = index_of(key, hash_value(key, meter), meter);
  if (i == entries_.size()) return false;
  entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(i));
  rebuild_index(meter);
  return true;
}

void Dict::clear() {
  const std::vector<Entry> dropped = std::exchange(entries_, {});
  index_.clear();
}

size_t container_depth(const std::vector<Value>& items, const Meter& meter) {
  size_t depth = 1;
  for (const Value& item : items) depth = std::max(depth, item.depth() + 1);
  meter.nested(depth);
  return depth;
}

std::string Object::repr(Meter&, size_t) const { return fmt::format("<{} object>", type_name()); }

Value Object::call(Runtime&, Args&) { throw Error("'{}' object is not callable", type_name()); }

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone: return false;
    case Kind::kBool: return value.as_bool();
    case Kind::kInt: return value.as_int() != 0;
    case Kind::kFloat: return value.as_float() != 0;
    case Kind::kString: return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple: return !value.items().empty();
    case Kind::kDict: return !value.dict().entries().empty();
    case Kind::kObject: return value.object().truthy();
  }
  return false;
}

bool equal(const Value& a, const Value& b, Meter& meter, size_t depth) {
  meter.nested(depth);
  meter.spend();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString:
      if (a.text().size() != b.text().size()) return false;
      meter.read(a.text().size());
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple: return equal_items(a.items(), b.items(), meter, depth + 1);
    case Kind::kDict: return equal_dicts(a.dict(), b.dict(), meter, depth + 1);
    case Kind::kObject: return a.object().equals(b.object());
    default: return true;  // both are undefined, or both are None
  }
}

int compare_numbers(const Value& a, const Value& b) {
  if (!a.is_float() && !b.is_float()) return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int();
  if (!a.is_float()) return compare_int_with_float(a.as_int(), b.as_float());
  if (!b.is_float()) {
    const int reverse = compare_int_with_float(b.as_int(), a.as_float());
    return reverse == 2 ? 2 : -reverse;
  }
  const double x = a.as_float(), y = b.as_float();
  return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

int compare(const Value& a, const Value& b, const char* op, Meter& meter, size_t depth) {
  meter.nested(depth);
  meter.spend();
  if (a.is_undefined()) a.fail_undefined();
  if (b.is_undefined()) b.fail_undefined();
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) {  // UTF-8 sorts in the order of its code points
    meter.read(std::min(a.text().size(), b.text().size()));
    const int order = a.text().compare(b.text());
    return order < 0 ? -1 : order > 0;
  }
  if (a.is_seq() && a.kind() == b.kind()) {
    const size_t n = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < n; ++i) {
      if (!equal(a.items()[i], b.items()[i], meter, depth + 1)) {
        return compare(a.items()[i], b.items()[i], op, meter, depth + 1);
      }
    }
    return a.items().size() < b.items().size() ? -1 : a.items().size() > b.items().size();
  }
  throw Error("'{}' not supported between instances of '{}' and '{}'", op, a.type_name(), b.type_name());
}

size_t hash_value(const Value& value, Meter& meter) {
  meter.spend();
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat: return std::hash<double>()(value.as_float());
    case Kind::kString: meter.read(value.text().size()); return std::hash<std::string_view>()(value.text());
    case Kind::kTuple: {
      size_t hash = 17;
      for (const Value& item : value.items()) hash = mix(hash, hash_value(item, meter));
      return hash;
    }
    case Kind::kList:
    case Kind::kDict: throw Error("unhashable type: '{}'", value.type_name());
    case Kind::kObject: return std::hash<const void*>()(&value.object());
    default: return static_cast<size_t>(value.kind());
  }
}

}  // namespace ingot::jinja
