// Writes GGUF bytes piece by piece, valid or invalid, for tests of refused input. (GgufWriter writes only valid files.)
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/value.h"

namespace ingot {

class GgufBytes {
 public:
  template <class T>
  GgufBytes& put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBytes& u8(uint8_t value) { return put(value); }
  GgufBytes& u32(uint32_t value) { return put(value); }
  GgufBytes& u64(uint64_t value) { return put(value); }
  GgufBytes& type(ValueType value) { return put(value); }
  GgufBytes& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  GgufBytes& str(std::string_view text) { return u64(text.size()).raw(text); }
  GgufBytes& zeros(size_t n) {
    bytes_.append(n, '\0');
    return *this;
  }
  GgufBytes& align(size_t alignment = 32) { return zeros((alignment - bytes_.size() % alignment) % alignment); }

  GgufBytes& header(uint64_t n_tensors, uint64_t n_entries, uint32_t version = 3) {
    return raw("GGUF").u32(version).u64(n_tensors).u64(n_entries);
  }
  GgufBytes& u32_entry(std::string_view key, uint32_t value) { return str(key).type(ValueType::kU32).u32(value); }
  GgufBytes& str_entry(std::string_view key, std::string_view value) {
    return str(key).type(ValueType::kString).str(value);
  }
  // An array of `count` elements; the caller puts the elements next.
  GgufBytes& array_entry(std::string_view key, uint32_t element_type, uint64_t count) {
    return str(key).type(ValueType::kArray).u32(element_type).u64(count);
  }
  GgufBytes& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t ggml_type, uint64_t offset) {
    str(name).u32(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) u64(dim);
    return u32(ggml_type).u64(offset);
  }

  size_t size() const { return bytes_.size(); }
  std::span<const uint8_t> span() const { return {reinterpret_cast<const uint8_t*>(bytes_.data()), bytes_.size()}; }

 private:
  std::string bytes_;
};

}  // namespace ingot
