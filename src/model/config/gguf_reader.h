// Reads the keys of a GGUF file that describe the model.
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "io/gguf/gguf.h"

namespace ingot {

// Reads "<arch>.<key>" and names that key in every error.
class GgufKeys {
 public:
  GgufKeys(const Metadata& metadata, std::string prefix) : metadata_(metadata), prefix_(std::move(prefix) + ".") {}

  int integer(const char* key, int64_t low, int64_t high) const {
    return in_range(key, metadata_.get_u32(prefix_ + key), low, high);
  }
  int integer_or(const char* key, int64_t fallback, int64_t low, int64_t high) const {
    return in_range(key, metadata_.find_u32(prefix_ + key).value_or(static_cast<uint32_t>(fallback)), low, high);
  }
  // One number for all layers, or a list with equal numbers for every layer. `skip`: a number of the list to ignore.
  int integer_of_layers(const char* key, int64_t low, int64_t high, std::optional<uint32_t> skip = {}) const {
    const Value* value = metadata_.find(prefix_ + key);
    if (value == nullptr || !value->is_array()) return integer(key, low, high);
    const auto list = *metadata_.find_u32_per_layer(prefix_ + key, metadata_.get_u32(prefix_ + "block_count"));
    const auto first = std::ranges::find_if(list, [&](uint32_t n) { return n != skip; });
    if (first == list.end()) throw error(key, "says {} of every layer", skip.value_or(0));
    for (size_t i = 0; i < list.size(); ++i)
      if (list[i] != *first && list[i] != skip)
        throw error(key, "is {} in layer {} and {} in layer {}: layers that differ in it are not supported", *first,
                    first - list.begin(), list[i], i);
    return in_range(key, *first, low, high);
  }
  // One number for all layers, or a list with a number for each of the first `n` layers; zeros if the key is missing.
  std::vector<int> integers_of_layers(const char* key, int64_t low, int64_t high, int n) const {
    const Value* value = metadata_.find(prefix_ + key);
    if (value == nullptr) return std::vector<int>(static_cast<size_t>(n));
    if (!value->is_array()) return std::vector<int>(static_cast<size_t>(n), integer(key, low, high));
    const auto list = *metadata_.find_u32_per_layer(prefix_ + key, metadata_.get_u32(prefix_ + "block_count"));
    std::vector<int> numbers;
    for (int i = 0; i < n; ++i) numbers.push_back(in_range(key, list[static_cast<size_t>(i)], low, high));
    return numbers;
  }
  float positive(const char* key) const { return above_zero(key, metadata_.get_f32(prefix_ + key)); }
  float positive_or(const char* key, float fallback) const {
    return above_zero(key, metadata_.find_f32(prefix_ + key).value_or(fallback));
  }
  float share_or(const char* key, float fallback) const {
    const float value = metadata_.find_f32(prefix_ + key).value_or(fallback);
    if (!(value >= 0 && value <= 1)) throw error(key, "{} is out of range: expected 0 to 1", value);
    return value;
  }
  std::string string_or(const char* key, std::string_view fallback) const {
    return std::string(metadata_.find_string(prefix_ + key).value_or(fallback));
  }
  bool boolean_or(const char* key, bool fallback) const {
    return metadata_.find_bool(prefix_ + key).value_or(fallback);
  }
  const Metadata& metadata() const { return metadata_; }
  std::string name(const char* key) const { return prefix_ + key; }
  bool has(const char* key) const { return metadata_.contains(prefix_ + key); }
  template <class... Args>
  Error error(const char* key, fmt::format_string<Args...> format, Args&&... args) const {
    return metadata_.error(prefix_ + key, format, std::forward<Args>(args)...);
  }

 private:
  int in_range(const char* key, int64_t value, int64_t low, int64_t high) const {
    if (value < low || value > high) throw error(key, "{} is out of range: expected {} to {}", value, low, high);
    return static_cast<int>(value);
  }
  float above_zero(const char* key, float value) const {
    if (!(value > 0)) throw error(key, "{} is out of range: expected a positive number", value);
    return value;
  }

  const Metadata& metadata_;
  const std::string prefix_;
};

}  // namespace ingot
