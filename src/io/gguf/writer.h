// Writes GGUF files: metadata in the order of the set() calls, then aligned tensors in the order of the add_tensor()
// calls. The same calls give the same bytes. Used by the converters, the quantizer and tests.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "io/gguf/file.h"
#include "io/value.h"

namespace ingot {

namespace gguf_encoding {

template <class T>
constexpr ValueType type_of() {
  if constexpr (std::is_same_v<T, bool>)
    return ValueType::kBool;
  else if constexpr (std::is_same_v<T, float>)
    return ValueType::kF32;
  else if constexpr (std::is_same_v<T, double>)
    return ValueType::kF64;
  else if constexpr (std::is_integral_v<T>) {
    constexpr bool is_signed = std::is_signed_v<T>;
    if constexpr (sizeof(T) == 1) return is_signed ? ValueType::kI8 : ValueType::kU8;
    if constexpr (sizeof(T) == 2) return is_signed ? ValueType::kI16 : ValueType::kU16;
    if constexpr (sizeof(T) == 4) return is_signed ? ValueType::kI32 : ValueType::kU32;
    if constexpr (sizeof(T) == 8) return is_signed ? ValueType::kI64 : ValueType::kU64;
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>)
    return ValueType::kString;
  else
    return ValueType::kArray;  // anything that can be iterated
}

template <class T>
void put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline void put_string(std::string& out, std::string_view text) {
  put(out, uint64_t{text.size()});
  out += text;
}

template <class T>
void encode(std::string& out, const T& value) {
  if constexpr (type_of<T>() == ValueType::kString) {
    put_string(out, std::string_view(value));
  } else if constexpr (type_of<T>() == ValueType::kArray) {
    using Element = std::remove_cv_t<typename T::value_type>;
    put(out, type_of<Element>());
    put(out, uint64_t{value.size()});
    for (const Element& element : value) encode<Element>(out, element);
  } else if constexpr (std::is_same_v<T, bool>) {
    put(out, static_cast<uint8_t>(value ? 1 : 0));
  } else {
    put(out, value);
  }
}

}  // namespace gguf_encoding

class GgufWriter {
 public:
  // Called to create a tensor's data when the tensor is written, so a large model is never in memory as a whole.
  using Produce = std::function<std::vector<uint8_t>()>;
  using Sink = std::function<void(std::span<const uint8_t>)>;

  explicit GgufWriter(uint32_t version = 3);  // 2 or 3

  // Sets a key to a bool, number or string, or to a vector or span of these (or of vectors), with the C++ type. Setting
  // a key again keeps its position. general.alignment sets the file's alignment. Throws Error for a name or alignment
  // that the format does not allow.
  template <class T>
  void set(std::string_view key, const T& value) {
    std::string bytes;
    gguf_encoding::encode(bytes, value);
    set_encoded(key, gguf_encoding::type_of<T>(), std::move(bytes));
  }
  void set(std::string_view key, const Value& value);  // copies a value of another file

  // shape[0] is the row length, as in TensorInfo. Throws Error if the format does not allow the name, type or shape, or
  // if the name is taken. If the size of the data does not match type and shape, `data` throws Error here, and
  // `produce` throws Error during the write.
  void add_tensor(std::string_view name, uint32_t ggml_type, std::vector<uint64_t> shape, Produce produce);
  void add_tensor(std::string_view name, uint32_t ggml_type, std::vector<uint64_t> shape, std::vector<uint8_t> data);

  void write_to(const Sink& sink) const;
  std::vector<uint8_t> to_bytes() const;
  // Writes one tensor at a time. The file appears whole or not at all; `path` may be a file that is being read.
  void write(const std::string& path) const;

 private:
  struct Entry {
    std::string key;
    ValueType type;
    std::string bytes;
  };
  struct Tensor {
    std::string name;
    uint32_t ggml_type;
    std::vector<uint64_t> shape;
    uint64_t n_bytes;
    Produce produce;
  };
  void set_encoded(std::string_view key, ValueType type, std::string bytes);
  uint64_t padded(uint64_t n_bytes) const { return (n_bytes + alignment_ - 1) / alignment_ * alignment_; }
  std::string header() const;

  uint32_t version_;
  uint32_t alignment_ = kGgufDefaultAlignment;
  std::vector<Entry> entries_;
  std::vector<Tensor> tensors_;
  std::unordered_map<std::string, size_t> entry_of_;  // position of a key
  std::unordered_set<std::string> names_;             // names of tensors
};

}  // namespace ingot
