// Reads everything in an accepted model, like its users, and checks the promises on which they rely. For the sweeps of
// damaged files and the fuzzer; run it under a sanitizer.
#pragma once
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "io/gguf/gguf.h"

namespace ingot {

inline void ensure(bool condition, const char* what) {
  if (!condition) throw std::logic_error(what);
}

// Calls each getter; most getters refuse the value, but only by Error.
inline void walk_getters(const Metadata& metadata, std::string_view key) {
  auto attempt = [](auto get) {
    try {
      get();
    } catch (const Error&) {}
  };
  attempt([&] { metadata.get_u32(key); });
  attempt([&] { metadata.find_i64(key).value(); });
  attempt([&] { metadata.get_f32(key); });
  attempt([&] { metadata.find_bool(key).value(); });
  attempt([&] { metadata.get_string(key); });
  attempt([&] { metadata.get_u32s(key); });
  attempt([&] { metadata.find_f32s(key).value(); });
  attempt([&] { metadata.find_bool_per_layer(key, 2).value(); });
  attempt([&] {
    size_t total = 0;
    for (std::string_view text : metadata.get_strings(key)) total += std::count(text.begin(), text.end(), 'e');
    ensure(total <= metadata.find(key)->bytes.size(), "strings lie inside their array");
  });
  attempt([&] { metadata.find_u32_per_layer(key, 3).value(); });
}

// Throws std::logic_error if the model breaks a promise. Returns a sum over all bytes, so that they are read. The
// getters take most of the time, because most of them throw.
inline uint64_t walk(const Gguf& model, bool call_getters = true) {
  uint64_t sum = 0;
  for (const Metadata::Entry& entry : model.metadata().entries()) {
    ensure(!entry.key.empty() && model.metadata().find(entry.key) == &entry.value, "each key is found");
    for (char c : render(entry.value)) ensure(static_cast<unsigned char>(c) >= 0x20, "rendered text is printable");
    sum += entry.value.elements(100).size();
    if (call_getters) walk_getters(model.metadata(), entry.key);
  }
  std::vector<std::pair<const uint8_t*, const uint8_t*>> ranges;
  for (const TensorInfo& tensor : model.tensors()) {
    ensure(model.find(tensor.name) == &tensor, "each tensor is found");
    ensure(tensor.n_dims >= 1 && tensor.n_dims <= 4 && tensor.n_elements() > 0, "shapes are positive");
    const auto data = model.data(tensor);
    ensure(data.size() == tensor.n_bytes && !data.empty(), "the data is there");
    for (uint8_t byte : data) sum += byte;
    ranges.emplace_back(data.data(), data.data() + data.size());
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) ensure(ranges[i - 1].second <= ranges[i].first, "tensors are disjoint");
  return sum;
}

}  // namespace ingot
