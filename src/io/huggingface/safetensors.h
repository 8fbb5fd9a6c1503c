// The weights of a Hugging Face model, memory-mapped: one safetensors file, or all shards of a directory
// (model.safetensors, or the files in model.safetensors.index.json). All checks are done at open; later accesses need
// none. Independent of model architectures. Used by model/ and the commands.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "io/huggingface/safetensors_file.h"
#include "io/name_index.h"

namespace ingot {

class Safetensors {
 public:
  // Throws Error naming the file, the tensor and the offset; for an index, the difference between the index and the
  // shards.
  static Safetensors open_file(const std::string& path);
  static Safetensors open_directory(const std::string& path);
  // Parses one whole file in memory; `bytes` must outlive the result. `name` is for messages.
  static Safetensors parse(std::span<const uint8_t> bytes, const std::string& name);

  std::span<const SafeTensor> tensors() const { return tensors_; }  // shard by shard, in the order of the headers
  const SafeTensor* find(std::string_view name) const;
  // The tensor's n_bytes bytes, possibly unaligned, because a header may have any length.
  std::span<const uint8_t> data(const SafeTensor& tensor) const;

  // __metadata__ of all files, in file order.
  std::span<const std::pair<std::string, std::string>> metadata() const { return metadata_; }
  size_t n_files() const { return files_.size(); }
  uint64_t file_bytes() const;  // of all shards
  // Harmless oddities: an index with a wrong total_size, or an index that lacks a tensor of a shard.
  std::span<const std::string> warnings() const { return warnings_; }

 private:
  Safetensors() = default;
  void add_file(std::span<const uint8_t> bytes, const std::string& name);
  void add_mapped(MappedFile mapping);
  void open_index(const std::string& directory, const std::string& index);
  void index_tensors();

  std::vector<MappedFile> mappings_;
  std::vector<std::string> names_;  // of the files
  std::vector<std::span<const uint8_t>> files_;
  std::vector<SafeTensor> tensors_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  NameIndex index_;
  std::vector<std::string> warnings_;
};

}  // namespace ingot
