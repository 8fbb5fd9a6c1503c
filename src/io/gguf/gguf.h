// A GGUF model: one file, or all parts of a split one (`-00001-of-0000N.gguf`), memory-mapped and checked at open, so
// that what is handed out afterwards needs no more checks. Knows nothing of architectures. Used by model/, text/ and
// the verbs.
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
  // Any part of a split model opens all of them, from the same folder. A file of no tensors (vocabulary only) is fine.
  // Throws Error naming the file (the part), the field and the offset.
  static Gguf open(const std::string& path);

  // One whole model in memory: `bytes` must outlive the result. `name` is for messages.
  static Gguf parse(std::span<const uint8_t> bytes, const std::string& name);

  const std::string& path() const { return path_; }  // as given to open
  // Of the first part, which holds all of it.
  const Metadata& metadata() const { return metadata_; }

  std::span<const TensorInfo> tensors() const { return tensors_; }  // part by part, in file order
  const TensorInfo* find(std::string_view name) const;
  // The tensor's n_bytes bytes, aligned as the file aligns them (32 by default).
  std::span<const uint8_t> data(const TensorInfo& tensor) const;

  uint32_t version() const { return version_; }
  uint32_t alignment() const { return alignment_; }
  size_t n_files() const { return files_.size(); }
  uint64_t file_bytes() const;  // of all parts
  // Odd but harmless: bytes that belong to no tensor. The caller shows them, or refuses them.
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
