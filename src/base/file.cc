#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <list>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace ingot {
namespace {

struct Descriptor {
  Descriptor() = default;
  Descriptor(Descriptor&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  int fd = -1;
};

// A mapped file and its status when it was mapped. The open descriptor identifies the file, so that replacing the file
// under the same name does not count as a change.
struct Mapped {
  Descriptor file;
  std::string path;
  struct stat then;
  const void* data = nullptr;
};

struct MappedFiles {
  std::mutex mutex;
  std::list<Mapped> all;
};

MappedFiles& mapped_files() {
  static MappedFiles& files = *new MappedFiles;  // never destroyed: mappings may outlive static objects
  return files;
}

[[noreturn]] void throw_errno(const char* doing, const std::string& path) {
  const int error = errno;
  throw Error("cannot {} '{}': {}", doing, printable(path), std::strerror(error));
}

// O_NONBLOCK makes open() return at once for a FIFO, which is then refused.
struct stat open_regular(const std::string& path, Descriptor& file) {
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd < 0) throw_errno("open", path);
  struct stat status {};
  if (::fstat(file.fd, &status) != 0) throw_errno("read the status of", path);
  if (S_ISDIR(status.st_mode)) throw Error("'{}' is a directory: give the file inside it", printable(path));
  if (!S_ISREG(status.st_mode)) throw Error("'{}' is not a regular file", printable(path));
  return status;
}

// Reads the whole file into memory; for file systems that do not support mmap.
void* read_whole(const Descriptor& file, size_t size, const std::string& path) {
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw_errno("map", path);
  try {
    for (size_t done = 0; done < size;) {
      const ssize_t n = ::pread(file.fd, static_cast<char*>(memory) + done, size - done, static_cast<off_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw_errno("read", path);
      if (n == 0) throw Error("'{}' has become shorter while it was read", printable(path));
      done += static_cast<size_t>(n);
    }
  } catch (...) {
    ::munmap(memory, size);
    throw;
  }
  return memory;
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  Descriptor file;
  const struct stat status = open_regular(path, file);
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  std::list<Mapped> entry;  // made first: nothing may throw once there is a mapping
  entry.push_back({.file = {}, .path = path, .then = status});
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (mapped == MAP_FAILED) {
    data_ = static_cast<const uint8_t*>(read_whole(file, size_, path));
    return;
  }
  data_ = static_cast<const uint8_t*>(mapped);
  entry.front().data = data_;
  std::swap(entry.front().file.fd, file.fd);
  MappedFiles& files = mapped_files();
  std::lock_guard lock(files.mutex);
  files.all.splice(files.all.end(), entry);
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  {
    MappedFiles& files = mapped_files();
    std::lock_guard lock(files.mutex);
    files.all.remove_if([this](const Mapped& one) { return one.data == data_; });
  }
  ::munmap(const_cast<uint8_t*>(data_), size_);
}

std::string changed_mapped_file() {
  MappedFiles& files = mapped_files();
  std::lock_guard lock(files.mutex);
  for (const Mapped& one : files.all) {
    struct stat now {};
    if (::fstat(one.file.fd, &now) != 0 || now.st_size != one.then.st_size ||
        now.st_mtim.tv_sec != one.then.st_mtim.tv_sec || now.st_mtim.tv_nsec != one.then.st_mtim.tv_nsec)
      return one.path;
  }
  return {};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::string read_file(const std::string& path, size_t max_bytes) {
  Descriptor file;
  const bool is_stdin = path == "-";
  if (!is_stdin && static_cast<size_t>(open_regular(path, file).st_size) > max_bytes)
    throw Error("'{}' is larger than the limit of {} bytes", printable(path), max_bytes);
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(is_stdin ? STDIN_FILENO : file.fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno("read", path);
    if (n == 0) return text;
    if (text.size() + static_cast<size_t>(n) > max_bytes)
      throw Error("'{}' is larger than the limit of {} bytes", printable(path), max_bytes);
    text.append(buffer, static_cast<size_t>(n));
  }
}

FileWriter::FileWriter(const std::string& path) : path_(path), temporary_(path + ".XXXXXX") {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    throw Error("cannot write '{}': it is there and not a regular file", printable(path));
  fd_ = ::mkostemp(temporary_.data(), O_CLOEXEC);
  if (fd_ < 0) throw_errno("create a file beside", path);
  ::fchmod(fd_, 0644);
}

FileWriter::~FileWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void FileWriter::write(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw_errno("write", path_);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void FileWriter::commit() {
  if (::fsync(fd_) != 0) throw_errno("sync", path_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw_errno("write", path_);
  ::close(fd_);
  fd_ = -1;
  Descriptor folder;  // sync the folder for the new name; not every file system can
  const size_t slash = path_.rfind('/');
  const std::string name = slash == path_.npos ? "." : path_.substr(0, slash + 1);
  folder.fd = ::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECTORY);
  if (folder.fd >= 0) ::fsync(folder.fd);
}

void write_file(const std::string& path, std::span<const uint8_t> bytes) {
  FileWriter file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace ingot
