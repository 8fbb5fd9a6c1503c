// Safe reading and writing of files. Each file is opened once and must be a regular file; all reads use that
// descriptor.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/system_file.h"

namespace ingot {

// A whole regular file, mapped read-only. If the file system does not support mmap, the file is read into memory
// instead. Throws Error (naming the path and the reason) when the file cannot be opened, is not a regular file (a
// directory, FIFO or device is refused without blocking), or cannot be read. An empty file has an empty span.
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

// Takes bytes of a mapped file that will hardly be read again out of this process's memory. The bytes stay valid: the
// system reads them again when they are used. Does nothing for other memory.
void give_back_mapped(std::span<const uint8_t> bytes);

// The path of a mapped file that was written to or truncated after the file was mapped; "" when no mapped file has
// changed. Reading such a mapping gives the new bytes, zeros, or a SIGBUS.
std::string changed_mapped_file();

// The whole text of a regular file, or of standard input when path is "-". Throws Error when it is longer than
// max_bytes.
std::string read_file(const std::string& path, size_t max_bytes = size_t{1} << 30);

// Who may read a written file. kAsUsual: a replaced file keeps its permissions, and a new file has those that the umask
// leaves. kOwner: this user alone, for conversations.
enum class FileReaders : uint8_t { kAsUsual, kOwner };

// Writes a file that appears whole or not at all. The bytes go to a temporary file next to `path`; commit() syncs the
// temporary file and renames it to `path`. Programs that have mapped the old file keep the old content. Without
// commit(), the destructor removes the temporary file. All functions throw Error.
class FileWriter {
 public:
  // Throws at once if the folder cannot be written to.
  explicit FileWriter(const std::string& path, FileReaders readers = FileReaders::kAsUsual);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::span<const uint8_t> bytes);
  void commit();

 private:
  std::string path_, temporary_;
  FileHandle file_;
  bool is_committed_ = false;
};

// Writes and commits a file in one step.
void write_file(const std::string& path, std::span<const uint8_t> bytes, FileReaders readers = FileReaders::kAsUsual);

}  // namespace ingot
