// One metadata value, as a view of the GGUF bytes that hold it. Decodes and copies on request only, so that a merges
// array of 600,000 strings costs one walk over its lengths and no allocation. A value is a scalar, a string, an array
// of these, or an array of arrays (two levels at most).
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/reader.h"

namespace ingot {

// The enumerators have the numbers of the file format.
enum class ValueType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
inline constexpr uint32_t kNumValueTypes = 13;
inline constexpr int kMaxArrayDepth = 2;

const char* value_type_name(ValueType type);  // "u32", "str", "arr", ...

struct Value {
  ValueType type = ValueType::kU8;
  ValueType element = ValueType::kU8;  // of an array
  uint64_t count = 1;                  // of an array
  std::span<const uint8_t> bytes;      // the scalar, the text, or the elements as stored (unaligned)

  bool is_array() const { return type == ValueType::kArray; }
  std::string type_name() const;  // "u32", or "[str]" for an array of strings

  // The value as T (bool, a 32 or 64 bit integer, float, double or string_view); nothing if the kind differs or the
  // value does not fit. Any integer type gives an integer; f32 and f64 give float and double. A bool is not an integer.
  template <class T>
  std::optional<T> as() const;

  // Up to `max` elements of an array, from the first on, each a view.
  std::vector<Value> elements(size_t max = std::numeric_limits<size_t>::max()) const;
};

// Reads one value of this type, checking every count and length against the remaining bytes. Throws Error.
Value read_value(Reader& reader, ValueType type, int depth = 0);
ValueType read_value_type(Reader& reader, const char* field);

// For people: strings quoted, control bytes escaped, long text cut, long arrays as `[151936 x str] "!", "#", ...`.
std::string render(const Value& value, size_t max_items = 8);

}  // namespace ingot
