// Files, read safely: one open() a file, regular files only, all reads through that descriptor.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ingot {

// A whole regular file, mapped read-only, or read where it cannot be mapped. Throws Error (naming the path and the
// reason) when it cannot be opened, is not a regular file (directory, FIFO, device: refused without blocking), or
// cannot be read. An empty file has an empty span.
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

// The path of a file that was written to or cut since it was mapped, of those that still are; "": there is none. What
// is read from such a mapping is the new bytes, zeros, or a SIGBUS.
std::string changed_mapped_file();

// The whole text of a regular file, or of standard input when path is "-". Throws Error when it is longer than
// max_bytes.
std::string read_file(const std::string& path, size_t max_bytes = size_t{1} << 30);

// A file that appears whole or not at all: what is written goes to a temporary file beside path, which commit() syncs
// and renames. Until then path holds what it held, also for those who have it mapped. Without commit() nothing is left.
// All throw Error.
class FileWriter {
 public:
  explicit FileWriter(const std::string& path);  // finds out at once that the folder cannot be written to
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::span<const uint8_t> bytes);
  void commit();

 private:
  std::string path_, temporary_;
  int fd_ = -1;
};

// The same in one step.
void write_file(const std::string& path, std::span<const uint8_t> bytes);

}  // namespace ingot
