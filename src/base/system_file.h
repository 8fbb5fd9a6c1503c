// System calls for files, implemented in system_file_posix.cc and system_file_windows.cc. If a call fails, the function
// returns -1, false or an empty value and sets errno. Interrupted calls are repeated.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace ingot {

// An open file, closed by the destructor. Child processes do not inherit the descriptor.
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
// A new file; replaces the last six letters of `name`, XXXXXX. mode: its permissions before the process's umask.
FileHandle open_temporary(std::string& name, uint32_t mode);

struct FileStatus {
  bool is_directory = false, is_regular = false;
  uint64_t n_bytes = 0;
  int64_t modified_ns = 0, accessed_s = 0;  // since 1970
  uint32_t mode = 0;                        // permissions; 0 on Windows
};
std::optional<FileStatus> status_of(const FileHandle& file);
std::optional<FileStatus> status_of(const std::string& path);        // follows links
std::optional<FileStatus> status_of_entry(const std::string& path);  // does not follow links
bool is_file_at(const FileHandle& file, const std::string& path);    // whether `path` still names the open file

ptrdiff_t read_some(const FileHandle& file, void* to, size_t n);  // 0 at the end
ptrdiff_t read_standard_input(void* to, size_t n);
bool write_all(const FileHandle& file, std::span<const uint8_t> bytes);
bool make_empty(const FileHandle& file);
void set_mode(const FileHandle& file, uint32_t mode);  // as far as the system allows it
bool sync_file(const FileHandle& file);
bool replace_file(const std::string& from, const std::string& to);  // renames over `to`
void sync_folder(const std::string& path);                          // if the file system supports this
bool is_full(int error);  // whether errno means a full disk or quota, or a file at its size limit

// The first `size` bytes of a file, for reading; null if the file system cannot map files. Unmapped by unmap_file.
const uint8_t* map_file(const FileHandle& file, size_t size);
void unmap_file(const uint8_t* data, size_t size);
// Takes whole pages of a mapped file out of this process's memory. They are read again when they are used.
void drop_pages(const uint8_t* data, size_t size);

enum class LockResult { kTaken, kHeldByOther, kNoLocks, kFailed };
LockResult try_lock(const FileHandle& file, bool shared);  // held until the file is closed

// Links `path` to the file `target`, which is relative to the folder of `path`. An existing `path` is replaced.
bool link_file(const std::string& target, const std::string& path);
// The file in `folder` that `path` was linked to with link_file; empty if there is none.
std::string linked_file(const std::string& path, const std::string& folder);

}  // namespace ingot
