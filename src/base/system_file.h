// The system's calls for files; system_file_posix.cc and system_file_windows.cc have the bodies. Functions return -1,
// false or nothing and set errno if the system refuses. Interrupted calls are repeated.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace ingot {

// An open file, closed at the end; programs that this program starts do not inherit it.
class FileHandle {
 public:
  FileHandle() = default;
  explicit FileHandle(int fd) : fd_(fd) {}
  FileHandle(FileHandle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileHandle& operator=(FileHandle&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileHandle() { close(); }
  void close();

  explicit operator bool() const { return fd_ >= 0; }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

FileHandle open_to_read(const std::string& path);    // returns at once for a FIFO
FileHandle open_to_update(const std::string& path);  // reads and writes; creates the file; does not follow a link
FileHandle open_temporary(std::string& name);        // a new file; replaces the last six letters of `name`, XXXXXX

struct FileStatus {
  bool is_directory = false, is_regular = false;
  uint64_t n_bytes = 0;
  int64_t modified_ns = 0, accessed_s = 0;  // since 1970
};
std::optional<FileStatus> status_of(const FileHandle& file);
std::optional<FileStatus> status_of(const std::string& path);        // follows links
std::optional<FileStatus> status_of_entry(const std::string& path);  // does not follow links
bool is_file_at(const FileHandle& file, const std::string& path);    // whether `path` still names the open file

ptrdiff_t read_some(const FileHandle& file, void* to, size_t n);  // 0 at the end
ptrdiff_t read_standard_input(void* to, size_t n);
bool write_all(const FileHandle& file, std::span<const uint8_t> bytes);
bool make_empty(const FileHandle& file);
bool sync_file(const FileHandle& file);
bool replace_file(const std::string& from, const std::string& to);  // renames over `to`
void sync_folder(const std::string& path);                          // where the file system can
bool is_full(int error);  // whether this errno means that a disk or a quota is full, or a file as large as it may be

// The first `size` bytes of a file, for reading; null if the file system cannot map files. Unmapped by unmap_file.
const uint8_t* map_file(const FileHandle& file, size_t size);
void unmap_file(const uint8_t* data, size_t size);

enum class LockResult { kTaken, kHeldByOther, kNoLocks, kFailed };
LockResult try_lock(const FileHandle& file, bool shared);  // until the file is closed

// Makes `path` name the file that `target`, relative to the folder of `path`, names. An old `path` is replaced.
bool link_file(const std::string& target, const std::string& path);
// The file in `folder` that `path` was linked to with link_file; empty if there is none.
std::string linked_file(const std::string& path, const std::string& folder);

}  // namespace ingot
