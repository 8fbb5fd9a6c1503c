#include "io/gguf/gguf.h"

#include <utility>

#include "base/check.h"
#include "io/gguf/split.h"

namespace ingot {
namespace {

MappedFile map_part(const std::string& path, uint32_t part, uint32_t n_parts) {
  try {
    return MappedFile(path);
  } catch (const Error& error) {
    throw Error("part {} of {} of the model is missing: {}", part + 1, n_parts, error.what());
  }
}

}  // namespace

Gguf Gguf::open(const std::string& path) {
  Gguf model;
  model.path_ = path;
  MappedFile mapping(path);
  GgufFile file = parse_gguf_file(mapping.bytes(), path);
  const uint32_t n_parts = split_count(file.metadata);
  if (n_parts == 1) {
    model.add_part(std::move(file), mapping.bytes());
    model.mappings_.push_back(std::move(mapping));
  } else {
    model.open_split(path, n_parts);
  }
  model.index_tensors();
  return model;
}

Gguf Gguf::parse(std::span<const uint8_t> bytes, const std::string& name) {
  Gguf model;
  model.path_ = name;
  GgufFile file = parse_gguf_file(bytes, name);
  if (const uint32_t n_parts = split_count(file.metadata); n_parts != 1)
    throw Error("{}: this is one part of a model split into {} files: open it by its path", printable(name), n_parts);
  model.add_part(std::move(file), bytes);
  model.index_tensors();
  return model;
}

// Maps and parses the file opened first again as one of the parts. This costs little, and all parts are treated alike.
void Gguf::open_split(const std::string& path, uint32_t n_parts) {
  for (uint32_t part = 0; part < n_parts; ++part) {
    const std::string part_path = split_path(path, part, n_parts);
    MappedFile mapping = map_part(part_path, part, n_parts);
    GgufFile file = parse_gguf_file(mapping.bytes(), part_path);
    check_part(part == 0 ? file.metadata : metadata_, file.metadata, part, n_parts);
    add_part(std::move(file), mapping.bytes());
    mappings_.push_back(std::move(mapping));
  }
  const auto expected = metadata_.find_u64("split.tensors.count");
  if (expected && *expected != tensors_.size())
    throw metadata_.error("split.tensors.count", "{} tensors, but the {} parts hold {}", *expected, n_parts,
                          tensors_.size());
}

void Gguf::add_part(GgufFile file, std::span<const uint8_t> bytes) {
  const int shard = static_cast<int>(files_.size());
  if (shard == 0) {
    metadata_ = std::move(file.metadata);
    version_ = file.version;
    alignment_ = file.alignment;
  }
  for (TensorInfo& tensor : file.tensors) {
    tensor.shard = shard;
    tensors_.push_back(tensor);
  }
  for (std::string& warning : file.warnings) warnings_.push_back(std::move(warning));
  files_.push_back(bytes);
}

// Names within one file are already known to be distinct, so a duplicate name occurs in two parts.
void Gguf::index_tensors() {
  if (tensors_.size() > kGgufMaxTensors)
    throw Error("{}: {} tensors; the limit is {}", printable(path_), tensors_.size(), kGgufMaxTensors);
  auto name_of = [&](size_t i) { return tensors_[i].name; };
  index_ = NameIndex(tensors_.size(), name_of);
  if (auto twice = index_.duplicate(name_of))
    throw Error("{}: tensor '{}' is already in an earlier part of the model",
                printable(mappings_[static_cast<size_t>(tensors_[*twice].shard)].path()),
                printable(tensors_[*twice].name));
}

const TensorInfo* Gguf::find(std::string_view name) const {
  auto i = index_.find(name, [&](size_t tensor) { return tensors_[tensor].name; });
  return i ? &tensors_[*i] : nullptr;
}

std::span<const uint8_t> Gguf::data(const TensorInfo& tensor) const {
  CHECK_LT(static_cast<size_t>(tensor.shard), files_.size());
  return files_[static_cast<size_t>(tensor.shard)].subspan(tensor.offset, tensor.n_bytes);
}

uint64_t Gguf::file_bytes() const {
  uint64_t total = 0;
  for (const auto& file : files_) total += file.size();
  return total;
}

}  // namespace ingot
