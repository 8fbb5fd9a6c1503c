#include "io/value.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

namespace ingot {
namespace {

struct TypeRow {
  const char* name;
  uint8_t n_bytes;      // 0: varies
  uint8_t n_bytes_min;  // the smallest encoding in a file
};

constexpr TypeRow kTypes[kNumValueTypes] = {{"u8", 1, 1},  {"i8", 1, 1},  {"u16", 2, 2},  {"i16", 2, 2}, {"u32", 4, 4},
                                            {"i32", 4, 4}, {"f32", 4, 4}, {"bool", 1, 1}, {"str", 0, 8}, {"arr", 0, 12},
                                            {"u64", 8, 8}, {"i64", 8, 8}, {"f64", 8, 8}};

const TypeRow& row(ValueType type) { return kTypes[static_cast<uint32_t>(type)]; }

template <class T>
T load(std::span<const uint8_t> bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// Calls f with the decoded scalar, or with the text.
template <class F>
auto visit(const Value& value, const F& f) {
  switch (value.type) {
    case ValueType::kU8: return f(load<uint8_t>(value.bytes));
    case ValueType::kI8: return f(load<int8_t>(value.bytes));
    case ValueType::kU16: return f(load<uint16_t>(value.bytes));
    case ValueType::kI16: return f(load<int16_t>(value.bytes));
    case ValueType::kU32: return f(load<uint32_t>(value.bytes));
    case ValueType::kI32: return f(load<int32_t>(value.bytes));
    case ValueType::kU64: return f(load<uint64_t>(value.bytes));
    case ValueType::kI64: return f(load<int64_t>(value.bytes));
    case ValueType::kF32: return f(load<float>(value.bytes));
    case ValueType::kF64: return f(load<double>(value.bytes));
    case ValueType::kBool: return f(load<uint8_t>(value.bytes) != 0);  // any byte but 0 is true
    default: return f(as_text(value.bytes));
  }
}

// Converts a value of type From to To, if the kind is right and the value fits.
template <class To, class From>
std::optional<To> convert(From from) {
  constexpr bool same_kind = std::is_same_v<To, bool> == std::is_same_v<From, bool>;
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else if constexpr (std::is_integral_v<To> && std::is_integral_v<From> && same_kind) {
    if (std::in_range<To>(from)) return static_cast<To>(from);
    return std::nullopt;
  } else if constexpr (std::is_floating_point_v<To> && std::is_floating_point_v<From>) {
    if (std::isfinite(from) && std::fabs(from) > std::numeric_limits<To>::max()) return std::nullopt;
    return static_cast<To>(from);
  } else {
    return std::nullopt;
  }
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : printable(text)) {
    if (c == '"') out += '\\';
    out += c;
  }
  return out + "\"";
}

Value read_array(Reader& reader, int depth) {
  if (depth >= kMaxArrayDepth) reader.fail("array", "nested more than {} levels deep", kMaxArrayDepth);
  Value array{ValueType::kArray, read_value_type(reader, "array element type"), 0, {}};
  array.count = reader.read<uint64_t>("array length");
  const TypeRow& element = row(array.element);
  if (array.count > reader.remaining() / element.n_bytes_min)
    reader.fail("array length", "truncated: {} elements need at least {} bytes each, have {} bytes", array.count,
                element.n_bytes_min, reader.remaining());
  const uint64_t start = reader.offset();
  if (element.n_bytes != 0) {
    reader.take(array.count * element.n_bytes, "array");
  } else {
    for (uint64_t i = 0; i < array.count; ++i) read_value(reader, array.element, depth + 1);
  }
  array.bytes = reader.since(start);
  return array;
}

}  // namespace

const char* value_type_name(ValueType type) { return row(type).name; }

std::string Value::type_name() const {
  return is_array() ? fmt::format("[{}]", value_type_name(element)) : value_type_name(type);
}

template <class T>
std::optional<T> Value::as() const {
  if (is_array()) return std::nullopt;
  return visit(*this, [](auto decoded) { return convert<T>(decoded); });
}

template std::optional<bool> Value::as() const;
template std::optional<int32_t> Value::as() const;
template std::optional<uint32_t> Value::as() const;
template std::optional<int64_t> Value::as() const;
template std::optional<uint64_t> Value::as() const;
template std::optional<float> Value::as() const;
template std::optional<double> Value::as() const;
template std::optional<std::string_view> Value::as() const;

std::vector<Value> Value::elements(size_t max) const {
  std::vector<Value> out;
  if (!is_array()) return out;
  const size_t n = std::min<uint64_t>(count, max);
  out.reserve(n);
  Reader reader(bytes, "metadata");
  for (size_t i = 0; i < n; ++i) out.push_back(read_value(reader, element, 1));
  return out;
}

ValueType read_value_type(Reader& reader, const char* field) {
  const auto type = reader.read<uint32_t>(field);
  if (type >= kNumValueTypes) reader.fail(field, "unknown value type {}", type);
  return static_cast<ValueType>(type);
}

Value read_value(Reader& reader, ValueType type, int depth) {
  if (type == ValueType::kArray) return read_array(reader, depth);
  if (type != ValueType::kString) return {type, type, 1, reader.take(row(type).n_bytes, "value")};
  const std::string_view text = reader.read_string("string");
  return {type, type, 1, {reinterpret_cast<const uint8_t*>(text.data()), text.size()}};
}

std::string render(const Value& value, size_t max_items) {
  if (!value.is_array()) {
    return visit(value, [](auto decoded) {
      if constexpr (std::is_same_v<decltype(decoded), std::string_view>)
        return quoted(decoded);
      else
        return fmt::format("{}", decoded);
    });
  }
  std::string items;
  for (const Value& element : value.elements(max_items)) {
    if (!items.empty()) items += ", ";
    items += render(element, max_items);
  }
  if (value.count <= max_items) return "[" + items + "]";
  return fmt::format("[{} x {}] {}, ...", value.count, value_type_name(value.element), items);
}

}  // namespace ingot
