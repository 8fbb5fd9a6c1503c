// Writes the bytes of safetensors files, valid or invalid, for the tests and for the fuzzer's seeds.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ingot {

inline std::string u64_bytes(uint64_t value) { return {reinterpret_cast<const char*>(&value), sizeof value}; }

// A file with this header and n_data bytes of data: 0, 1, 2, ...
inline std::string safetensors_bytes(std::string_view header, size_t n_data) {
  std::string bytes = u64_bytes(header.size());
  bytes += header;
  for (size_t i = 0; i < n_data; ++i) bytes += static_cast<char>(i);
  return bytes;
}

inline std::span<const uint8_t> span_of(const std::string& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace ingot
