#include "io/gguf/writer.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"

namespace ingot {
namespace {

using gguf_encoding::put;
using gguf_encoding::put_string;

std::span<const uint8_t> as_bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

void check_name(const char* what, std::string_view name, size_t max_bytes) {
  if (const char* fault = gguf_name_fault(name, max_bytes)) throw Error("{} '{}' {}", what, printable(name), fault);
}

void check_size(const std::string& name, uint64_t expected, uint64_t actual) {
  if (actual != expected)
    throw Error("tensor '{}': {} bytes of data for a shape of {} bytes", printable(name), actual, expected);
}

uint32_t decode_alignment(ValueType type, const std::string& bytes) {
  uint32_t alignment = 0;
  if (type == ValueType::kU32) std::memcpy(&alignment, bytes.data(), sizeof alignment);
  if (!is_gguf_alignment(alignment))
    throw Error("{} must be a u32, a power of two up to {}", kGgufAlignmentKey, kGgufMaxAlignment);
  return alignment;
}

}  // namespace

GgufWriter::GgufWriter(uint32_t version) : version_(version) { CHECK(version == 2 || version == 3); }

void GgufWriter::set(std::string_view key, const Value& value) {
  std::string bytes;
  if (value.is_array()) {
    put(bytes, value.element);
    put(bytes, value.count);
  }
  if (value.type == ValueType::kString) put(bytes, uint64_t{value.bytes.size()});
  bytes += as_text(value.bytes);
  set_encoded(key, value.type, std::move(bytes));
}

void GgufWriter::set_encoded(std::string_view key, ValueType type, std::string bytes) {
  check_name("metadata key", key, kGgufMaxKeyBytes);
  if (key == kGgufAlignmentKey) alignment_ = decode_alignment(type, bytes);
  const auto [it, is_new] = entry_of_.try_emplace(std::string(key), entries_.size());
  if (is_new) entries_.emplace_back();
  entries_[it->second] = {std::string(key), type, std::move(bytes)};
}

void GgufWriter::add_tensor(std::string_view name, uint32_t ggml_type, std::vector<uint64_t> shape, Produce produce) {
  check_name("tensor", name, kGgufMaxTensorName);
  if (shape.empty() || shape.size() > kGgufMaxDims)
    throw Error("tensor '{}': {} dimensions; the format has 1 to {}", printable(name), shape.size(), kGgufMaxDims);
  if (!names_.emplace(name).second) throw Error("tensor '{}' is added twice", printable(name));
  const uint64_t n_bytes = gguf_tensor_bytes(ggml_type, shape);
  tensors_.push_back({std::string(name), ggml_type, std::move(shape), n_bytes, std::move(produce)});
}

void GgufWriter::add_tensor(std::string_view name, uint32_t ggml_type, std::vector<uint64_t> shape,
                            std::vector<uint8_t> data) {
  const uint64_t n_bytes = data.size();
  add_tensor(name, ggml_type, std::move(shape), [data = std::move(data)] { return data; });
  check_size(tensors_.back().name, tensors_.back().n_bytes, n_bytes);
}

std::string GgufWriter::header() const {
  std::string out = "GGUF";
  put(out, version_);
  put(out, uint64_t{tensors_.size()});
  put(out, uint64_t{entries_.size()});
  for (const Entry& entry : entries_) {
    put_string(out, entry.key);
    put(out, entry.type);
    out += entry.bytes;
  }
  uint64_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    put_string(out, tensor.name);
    put(out, static_cast<uint32_t>(tensor.shape.size()));
    for (const uint64_t dim : tensor.shape) put(out, dim);
    put(out, tensor.ggml_type);
    put(out, offset);
    offset += padded(tensor.n_bytes);
  }
  return out;
}

void GgufWriter::write_to(const Sink& sink) const {
  const std::string zeros(alignment_, '\0');
  auto write_padded = [&](std::span<const uint8_t> bytes) {
    sink(bytes);
    sink(as_bytes(zeros).first(padded(bytes.size()) - bytes.size()));
  };
  write_padded(as_bytes(header()));
  for (const Tensor& tensor : tensors_) {
    const std::vector<uint8_t> data = tensor.produce();
    check_size(tensor.name, tensor.n_bytes, data.size());
    write_padded(data);
  }
}

std::vector<uint8_t> GgufWriter::to_bytes() const {
  std::vector<uint8_t> out;
  write_to([&](std::span<const uint8_t> bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); });
  return out;
}

void GgufWriter::write(const std::string& path) const {
  FileWriter file(path);
  write_to([&](std::span<const uint8_t> bytes) { file.write(bytes); });
  file.commit();
}

}  // namespace ingot
