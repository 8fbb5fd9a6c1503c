#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/splitmix.h"
#include "base/system_file.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

// Linux and macOS have different names for this field of `struct stat`.
template <class Stat>
const timespec& modified_of(const Stat& s) {
  if constexpr (requires { s.st_mtimespec; })
    return s.st_mtimespec;
  else
    return s.st_mtim;
}

std::optional<FileStatus> status_from(int failed, const struct stat& s) {
  if (failed != 0) return std::nullopt;
  const timespec& modified = modified_of(s);
  return FileStatus{.is_directory = S_ISDIR(s.st_mode),
                    .is_regular = S_ISREG(s.st_mode),
                    .n_bytes = static_cast<uint64_t>(s.st_size),
                    .modified_ns = modified.tv_sec * int64_t{1'000'000'000} + modified.tv_nsec,
                    .accessed_s = s.st_atime,
                    .mode = static_cast<uint32_t>(s.st_mode & 07777)};
}

ptrdiff_t read_fd(int fd, void* to, size_t n) {
  for (;;) {
    const ssize_t got = ::read(fd, to, n);
    if (got >= 0 || errno != EINTR) return got;
  }
}

}  // namespace

void FileHandle::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

FileHandle open_to_read(const std::string& path) {
  return FileHandle(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}
FileHandle open_to_update(const std::string& path) {
  return FileHandle(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
}
// Not mkstemp: only a file that open() creates has the permissions that the umask leaves.
FileHandle open_temporary(std::string& name, uint32_t mode) {
  static std::atomic<uint64_t> n_opened{0};
  for (int attempt = 0; attempt < 100; ++attempt) {
    const auto now = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    uint64_t bits = splitmix(now ^ splitmix(static_cast<uint64_t>(::getpid()) << 32 ^ n_opened++));
    for (size_t i = name.size() - 6; i < name.size(); ++i, bits /= 26) name[i] = static_cast<char>('a' + bits % 26);
    const int fd = ::open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, static_cast<mode_t>(mode));
    if (fd >= 0 || errno != EEXIST) return FileHandle(fd);
  }
  return FileHandle();
}

std::optional<FileStatus> status_of(const FileHandle& file) {
  struct stat s {};
  return status_from(::fstat(file.fd(), &s), s);
}
std::optional<FileStatus> status_of(const std::string& path) {
  struct stat s {};
  return status_from(::stat(path.c_str(), &s), s);
}
std::optional<FileStatus> status_of_entry(const std::string& path) {
  struct stat s {};
  return status_from(::lstat(path.c_str(), &s), s);
}
bool is_file_at(const FileHandle& file, const std::string& path) {
  struct stat ours {
  }, there{};
  return ::fstat(file.fd(), &ours) == 0 && ::stat(path.c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
         ours.st_dev == there.st_dev;
}

ptrdiff_t read_some(const FileHandle& file, void* to, size_t n) { return read_fd(file.fd(), to, n); }
ptrdiff_t read_standard_input(void* to, size_t n) { return read_fd(STDIN_FILENO, to, n); }

bool write_all(const FileHandle& file, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file.fd(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

bool make_empty(const FileHandle& file) {
  return ::ftruncate(file.fd(), 0) == 0 && ::lseek(file.fd(), 0, SEEK_SET) == 0;
}
void set_mode(const FileHandle& file, uint32_t mode) { (void)::fchmod(file.fd(), static_cast<mode_t>(mode)); }
bool sync_file(const FileHandle& file) { return ::fsync(file.fd()) == 0; }
bool replace_file(const std::string& from, const std::string& to) { return ::rename(from.c_str(), to.c_str()) == 0; }
void sync_folder(const std::string& path) {
  const FileHandle folder(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY));
  if (folder) ::fsync(folder.fd());
}

const uint8_t* map_file(const FileHandle& file, size_t size) {
  void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd(), 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<const uint8_t*>(mapped);
}
void unmap_file(const uint8_t* data, size_t size) { ::munmap(const_cast<uint8_t*>(data), size); }
void drop_pages(const uint8_t* data, size_t size) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE)), from = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = (from + page - 1) / page * page, end = (from + size) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

bool is_full(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

LockResult try_lock(const FileHandle& file, bool shared) {
  for (;;) {
    if (::flock(file.fd(), (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0) return LockResult::kTaken;
    if (errno == EWOULDBLOCK) return LockResult::kHeldByOther;
    if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP) return LockResult::kNoLocks;
    if (errno != EINTR) return LockResult::kFailed;
  }
}

// Makes a link with another name and renames it over the old link, so that readers always see a valid link.
bool link_file(const std::string& target, const std::string& path) {
  std::error_code error;
  if (fs::read_symlink(path, error) == target) return true;
  const fs::path at(path);
  const std::string temporary =
      (at.parent_path() / ("." + fs::path(target).filename().string() + "." + std::to_string(::getpid()) + ".link"))
          .string();
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0) return false;
  if (::rename(temporary.c_str(), path.c_str()) == 0) return true;
  const int reason = errno;
  ::unlink(temporary.c_str());
  errno = reason;
  return false;
}

std::string linked_file(const std::string& path, const std::string& folder) {
  std::error_code error;
  const fs::path target = fs::read_symlink(path, error);
  const fs::path file = (fs::path(path).parent_path() / target).lexically_normal();
  return !error && file.parent_path() == fs::path(folder).lexically_normal() ? file.string() : "";
}

}  // namespace ingot
