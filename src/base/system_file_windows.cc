// Uses the C library's descriptors. Path names are UTF-8 because of the program's manifest (cmake/windows).
#include <fcntl.h>
#include <io.h>
#include <sys/stat.h>
#include <unistd.h>
#include <windows.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/system_file.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;

HANDLE handle_of(const FileHandle& file) { return reinterpret_cast<HANDLE>(_get_osfhandle(file.fd())); }

// FILETIME counts 100 ns since 1601.
int64_t nanoseconds_of(const FILETIME& time) {
  const int64_t ticks = static_cast<int64_t>(time.dwHighDateTime) << 32 | time.dwLowDateTime;
  return (ticks - 116'444'736'000'000'000) * 100;
}

bool identify(const FileHandle& file, BY_HANDLE_FILE_INFORMATION& facts) {
  return file && GetFileInformationByHandle(handle_of(file), &facts) != 0;
}

// One call reads or writes at most an unsigned int of bytes.
unsigned count_of(size_t n) { return static_cast<unsigned>(n < (size_t{1} << 30) ? n : size_t{1} << 30); }

}  // namespace

void FileHandle::close() {
  if (fd_ >= 0) ::_close(fd_);
  fd_ = -1;
}

FileHandle open_to_read(const std::string& path) {
  return FileHandle(::_open(path.c_str(), _O_RDONLY | _O_BINARY | _O_NOINHERIT));
}
FileHandle open_to_update(const std::string& path) {
  return FileHandle(::_open(path.c_str(), _O_RDWR | _O_CREAT | _O_BINARY | _O_NOINHERIT, _S_IREAD | _S_IWRITE));
}
FileHandle open_temporary(std::string& name, uint32_t /* mode */) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    LARGE_INTEGER ticks;
    QueryPerformanceCounter(&ticks);
    uint64_t bits = static_cast<uint64_t>(ticks.QuadPart) * 0x9E3779B97F4A7C15u + GetCurrentProcessId();
    for (size_t i = name.size() - 6; i < name.size(); ++i, bits /= 26) name[i] = static_cast<char>('a' + bits % 26);
    const int fd = ::_open(name.c_str(), _O_RDWR | _O_CREAT | _O_EXCL | _O_BINARY | _O_NOINHERIT, _S_IREAD | _S_IWRITE);
    if (fd >= 0 || errno != EEXIST) return FileHandle(fd);
  }
  return FileHandle();
}

std::optional<FileStatus> status_of(const FileHandle& file) {
  BY_HANDLE_FILE_INFORMATION facts;
  if (GetFileType(handle_of(file)) != FILE_TYPE_DISK || !identify(file, facts)) return FileStatus{};
  return FileStatus{.is_directory = (facts.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0,
                    .is_regular = (facts.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) == 0,
                    .n_bytes = static_cast<uint64_t>(facts.nFileSizeHigh) << 32 | facts.nFileSizeLow,
                    .modified_ns = nanoseconds_of(facts.ftLastWriteTime),
                    .accessed_s = nanoseconds_of(facts.ftLastAccessTime) / 1'000'000'000};
}
std::optional<FileStatus> status_of(const std::string& path) {
  WIN32_FILE_ATTRIBUTE_DATA facts;
  if (GetFileAttributesExA(path.c_str(), GetFileExInfoStandard, &facts) == 0) return std::nullopt;
  return FileStatus{.is_directory = (facts.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0,
                    .is_regular = (facts.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) == 0,
                    .n_bytes = static_cast<uint64_t>(facts.nFileSizeHigh) << 32 | facts.nFileSizeLow,
                    .modified_ns = nanoseconds_of(facts.ftLastWriteTime),
                    .accessed_s = nanoseconds_of(facts.ftLastAccessTime) / 1'000'000'000};
}
std::optional<FileStatus> status_of_entry(const std::string& path) { return status_of(path); }

bool is_file_at(const FileHandle& file, const std::string& path) {
  BY_HANDLE_FILE_INFORMATION ours, there;
  return identify(file, ours) && identify(open_to_read(path), there) &&
         ours.dwVolumeSerialNumber == there.dwVolumeSerialNumber && ours.nFileIndexHigh == there.nFileIndexHigh &&
         ours.nFileIndexLow == there.nFileIndexLow;
}

ptrdiff_t read_some(const FileHandle& file, void* to, size_t n) { return ::_read(file.fd(), to, count_of(n)); }
ptrdiff_t read_standard_input(void* to, size_t n) { return ::_read(0, to, count_of(n)); }

bool write_all(const FileHandle& file, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const int n = ::_write(file.fd(), bytes.data(), count_of(bytes.size()));
    if (n < 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return true;
}

bool make_empty(const FileHandle& file) {
  return ::_chsize_s(file.fd(), 0) == 0 && ::_lseeki64(file.fd(), 0, SEEK_SET) == 0;
}
void set_mode(const FileHandle&, uint32_t) {}
bool sync_file(const FileHandle& file) { return ::_commit(file.fd()) == 0; }
bool replace_file(const std::string& from, const std::string& to) {
  if (MoveFileExA(from.c_str(), to.c_str(), MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH) != 0) return true;
  errno = EACCES;
  return false;
}
void sync_folder(const std::string&) {}  // MOVEFILE_WRITE_THROUGH has already synced

const uint8_t* map_file(const FileHandle& file, size_t size) {
  const HANDLE mapping = CreateFileMappingA(handle_of(file), nullptr, PAGE_READONLY, 0, 0, nullptr);
  if (mapping == nullptr) return nullptr;
  const void* data = MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, size);
  CloseHandle(mapping);  // the view keeps the mapping alive
  return static_cast<const uint8_t*>(data);
}
void unmap_file(const uint8_t* data, size_t) { UnmapViewOfFile(data); }
// VirtualUnlock takes pages that are not locked out of the working set.
void drop_pages(const uint8_t* data, size_t size) { (void)VirtualUnlock(const_cast<uint8_t*>(data), size); }

bool is_full(int error) { return error == ENOSPC || error == EFBIG; }

LockResult try_lock(const FileHandle& file, bool shared) {
  OVERLAPPED at{};
  const DWORD flags = LOCKFILE_FAIL_IMMEDIATELY | (shared ? 0 : LOCKFILE_EXCLUSIVE_LOCK);
  if (LockFileEx(handle_of(file), flags, 0, 1, 0, &at) != 0) return LockResult::kTaken;
  return GetLastError() == ERROR_LOCK_VIOLATION ? LockResult::kHeldByOther : LockResult::kNoLocks;
}

// Makes a hard link, because symbolic links need a privilege that most users lack.
bool link_file(const std::string& target, const std::string& path) {
  const fs::path file = (fs::path(path).parent_path() / target).lexically_normal();
  std::error_code error;
  if (fs::equivalent(file, path, error)) return true;
  ::_unlink(path.c_str());
  fs::create_hard_link(file, path, error);
  errno = error.value();
  return !error;
}

std::string linked_file(const std::string& path, const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (std::error_code ignored; fs::equivalent(it->path(), path, ignored)) return it->path().string();
  return "";
}

}  // namespace ingot
