// Reads everything in an accepted model, like its users, and checks the promises on which they rely. For the sweeps of
// damaged files and the fuzzer; run it under a sanitizer.
#pragma once
#include <algorithm>
#include <vector>

#include "io/huggingface/safetensors.h"
#include "io/walk.h"

namespace ingot {

// Throws std::logic_error if the model breaks a promise. Returns a sum over all bytes, so that they are read.
inline uint64_t walk(const Safetensors& model) {
  uint64_t sum = 0, n_bytes = 0;
  std::vector<std::pair<const uint8_t*, const uint8_t*>> ranges;
  for (const SafeTensor& tensor : model.tensors()) {
    ensure(model.find(tensor.name) == &tensor, "each tensor is found");
    const auto data = model.data(tensor);
    ensure(data.size() == tensor.n_bytes, "the data is there");
    ensure(static_cast<uint64_t>(tensor.n_elements()) * tensor.dtype->bits == tensor.n_bytes * 8,
           "shape and size agree");
    for (uint8_t byte : data) sum += byte;
    n_bytes += tensor.n_bytes;
    if (!data.empty()) ranges.emplace_back(data.data(), data.data() + data.size());
  }
  for (const auto& [key, value] : model.metadata()) sum += key.size() + value.size();
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    ensure(ranges[i - 1].second == ranges[i].first || model.n_files() > 1, "tensors tile the data");
  ensure(n_bytes < model.file_bytes(), "tensors lie inside the files");
  return sum;
}

}  // namespace ingot
