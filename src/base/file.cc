#include "base/file.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/system_file.h"

namespace ingot {
namespace {

// A mapped file and its status when it was mapped. The open descriptor identifies the file, so replacing the file under
// the same name does not count as a change.
struct Mapped {
  FileHandle file;
  std::string path;
  FileStatus then;
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

FileStatus open_regular(const std::string& path, FileHandle& file) {
  if (const auto entry = status_of(path); entry && entry->is_directory)
    throw Error("'{}' is a directory: give the file inside it", printable(path));
  file = open_to_read(path);
  if (!file) throw_errno("open", path);
  const auto status = status_of(file);
  if (!status) throw_errno("read the status of", path);
  if (!status->is_regular) throw Error("'{}' is not a regular file", printable(path));
  return *status;
}

// Reads the whole file into memory; for file systems that do not support mmap.
uint8_t* read_whole(const FileHandle& file, size_t size, const std::string& path) {
  std::unique_ptr<uint8_t, void (*)(void*)> memory(static_cast<uint8_t*>(std::malloc(size)), &std::free);
  if (memory == nullptr) throw_errno("map", path);
  for (size_t done = 0; done < size;) {
    const ptrdiff_t n = read_some(file, memory.get() + done, size - done);
    if (n < 0) throw_errno("read", path);
    if (n == 0) throw Error("'{}' has become shorter while it was read", printable(path));
    done += static_cast<size_t>(n);
  }
  return memory.release();
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  FileHandle file;
  const FileStatus status = open_regular(path, file);
  size_ = static_cast<size_t>(status.n_bytes);
  if (size_ == 0) return;
  std::list<Mapped> entry;  // allocated first, because nothing may throw after map_file
  entry.push_back({.file = {}, .path = path, .then = status});
  data_ = map_file(file, size_);
  if (data_ == nullptr) {
    data_ = read_whole(file, size_, path);
    return;
  }
  entry.front().data = data_;
  entry.front().file = std::move(file);
  MappedFiles& files = mapped_files();
  std::lock_guard lock(files.mutex);
  files.all.splice(files.all.end(), entry);
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  size_t n_mapped = 0;
  {
    MappedFiles& files = mapped_files();
    std::lock_guard lock(files.mutex);
    n_mapped = files.all.remove_if([this](const Mapped& one) { return one.data == data_; });
  }
  if (n_mapped > 0) {
    unmap_file(data_, size_);
  } else {
    std::free(const_cast<uint8_t*>(data_));  // from read_whole
  }
}

void give_back_mapped(std::span<const uint8_t> bytes) {
  MappedFiles& files = mapped_files();
  std::lock_guard lock(files.mutex);
  for (const Mapped& one : files.all) {
    const auto* begin = static_cast<const uint8_t*>(one.data);
    if (bytes.data() >= begin && bytes.data() + bytes.size() <= begin + one.then.n_bytes)
      return drop_pages(bytes.data(), bytes.size());
  }
}

std::string changed_mapped_file() {
  MappedFiles& files = mapped_files();
  std::lock_guard lock(files.mutex);
  for (const Mapped& one : files.all) {
    const auto now = status_of(one.file);
    if (!now || now->n_bytes != one.then.n_bytes || now->modified_ns != one.then.modified_ns) return one.path;
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
  FileHandle file;
  const bool is_stdin = path == "-";
  if (!is_stdin && open_regular(path, file).n_bytes > max_bytes)
    throw Error("'{}' is larger than the limit of {} bytes", printable(path), max_bytes);
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ptrdiff_t n = is_stdin ? read_standard_input(buffer, sizeof buffer) : read_some(file, buffer, sizeof buffer);
    if (n < 0) throw_errno("read", path);
    if (n == 0) return text;
    if (text.size() + static_cast<size_t>(n) > max_bytes)
      throw Error("'{}' is larger than the limit of {} bytes", printable(path), max_bytes);
    text.append(buffer, static_cast<size_t>(n));
  }
}

FileWriter::FileWriter(const std::string& path, FileReaders readers) : path_(path), temporary_(path + ".XXXXXX") {
  const auto old = status_of(path);
  if (old && !old->is_regular) throw Error("cannot write '{}': it exists and is not a regular file", printable(path));
  const bool is_private = readers == FileReaders::kOwner;
  file_ = open_temporary(temporary_, is_private || old ? 0600 : 0666);
  if (!file_) throw_errno("create a file next to", path);
  if (old && !is_private) set_mode(file_, old->mode);
}

FileWriter::~FileWriter() {
  if (is_committed_) return;
  file_.close();
  std::remove(temporary_.c_str());
}

void FileWriter::write(std::span<const uint8_t> bytes) {
  if (!write_all(file_, bytes)) throw_errno("write", path_);
}

void FileWriter::commit() {
  if (!sync_file(file_)) throw_errno("sync", path_);
  file_.close();  // Windows does not rename an open file
  if (!replace_file(temporary_, path_)) throw_errno("write", path_);
  is_committed_ = true;
  const size_t slash = path_.rfind('/');
  sync_folder(slash == path_.npos ? "." : path_.substr(0, slash + 1));  // makes the new name durable
}

void write_file(const std::string& path, std::span<const uint8_t> bytes, FileReaders readers) {
  FileWriter file(path, readers);
  file.write(bytes);
  file.commit();
}

}  // namespace ingot
