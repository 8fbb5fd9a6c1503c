// PlacedTensors: finds tensors of a model that has no table of tensors, such as a vision tower, checks their shapes and
// puts them on a backend.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "model/files/weights.h"

namespace ingot {

class PlacedTensors {
 public:
  // what: whose tensors they are, for messages: "the vision tower".
  PlacedTensors(WeightSource& source, Backend& backend, std::string what)
      : source_(source), backend_(backend), what_(std::move(what)) {}

  bool has(const std::string& name) const;
  // The number of a tensor's numbers. Throws Error if it is missing.
  int64_t length(const std::string& name) const;
  // A matrix [n_out, n_in]. Throws Error naming a tensor that is missing or has another shape.
  Weight matrix(const std::string& name, int64_t n_out, int64_t n_in, unsigned use = kForMatmul);
  // The rows of a matrix [rows.size(), n_in] in another order.
  Weight matrix_in_order(const std::string& name, const std::vector<int>& rows, int64_t n_in);
  // A matrix that is stored as a convolution [n_out, ..., kernel], such as over pieces of a picture.
  Weight convolution(const std::string& name, int64_t n_out, int64_t n_in, int64_t kernel);
  // Rows [first, first + n_out) of a matrix with `total` rows.
  Weight rows_of(const std::string& name, int64_t total, int64_t first, int64_t n_out, int64_t n_in,
                 unsigned use = kForMatmul);
  std::vector<float> numbers_of_rows(const std::string& name, int64_t total, int64_t first, int64_t n_out,
                                     int64_t n_in);
  // The numbers of a tensor [n_out, n_in] on the host. optional: empty if the checkpoint lacks the tensor.
  std::vector<float> numbers(const std::string& name, int64_t n_out, int64_t n_in, bool optional = false);
  // Those of a convolution.
  std::vector<float> convolution_numbers(const std::string& name, int64_t n_out, int64_t n_in, int64_t kernel);
  // As numbers(), on the backend.
  Tensor vector(const std::string& name, int64_t n, bool optional = false);
  Tensor upload(const std::vector<float>& values, int64_t n_rows, int64_t n_cols);
  // A matrix from numbers that the caller has made of tensors, in f32 or f16.
  Weight matrix_of(const std::vector<float>& values, int64_t n_out, int64_t n_in, Format format = Format::F32);
  size_t bytes() const { return bytes_; }

  // Backends may read matrices where these are.
  std::vector<std::shared_ptr<void>> take_kept() { return std::move(kept_); }

 private:
  std::vector<float> decoded(const HostTensor& host, int64_t first, int64_t n_out);
  Weight prepare(Format format, int64_t n_out, int64_t n_in, std::shared_ptr<std::vector<uint8_t>> bytes);
  HostTensor find(const std::string& name, int64_t n_out, int64_t n_in, int64_t kernel = 0);

  WeightSource& source_;
  Backend& backend_;
  std::string what_;
  size_t bytes_ = 0;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace ingot
