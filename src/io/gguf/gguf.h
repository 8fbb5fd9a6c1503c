// A GGUF model: one file, or all parts of a split model (`-00001-of-0000N.gguf`), memory-mapped. All checks are done at
// open; later accesses need none. Independent of model architectures. Used by model/, text/ and the commands.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "io/gguf/file.h"
#include "io/metadata.h"

namespace ingot {

class Gguf {
 public:
  // Opens a model. `path` may be any part of a split model; all parts must be in the same folder. A file without
  // tensors (vocabulary only) is allowed. Throws Error naming the file (the part), the field and the offset.
  static Gguf open(const std::string& path);

  // Parses one whole model in memory; `bytes` must outlive the result. `name` is for messages.
  static Gguf parse(std::span<const uint8_t> bytes, const std::string& name);

  const std::string& path() const { return path_; }  // as given to open
  // The metadata of the first part, which has all the model's metadata.
  const Metadata& metadata() const { return metadata_; }
  // Metadata::set, for values that the user gives in place of the file's. The file does not change.
  void set_metadata(std::string_view key, ValueType type, std::string bytes) {
    metadata_.set(key, type, std::move(bytes));
  }

  std::span<const TensorInfo> tensors() const { return tensors_; }  // part by part, in file order
  const TensorInfo* find(std::string_view name) const;
  // The tensor's n_bytes bytes, with the alignment of the file (32 by default).
  std::span<const uint8_t> data(const TensorInfo& tensor) const;

  uint32_t version() const { return version_; }
  uint32_t alignment() const { return alignment_; }
  size_t n_files() const { return files_.size(); }
  uint64_t file_bytes() const;  // of all parts
  // Harmless oddities: bytes that belong to no tensor. The caller shows the warnings or refuses the file.
  std::span<const std::string> warnings() const { return warnings_; }

 private:
  Gguf() = default;
  void add_part(GgufFile file, std::span<const uint8_t> bytes);
  void open_split(const std::string& path, uint32_t n_parts);
  void index_tensors();

  std::string path_;
  std::vector<MappedFile> mappings_;
  std::vector<std::span<const uint8_t>> files_;
  Metadata metadata_;
  std::vector<TensorInfo> tensors_;
  NameIndex index_;
  std::vector<std::string> warnings_;
  uint32_t version_ = 0;
  uint32_t alignment_ = 0;
};

}  // namespace ingot
