#include "io/gguf/file.h"

#include <algorithm>
#include <numeric>

#include "base/utf8.h"
#include "io/gguf/ggml_type.h"
#include "io/reader.h"
#include "io/sniff.h"

namespace ingot {
namespace {

constexpr uint64_t kMinEntryBytes = 13;   // key length, value type, one byte of value
constexpr uint64_t kMinTensorBytes = 32;  // name length, n_dims, one dimension, type, offset

struct Header {
  uint32_t version;
  uint64_t n_tensors;
  uint64_t n_entries;
};

bool is_utf8(std::string_view text) {
  size_t length = 1;
  for (; !text.empty() && length > 0; text.remove_prefix(length)) length = utf8_length(text);
  return length > 0;
}

void check_version(const Reader& reader, uint32_t version) {
  if (version == 2 || version == 3) return;
  if (version == 1) reader.fail("version", "GGUF version 1 is not supported (2 and 3 are): convert the model again");
  if (version != 0 && (version & 0xFFFF) == 0)
    reader.fail("version", "this GGUF file is big-endian: convert it to little-endian");
  reader.fail("version", "GGUF version {} is not supported (2 and 3 are)", version);
}

void check_count(const Reader& reader, const char* field, uint64_t count, uint64_t min_bytes, uint64_t limit) {
  if (count > reader.remaining() / min_bytes)
    reader.fail(field, "truncated: {} entries need at least {} bytes each, have {} bytes", count, min_bytes,
                reader.remaining());
  if (count > limit) reader.fail(field, "{} entries; the limit is {}", count, limit);
}

Header read_header(Reader& reader, std::span<const uint8_t> bytes, const std::string& name) {
  const auto magic = reader.take(4, "magic");
  if (as_text(magic) != "GGUF")
    throw Error("{}: magic at offset 0: not a GGUF file but {}", printable(name),
                describe_file(bytes.first(std::min<size_t>(bytes.size(), 64)), bytes.size()));
  Header header{};
  header.version = reader.read<uint32_t>("version");
  check_version(reader, header.version);
  header.n_tensors = reader.read<uint64_t>("tensor count");
  check_count(reader, "tensor count", header.n_tensors, kMinTensorBytes, kGgufMaxTensors);
  header.n_entries = reader.read<uint64_t>("metadata count");
  check_count(reader, "metadata count", header.n_entries, kMinEntryBytes, kGgufMaxKeys);
  return header;
}

std::string_view read_name(Reader& reader, const char* field, size_t max_bytes) {
  const std::string_view name = reader.read_string(field);
  if (const char* fault = gguf_name_fault(name, max_bytes)) {
    if (name.size() > max_bytes) reader.fail(field, "{} bytes; the limit is {}", name.size(), max_bytes);
    reader.fail(field, "'{}' {}", printable(name), fault);
  }
  return name;
}

Metadata read_metadata(Reader& reader, uint64_t n_entries, const std::string& name) {
  std::vector<Metadata::Entry> entries;  // not reserved: the file's count is untrusted
  for (uint64_t i = 0; i < n_entries; ++i) {
    Metadata::Entry entry;
    entry.offset = reader.offset();
    entry.key = read_name(reader, "metadata key", kGgufMaxKeyBytes);
    Reader::Scope scope(reader, "metadata", entry.key);
    entry.value = read_value(reader, read_value_type(reader, "value type"));
    entries.push_back(entry);
  }
  return Metadata(name, std::move(entries));
}

uint32_t read_alignment(const Metadata& metadata) {
  const Value* value = metadata.find(kGgufAlignmentKey);
  if (value == nullptr) return kGgufDefaultAlignment;
  if (value->type != ValueType::kU32)
    throw metadata.error(kGgufAlignmentKey, "expected u32, got {}", value->type_name());
  const uint32_t alignment = *value->as<uint32_t>();
  if (!is_gguf_alignment(alignment))
    throw metadata.error(kGgufAlignmentKey, "{} is not a power of two up to {}", alignment, kGgufMaxAlignment);
  return alignment;
}

TensorInfo read_tensor_info(Reader& reader, uint32_t alignment) {
  TensorInfo tensor;
  tensor.name = read_name(reader, "tensor name", kGgufMaxTensorName);
  Reader::Scope scope(reader, "tensor", tensor.name);
  const auto n_dims = reader.read<uint32_t>("dimension count");
  if (n_dims < 1 || n_dims > kGgufMaxDims) reader.fail("dimension count", "{} is not 1 to {}", n_dims, kGgufMaxDims);
  tensor.n_dims = static_cast<int>(n_dims);
  std::array<uint64_t, kGgufMaxDims> dims{1, 1, 1, 1};
  for (uint32_t i = 0; i < n_dims; ++i) dims[i] = reader.read<uint64_t>("dimension");
  tensor.ggml_type = reader.read<uint32_t>("type");
  try {
    tensor.n_bytes = gguf_tensor_bytes(tensor.ggml_type, {dims.data(), n_dims});
  } catch (const Error& error) {
    reader.fail("shape and type", "{}", error.what());
  }
  std::copy(dims.begin(), dims.end(), tensor.shape.begin());
  tensor.format = ggml_type(tensor.ggml_type)->format;
  tensor.offset = reader.read<uint64_t>("data offset");
  if (tensor.offset % alignment != 0)
    reader.fail("data offset", "{} is not a multiple of the alignment {}", tensor.offset, alignment);
  return tensor;
}

std::vector<TensorInfo> read_tensor_table(Reader& reader, uint64_t n_tensors, uint32_t alignment,
                                          const std::string& name) {
  std::vector<TensorInfo> tensors;
  for (uint64_t i = 0; i < n_tensors; ++i) tensors.push_back(read_tensor_info(reader, alignment));
  auto name_of = [&](size_t i) { return tensors[i].name; };
  if (auto twice = NameIndex(tensors.size(), name_of).duplicate(name_of))
    throw Error("{}: tensor '{}': this name occurs twice in the tensor table, which ends at offset {}", printable(name),
                printable(tensors[*twice].name), reader.offset());
  return tensors;
}

// Converts offsets in the data section to offsets in the file, and checks that each tensor lies inside the file.
void place_tensors(GgufFile& file, uint64_t table_end, uint64_t n_bytes, const std::string& name) {
  const uint64_t data_start = (table_end + file.alignment - 1) / file.alignment * file.alignment;
  for (TensorInfo& tensor : file.tensors) {
    const uint64_t available = n_bytes > data_start ? n_bytes - data_start : 0;
    const uint64_t after = tensor.offset < available ? available - tensor.offset : 0;
    if (tensor.n_bytes > after)
      throw Error(
          "{}: tensor '{}': data at offset {}+{}: truncated: need {} bytes, have {}: the file is incomplete or "
          "damaged, download it again",
          printable(name), printable(tensor.name), data_start, tensor.offset, tensor.n_bytes, after);
    tensor.offset += data_start;
  }
}

// Refuses overlaps, and warns about holes that are not alignment padding.
void check_layout(GgufFile& file, uint64_t table_end, uint64_t n_bytes, const std::string& name) {
  std::vector<const TensorInfo*> order;
  for (const TensorInfo& tensor : file.tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
  uint64_t end = table_end;
  uint64_t unused = 0;
  auto count_hole = [&](uint64_t next) { unused += next - end >= file.alignment ? next - end : 0; };
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i]->offset < end)
      throw Error("{}: tensor '{}': data at offset {} overlaps tensor '{}', which ends at {}", printable(name),
                  printable(order[i]->name), order[i]->offset, printable(order[i - 1]->name), end);
    count_hole(order[i]->offset);
    end = order[i]->offset + order[i]->n_bytes;
  }
  count_hole(n_bytes);
  if (unused > 0) file.warnings.push_back(fmt::format("{}: {} bytes belong to no tensor", printable(name), unused));
}

}  // namespace

const char* gguf_name_fault(std::string_view name, size_t max_bytes) {
  if (name.empty()) return "is empty";
  if (name.size() > max_bytes) return "is too long";
  if (name.find('\0') != name.npos) return "contains a NUL byte";
  if (!is_utf8(name)) return "is not valid UTF-8";
  return nullptr;
}

bool is_gguf_alignment(uint32_t alignment) { return std::has_single_bit(alignment) && alignment <= kGgufMaxAlignment; }

uint64_t gguf_tensor_bytes(uint32_t type_id, std::span<const uint64_t> dims) {
  const auto type = ggml_type(type_id);
  if (!type) throw Error("tensor type {} is not supported", describe_ggml_type(type_id));
  int64_t n_elements = 1;
  for (const uint64_t dim : dims) {
    if (dim == 0) throw Error("a dimension is 0");
    if (__builtin_mul_overflow(n_elements, dim, &n_elements)) throw Error("the dimensions multiply to more than 2^63");
  }
  if (dims[0] % type->block_size != 0)
    throw Error("rows of {} elements are not a multiple of the {} elements of a {} block", dims[0], type->block_size,
                type->name);
  int64_t n_bytes = 0;
  if (__builtin_mul_overflow(n_elements / type->block_size, type->block_bytes, &n_bytes))
    throw Error("{} elements of type {} take more than 2^63 bytes", n_elements, type->name);
  return static_cast<uint64_t>(n_bytes);
}

GgufFile parse_gguf_file(std::span<const uint8_t> bytes, const std::string& name) {
  Reader reader(bytes, name);
  const Header header = read_header(reader, bytes, name);
  GgufFile file;
  file.version = header.version;
  file.metadata = read_metadata(reader, header.n_entries, name);
  file.alignment = read_alignment(file.metadata);
  file.tensors = read_tensor_table(reader, header.n_tensors, file.alignment, name);
  place_tensors(file, reader.offset(), bytes.size(), name);
  check_layout(file, reader.offset(), bytes.size(), name);
  return file;
}

}  // namespace ingot
