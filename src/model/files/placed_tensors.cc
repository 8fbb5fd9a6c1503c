#include "model/files/placed_tensors.h"

#include <cstring>

#include "base/error.h"
#include "quant/encode.h"
#include "quant/format.h"

namespace ingot {

bool PlacedTensors::has(const std::string& name) const {
  HostTensor host;
  return source_.find_shape(name, 0, 0, host);
}

int64_t PlacedTensors::length(const std::string& name) const {
  HostTensor host;
  if (!source_.find_shape(name, 0, 0, host))
    throw Error("{}: tensor '{}' of {} is missing", source_.name(), name, what_);
  return host.n_out * host.n_in;
}

HostTensor PlacedTensors::find(const std::string& name, int64_t n_out, int64_t n_in, int64_t kernel) {
  HostTensor host;
  if (!source_.find(name, n_out, n_in, host))
    throw Error("{}: tensor '{}' of {} is missing", source_.name(), name, what_);
  // A convolution over patches is a product with rows of all pixels of a patch.
  const bool is_convolution =
      kernel > 0 && info(host.format).block_size == 1 && host.n_in == kernel && host.n_out * host.n_in == n_out * n_in;
  if (!is_convolution && (host.n_out != n_out || host.n_in != n_in))
    throw Error("{}: tensor '{}' of {} is [{}, {}]: expected [{}, {}]", source_.name(), name, what_, host.n_out,
                host.n_in, n_out, n_in);
  host.n_out = n_out, host.n_in = n_in;
  bytes_ += static_cast<size_t>(n_out) * row_bytes(host.format, n_in);
  return host;
}

Weight PlacedTensors::matrix(const std::string& name, int64_t n_out, int64_t n_in, unsigned use) {
  return rows_of(name, n_out, 0, n_out, n_in, use);
}

// A backend that copies the bytes leaves none to keep.
Weight PlacedTensors::prepare(Format format, int64_t n_out, int64_t n_in, std::shared_ptr<std::vector<uint8_t>> bytes) {
  const Weight weight =
      backend_.prepare({.format = format, .n_out = n_out, .n_in = n_in, .codes = bytes->data()}, kForMatmul);
  if (weight.codes != nullptr) kept_.push_back(std::move(bytes));
  return weight;
}

Weight PlacedTensors::matrix_in_order(const std::string& name, const std::vector<int>& rows, int64_t n_in) {
  const auto n_out = static_cast<int64_t>(rows.size());
  const HostTensor host = find(name, n_out, n_in);
  const size_t n_bytes = row_bytes(host.format, n_in);
  const auto bytes = std::make_shared<std::vector<uint8_t>>(rows.size() * n_bytes);
  for (size_t i = 0; i < rows.size(); ++i)
    std::memcpy(bytes->data() + i * n_bytes, host.data + static_cast<size_t>(rows[i]) * n_bytes, n_bytes);
  source_.release(host);
  return prepare(host.format, n_out, n_in, bytes);
}

Weight PlacedTensors::convolution(const std::string& name, int64_t n_out, int64_t n_in, int64_t kernel) {
  const HostTensor host = find(name, n_out, n_in, kernel);
  const Weight weight =
      backend_.prepare({.format = host.format, .n_out = n_out, .n_in = n_in, .codes = host.data}, kForMatmul);
  if (weight.codes == nullptr) source_.release(host);
  return weight;
}

Weight PlacedTensors::rows_of(const std::string& name, int64_t total, int64_t first, int64_t n_out, int64_t n_in,
                              unsigned use) {
  const HostTensor host = find(name, total, n_in);
  const uint8_t* rows = host.data + first * static_cast<int64_t>(row_bytes(host.format, n_in));
  const Weight weight =
      backend_.prepare({.format = host.format, .n_out = n_out, .n_in = n_in, .codes = rows}, use);
  if (weight.codes == nullptr && first + n_out == total) source_.release(host);
  return weight;
}

std::vector<float> PlacedTensors::numbers_of_rows(const std::string& name, int64_t total, int64_t first, int64_t n_out,
                                                  int64_t n_in) {
  return decoded(find(name, total, n_in), first, n_out);
}

std::vector<float> PlacedTensors::numbers(const std::string& name, int64_t n_out, int64_t n_in, bool optional) {
  if (optional && !has(name)) return {};
  return numbers_of_rows(name, n_out, 0, n_out, n_in);
}

std::vector<float> PlacedTensors::convolution_numbers(const std::string& name, int64_t n_out, int64_t n_in,
                                                     int64_t kernel) {
  return decoded(find(name, n_out, n_in, kernel), 0, n_out);
}

std::vector<float> PlacedTensors::decoded(const HostTensor& host, int64_t first, int64_t n_out) {
  const int64_t n_in = host.n_in, n_bytes = static_cast<int64_t>(row_bytes(host.format, n_in));
  std::vector<float> values(static_cast<size_t>(n_out * n_in));
  for (int64_t i = 0; i < n_out; ++i)
    decode_row(host.format, host.data + (first + i) * n_bytes, values.data() + i * n_in, n_in);
  source_.release(host);
  return values;
}

Tensor PlacedTensors::vector(const std::string& name, int64_t n, bool optional) {
  const std::vector<float> values = numbers(name, 1, n, optional);
  return values.empty() ? Tensor{} : upload(values, 1, n);
}

Tensor PlacedTensors::upload(const std::vector<float>& values, int64_t n_rows, int64_t n_cols) {
  CHECK_EQ(static_cast<int64_t>(values.size()), n_rows * n_cols);
  const Tensor tensor = backend_.alloc(DType::kF32, n_rows, n_cols);
  backend_.upload(tensor, values.data());
  return tensor;
}

Weight PlacedTensors::matrix_of(const std::vector<float>& values, int64_t n_out, int64_t n_in, Format format) {
  const auto kept = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(n_out) * row_bytes(format, n_in));
  encode_row(format, values.data(), kept->data(), n_out * n_in);
  return prepare(format, n_out, n_in, kept);
}

}  // namespace ingot
