#include "io/huggingface/safetensors_file.h"

#include <algorithm>

#include "io/json.h"
#include "io/name_index.h"
#include "io/reader.h"
#include "io/sniff.h"

namespace ingot {
namespace {

using Kind = JsonEvent::Kind;

constexpr SafeDtype kDtypes[] = {
    {"BOOL", 8, {}},    {"U8", 8, {}},      {"I8", 8, {}},       {"F8_E4M3", 8, {}},         {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}}, {"F4", 4, {}},      {"F6_E2M3", 6, {}},  {"F6_E3M2", 6, {}},         {"I16", 16, {}},
    {"U16", 16, {}},    {"I32", 32, {}},    {"U32", 32, {}},     {"F16", 16, Format::F16},   {"BF16", 16, Format::BF16},
    {"I64", 64, {}},    {"U64", 64, {}},    {"F64", 64, {}},     {"F32", 32, Format::F32},   {"C64", 64, {}},
};
constexpr uint64_t kLengthBytes = 8;
constexpr const char* kMetadataKey = "__metadata__";

// Handles the events of the header: an object of tensors, each an object of dtype, shape and data_offsets. Offsets
// count from the data section until place_tensors changes them. Other members of a tensor are ignored, as in the
// reference implementation.
class HeaderReader {
 public:
  HeaderReader(const std::string& file, SafetensorsFile& out) : file_(file), out_(out) {}

  void on(const JsonEvent& event) {
    at_ = event.offset;
    const bool opens = event.kind == Kind::kBeginObject || event.kind == Kind::kBeginArray;
    const bool closes = event.kind == Kind::kEndObject || event.kind == Kind::kEndArray;
    depth_ -= closes;
    if (skipped_from_ > 0) {
      if (closes && depth_ == skipped_from_) skipped_from_ = 0;
    } else if (depth_ == 0) {
      if (!closes && event.kind != Kind::kBeginObject) fail("expected an object, got {}", json_kind_name(event.kind));
    } else if (depth_ == 1) {
      on_tensor(event);
    } else if (depth_ == 2) {
      on_field(event);
    } else {
      on_element(event);
    }
    depth_ += opens;
  }

 private:
  enum Field : uint8_t { kDtype, kShape, kOffsets, kOther };

  void on_tensor(const JsonEvent& event) {
    if (event.kind == Kind::kKey) {
      name_ = event.text;
      in_metadata_ = name_ == kMetadataKey;
      if (in_metadata_ && had_metadata_) fail("the key '{}' occurs twice", kMetadataKey);
      had_metadata_ |= in_metadata_;
      return;
    }
    if (event.kind == Kind::kEndObject) {
      if (!in_metadata_) finish_tensor();
      name_.clear();
      return;
    }
    if (in_metadata_ && event.kind == Kind::kNull) return;  // null means no metadata, as in the format's own library
    if (event.kind != Kind::kBeginObject) fail("expected an object, got {}", json_kind_name(event.kind));
    if (in_metadata_) return;
    if (name_.empty() || name_.find('\0') != name_.npos)
      fail("a tensor's name is {}", name_.empty() ? "empty" : "not text");
    if (out_.tensors.size() == kSafeMaxTensors) fail("more than {} tensors", kSafeMaxTensors);
    tensor_ = {};
    std::fill(std::begin(seen_), std::end(seen_), false);
    n_offsets_ = 0;
  }

  void on_field(const JsonEvent& event) {
    if (event.kind == Kind::kKey) {
      key_ = event.text;
      if (in_metadata_) return;
      field_ = key_ == "dtype" ? kDtype : key_ == "shape" ? kShape : key_ == "data_offsets" ? kOffsets : kOther;
      if (field_ != kOther && seen_[field_]) fail("the key occurs twice");
      if (field_ != kOther) seen_[field_] = true;
      return;
    }
    if (event.kind == Kind::kEndArray) return;
    if (in_metadata_) {
      if (event.kind != Kind::kString) fail("expected a string, got {}", json_kind_name(event.kind));
      if (out_.metadata.size() == kSafeMaxTensors) fail("more than {} entries", kSafeMaxTensors);
      out_.metadata.emplace_back(key_, event.text);
    } else if (field_ == kOther) {
      if (event.kind == Kind::kBeginObject || event.kind == Kind::kBeginArray) skipped_from_ = depth_;
    } else if (field_ == kDtype) {
      if (event.kind != Kind::kString) fail("expected a string, got {}", json_kind_name(event.kind));
      tensor_.dtype = safe_dtype(event.text);
      if (tensor_.dtype == nullptr) fail("'{}' is not a type of the safetensors format", printable(event.text, 64));
    } else if (event.kind != Kind::kBeginArray) {
      fail("expected an array, got {}", json_kind_name(event.kind));
    }
  }

  void on_element(const JsonEvent& event) {
    if (event.kind != Kind::kInteger) fail("expected integers, got {}", json_kind_name(event.kind));
    if (event.integer < 0) fail("{} is negative", event.integer);
    if (field_ == kShape) {
      if (tensor_.n_dims == kSafeMaxDims) fail("more than {} dimensions", kSafeMaxDims);
      tensor_.shape[tensor_.n_dims++] = event.integer;
    } else {
      if (n_offsets_ == 2) fail("more than 2 elements");
      offsets_[n_offsets_++] = static_cast<uint64_t>(event.integer);
    }
  }

  void finish_tensor() {
    constexpr const char* kNames[] = {"dtype", "shape", "data_offsets"};
    for (Field field : {kDtype, kShape, kOffsets}) {
      key_ = kNames[field];
      if (!seen_[field]) fail("is missing");
    }
    if (n_offsets_ != 2) fail("expected 2 elements, got {}", n_offsets_);
    if (offsets_[0] > offsets_[1]) fail("begins at {}, after its end at {}", offsets_[0], offsets_[1]);
    tensor_.offset = offsets_[0];
    tensor_.n_bytes = offsets_[1] - offsets_[0];
    check_size();
    tensor_.name = std::move(name_);
    out_.tensors.push_back(tensor_);
    key_.clear();
  }

  void check_size() {
    uint64_t n_bits = tensor_.dtype->bits;
    for (const int64_t dim : tensor_.dims()) {
      key_ = "shape";
      if (__builtin_mul_overflow(n_bits, static_cast<uint64_t>(dim), &n_bits))
        fail("the dimensions multiply to more than 2^64 bits");
    }
    if (n_bits % 8 != 0) fail("{} bits of {} do not fill whole bytes", n_bits, tensor_.dtype->name);
    key_ = "data_offsets";
    if (n_bits / 8 != tensor_.n_bytes)
      fail("{} bytes, but shape [{}] of {} takes {}", tensor_.n_bytes, shape_text(), tensor_.dtype->name, n_bits / 8);
  }

  std::string shape_text() const {
    std::string text;
    for (const int64_t dim : tensor_.dims()) text += (text.empty() ? "" : ", ") + std::to_string(dim);
    return text;
  }

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    std::string where = "header";
    if (!name_.empty()) where = fmt::format("{}'{}'", in_metadata_ ? "" : "tensor ", printable(name_, 128));
    if (!name_.empty() && !key_.empty()) where += fmt::format(": '{}'", printable(key_, 64));
    throw Error("{}: {} at offset {}: {}", printable(file_), where, kLengthBytes + at_,
                fmt::format(format, std::forward<Args>(args)...));
  }

  const std::string& file_;
  SafetensorsFile& out_;
  size_t at_ = 0;
  int depth_ = 0, skipped_from_ = 0;
  bool in_metadata_ = false, had_metadata_ = false;
  std::string name_, key_;
  Field field_ = kOther;
  SafeTensor tensor_;
  bool seen_[3] = {};
  uint64_t offsets_[2] = {};
  size_t n_offsets_ = 0;
};

// The header's text. If the length is not plausible, the file is not a safetensors file, and the Error describes the
// file.
std::string_view read_header_text(std::span<const uint8_t> bytes, const std::string& name) {
  auto describe = [&] { return describe_file(bytes.first(std::min<size_t>(bytes.size(), 64)), bytes.size()); };
  Reader reader(bytes, name);
  if (bytes.size() < kLengthBytes)
    throw Error("{}: truncated: need {} bytes, have {}: {}", printable(name), kLengthBytes, bytes.size(), describe());
  const auto length = reader.read<uint64_t>("header length");
  if (length > kSafeMaxHeaderBytes)
    reader.fail("header length", "{} bytes; the limit is {}: this is {}", length, kSafeMaxHeaderBytes, describe());
  if (length > reader.remaining())
    reader.fail("header length", "truncated: need {} bytes, have {}: this is {}", length, reader.remaining(),
                describe());
  if (length < 2) reader.fail("header length", "{} bytes are too few for a header", length);
  return as_text(reader.take(length, "header"));
}

void check_names(const SafetensorsFile& file, const std::string& name) {
  auto name_of = [&](size_t i) -> std::string_view { return file.tensors[i].name; };
  if (const auto twice = NameIndex(file.tensors.size(), name_of).duplicate(name_of))
    throw Error("{}: tensor '{}': this name occurs twice in the header", printable(name),
                printable(name_of(*twice), 128));
  auto key_of = [&](size_t i) -> std::string_view { return file.metadata[i].first; };
  if (const auto twice = NameIndex(file.metadata.size(), key_of).duplicate(key_of))
    throw Error("{}: '{}': the key '{}' occurs twice", printable(name), kMetadataKey, printable(key_of(*twice), 128));
}

// Checks that the tensors tile the data: in order of offsets, each tensor begins where the previous one ends, and the
// last tensor ends the file.
void place_tensors(SafetensorsFile& file, uint64_t data_start, uint64_t n_bytes, const std::string& name) {
  std::vector<SafeTensor*> order;
  order.reserve(file.tensors.size());
  for (SafeTensor& tensor : file.tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](auto* a, auto* b) {
    return std::pair(a->offset, a->n_bytes) < std::pair(b->offset, b->n_bytes);
  });
  const uint64_t available = n_bytes - data_start;
  uint64_t end = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    SafeTensor& tensor = *order[i];
    auto complain = [&](const std::string& message) {
      throw Error("{}: tensor '{}': data at offset {}: {}", printable(name), printable(tensor.name, 128),
                  data_start + tensor.offset, message);
    };
    if (tensor.offset < end)
      complain(
          fmt::format("overlaps tensor '{}', which ends at {}", printable(order[i - 1]->name, 128), data_start + end));
    if (tensor.n_bytes > available || tensor.offset > available - tensor.n_bytes)
      complain(fmt::format("truncated: need {} bytes, have {}: the file is incomplete or damaged, download it again",
                           tensor.n_bytes, available - std::min(available, tensor.offset)));
    if (tensor.offset > end) complain(fmt::format("{} bytes before it belong to no tensor", tensor.offset - end));
    end = tensor.offset + tensor.n_bytes;
    tensor.offset += data_start;
  }
  if (end < available)
    throw Error("{}: offset {}: {} bytes after the last tensor belong to no tensor", printable(name), data_start + end,
                available - end);
}

}  // namespace

const SafeDtype* safe_dtype(std::string_view name) {
  const auto row =
      std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const SafeDtype& d) { return name == d.name; });
  return row == std::end(kDtypes) ? nullptr : row;
}

int64_t SafeTensor::n_elements() const {
  int64_t n = 1;
  for (const int64_t dim : dims()) n *= dim;
  return n;
}

SafetensorsFile parse_safetensors_file(std::span<const uint8_t> bytes, const std::string& name) {
  const std::string_view header = read_header_text(bytes, name);
  SafetensorsFile file;
  HeaderReader reader(name, file);
  walk_json(header, name + " (header)", [&](const JsonEvent& event) { reader.on(event); });
  check_names(file, name);
  place_tensors(file, kLengthBytes + header.size(), bytes.size(), name);
  return file;
}

}  // namespace ingot
