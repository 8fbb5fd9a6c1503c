#include "io/metadata.h"

#include <cmath>
#include <type_traits>

namespace ingot {
namespace {

template <class T>
constexpr const char* kName = nullptr;
template <>
constexpr const char* kName<bool> = "bool";
template <>
constexpr const char* kName<uint32_t> = "u32";
template <>
constexpr const char* kName<int32_t> = "i32";
template <>
constexpr const char* kName<uint64_t> = "u64";
template <>
constexpr const char* kName<int64_t> = "i64";
template <>
constexpr const char* kName<float> = "f32";
template <>
constexpr const char* kName<std::string_view> = "str";

// The value found in the file, for messages: the type, and for numbers also the value.
std::string describe(const Value& value) {
  if (value.is_array() || value.type == ValueType::kString) return value.type_name();
  return value.type_name() + " " + render(value);
}

}  // namespace

Metadata::Metadata(std::string source, std::vector<Entry> entries)
    : source_(std::move(source)), entries_(std::move(entries)) {
  auto key_of = [&](size_t i) { return entries_[i].key; };
  index_ = NameIndex(entries_.size(), key_of);
  if (auto twice = index_.duplicate(key_of)) {
    const Entry& entry = entries_[*twice];
    throw Error("{}: metadata '{}' at offset {}: this key occurs twice", printable(source_), printable(entry.key),
                entry.offset);
  }
}

void Metadata::set(std::string_view key, ValueType type, std::string bytes) {
  const std::string& kept = own_->emplace_back(std::move(bytes));
  const Value value{.type = type, .bytes = {reinterpret_cast<const uint8_t*>(kept.data()), kept.size()}};
  if (const auto i = index_.find(key, [&](size_t entry) { return entries_[entry].key; }))
    return void(entries_[*i].value = value);
  entries_.push_back({.key = own_->emplace_back(key), .value = value});
  index_ = NameIndex(entries_.size(), [&](size_t i) { return entries_[i].key; });
}

const Value* Metadata::find(Key key) const {
  auto i = index_.find(key, [&](size_t entry) { return entries_[entry].key; });
  return i ? &entries_[*i].value : nullptr;
}

template <class T>
T Metadata::convert(Key key, const Value& value) const {
  const std::optional<T> converted = value.as<T>();
  if (!converted) throw error(key, "expected {}, got {}", kName<T>, describe(value));
  return *converted;
}

template <class T>
std::optional<T> Metadata::find_as(Key key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  const T converted = convert<T>(key, *value);
  if constexpr (std::is_floating_point_v<T>)
    if (!std::isfinite(converted)) throw error(key, "expected a finite number, got {}", converted);
  return converted;
}

template <class T>
std::optional<std::vector<T>> Metadata::find_list(Key key) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) throw error(key, "expected [{}], got {}", kName<T>, value->type_name());
  std::vector<T> list;
  list.reserve(value->count);
  Reader reader(value->bytes, source_);
  for (uint64_t i = 0; i < value->count; ++i) {
    const Value element = read_value(reader, value->element, 1);
    const std::optional<T> converted = element.as<T>();
    if (!converted) throw error(key, "element {}: expected {}, got {}", i, kName<T>, describe(element));
    if constexpr (std::is_floating_point_v<T>)
      if (std::isnan(*converted)) throw error(key, "element {} is not a number", i);
    list.push_back(*converted);
  }
  return list;
}

template <class T>
std::optional<std::vector<T>> Metadata::find_per_layer(Key key, size_t n_layers) const {
  const Value* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) return std::vector<T>(n_layers, *find_as<T>(key));
  if (value->count != n_layers) throw error(key, "{} elements for {} layers", value->count, n_layers);
  return find_list<T>(key);
}

template std::optional<uint32_t> Metadata::find_as(Key) const;
template std::optional<int32_t> Metadata::find_as(Key) const;
template std::optional<uint64_t> Metadata::find_as(Key) const;
template std::optional<int64_t> Metadata::find_as(Key) const;
template std::optional<float> Metadata::find_as(Key) const;
template std::optional<bool> Metadata::find_as(Key) const;
template std::optional<std::string_view> Metadata::find_as(Key) const;

template std::optional<std::vector<uint32_t>> Metadata::find_list(Key) const;
template std::optional<std::vector<int32_t>> Metadata::find_list(Key) const;
template std::optional<std::vector<float>> Metadata::find_list(Key) const;
template std::optional<std::vector<bool>> Metadata::find_list(Key) const;
template std::optional<std::vector<std::string_view>> Metadata::find_list(Key) const;

template std::optional<std::vector<uint32_t>> Metadata::find_per_layer(Key, size_t) const;
template std::optional<std::vector<float>> Metadata::find_per_layer(Key, size_t) const;
template std::optional<std::vector<bool>> Metadata::find_per_layer(Key, size_t) const;

}  // namespace ingot
