// Arrays as bytes, for messages between the ranks of a model. All ranks are the same version of the program.
#pragma once
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/check.h"

namespace ingot {

class MessageWriter {
 public:
  template <class T>
  void add(std::span<const T> values) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto n = static_cast<int64_t>(values.size());
    add_bytes(&n, sizeof(n));
    add_bytes(values.data(), values.size_bytes());
  }
  template <class T>
  void add_one(const T& value) {
    add(std::span<const T>(&value, 1));
  }
  std::vector<uint8_t> bytes;

 private:
  void add_bytes(const void* data, size_t n) {
    const auto* first = static_cast<const uint8_t*>(data);
    bytes.insert(bytes.end(), first, first + n);
  }
};

// Reads the arrays in the order in which they were added.
class MessageReader {
 public:
  explicit MessageReader(std::span<const uint8_t> message) : rest_(message) {}
  template <class T>
  std::vector<T> next() {
    int64_t n = 0;
    take(&n, sizeof(n));
    CHECK_LE(static_cast<size_t>(n) * sizeof(T), rest_.size());
    std::vector<T> values(static_cast<size_t>(n));
    take(values.data(), values.size() * sizeof(T));
    return values;
  }
  template <class T>
  T next_one() {
    return next<T>().at(0);
  }

 private:
  void take(void* to, size_t n) {
    CHECK_LE(n, rest_.size());
    if (n > 0) std::memcpy(to, rest_.data(), n);
    rest_ = rest_.subspan(n);
  }
  std::span<const uint8_t> rest_;
};

}  // namespace ingot
