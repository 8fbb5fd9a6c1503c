// Writes safetensors files tensor by tensor, valid or invalid, for the tests of quantized checkpoints.
#pragma once
#include <fmt/format.h>

#include <string>
#include <vector>

#include "io/huggingface/safetensors_file.h"
#include "io/safetensors_bytes.h"

namespace ingot {

class QuantizedBytes {
 public:
  // The bytes are `data`; if `data` is shorter than the shape, the bytes are 0, 1, 2, ...
  QuantizedBytes& add(const std::string& name, const std::string& dtype, const std::vector<int64_t>& dims,
                      std::string data = "") {
    size_t n_bytes = safe_dtype(dtype)->bits / 8;
    for (const int64_t dim : dims) n_bytes *= static_cast<size_t>(dim);
    for (size_t i = data.size(); i < n_bytes; ++i) data += static_cast<char>(i);
    data.resize(n_bytes);
    tensors_.push_back({name, dtype, dims, std::move(data)});
    return *this;
  }
  // Replaces a tensor; with a null dtype, removes the tensor.
  QuantizedBytes& replace(const std::string& name, const char* dtype, const std::vector<int64_t>& dims,
                          const std::string& data = "") {
    std::erase_if(tensors_, [&](const Tensor& t) { return t.name == name; });
    return dtype == nullptr ? *this : add(name, dtype, dims, data);
  }

  std::string bytes() const {
    std::string header = "{", data;
    for (const Tensor& t : tensors_) {
      std::string shape;
      for (const int64_t dim : t.dims) shape += fmt::format("{}{}", shape.empty() ? "" : ",", dim);
      header += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                            data.empty() && header == "{" ? "" : ",", t.name, t.dtype, shape, data.size(),
                            data.size() + t.data.size());
      data += t.data;
    }
    header += "}";
    return u64_bytes(header.size()) + header + data;
  }

 private:
  struct Tensor {
    std::string name, dtype;
    std::vector<int64_t> dims;
    std::string data;
  };
  std::vector<Tensor> tensors_;
};

}  // namespace ingot
