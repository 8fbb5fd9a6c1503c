// Files, read safely: one open() a file, regular files only, all reads through that descriptor.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ingot {

// A whole regular file, mapped read-only. Throws Error (naming the path and the reason) when it cannot be opened, is not a
// regular file (directory, FIFO, device: refused without blocking), or cannot be mapped. An empty file has an empty span.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const uint8_t> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// The whole text of a regular file, or of standard input when path is "-". Throws Error when it is longer than max_bytes.
std::string read_file(const std::string& path, size_t max_bytes = size_t{1} << 30);

// Writes to a temporary file beside path, syncs, and renames: path holds the old bytes or all of the new. Throws Error.
void write_file(const std::string& path, std::span<const uint8_t> bytes);

}  // namespace ingot
