// The tensors of safetensors files as a map, for tests that rename, add or encode tensors and write the files again.
#pragma once
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"

namespace ingot {

struct RawTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
using RawTensors = std::map<std::string, RawTensor>;

template <class T>
RawTensor raw_tensor(const char* dtype, std::vector<int64_t> shape, const std::vector<T>& values) {
  return {dtype, std::move(shape),
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}

inline void read_safetensors(const std::string& path, RawTensors& out) {
  const std::string bytes = read_file(path);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const auto header = nlohmann::ordered_json::parse(bytes.substr(8, length));
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = tensor["data_offsets"][0], end = tensor["data_offsets"][1];
    out[name] = {tensor["dtype"], tensor["shape"], bytes.substr(8 + length + begin, end - begin)};
  }
}

// Reads all safetensors files of the directory, and removes them.
inline RawTensors take_safetensors(const std::filesystem::path& directory) {
  RawTensors out;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (entry.path().string().find(".safetensors") != std::string::npos) files.push_back(entry.path());
  for (const auto& file : files) {
    if (file.extension() == ".safetensors") read_safetensors(file.string(), out);
    std::filesystem::remove(file);
  }
  return out;
}

inline std::string safetensors_of(const RawTensors& tensors) {
  auto header = nlohmann::ordered_json::object();
  header["__metadata__"] = {{"format", "pt"}};
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", tensor.shape},
                    {"data_offsets", {data.size(), data.size() + tensor.bytes.size()}}};
    data += tensor.bytes;
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + text + data;
}

}  // namespace ingot
