#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <limits>

#include "base/control_group.h"
#include "base/system.h"

namespace ingot {
namespace {

// The number after `key` in a file of "key value" lines, or the file's first number when `key` is empty.
size_t number_in(const char* path, const std::string& key, size_t fallback) {
  std::ifstream file(path);
  std::string word;
  size_t value = 0;
  while (key.empty() || file >> word) {
    if (!key.empty() && word != key) continue;
    return file >> value ? value : fallback;
  }
  return fallback;
}

// The bytes that the process may still map.
size_t address_room() {
  constexpr size_t kUnknown = std::numeric_limits<size_t>::max();
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnknown;
  const size_t mapped = number_in("/proc/self/statm", "", 0) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return limit.rlim_cur > mapped ? limit.rlim_cur - mapped : 0;
}

}  // namespace

size_t available_memory_bytes() {
  constexpr size_t kUnknown = std::numeric_limits<size_t>::max();
  const size_t system_kib = number_in("/proc/meminfo", "MemAvailable:", kUnknown / 1024);
  return std::min({system_kib * 1024, read_control_group().memory_left, address_room()});
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

void* take_pages(size_t n_bytes) {
  void* memory = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}
void free_pages(void* memory, size_t n_bytes) { munmap(memory, n_bytes); }

size_t find_in_linear_time(std::string_view text, std::string_view needle) {
  const void* at = memmem(text.data(), text.size(), needle.data(), needle.size());
  return at == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(at) - text.data());
}

std::string process_limit() {
  rlimit processes{};
  if (getrlimit(RLIMIT_NPROC, &processes) != 0) return "RLIMIT_NPROC is not known";
  return processes.rlim_cur == RLIM_INFINITY ? "RLIMIT_NPROC is unlimited"
                                             : fmt::format("RLIMIT_NPROC is {}", processes.rlim_cur);
}

void wait_while(const WaitWord& word, uint32_t value) { word.wait(value); }
void wake_one(WaitWord& word) { word.notify_one(); }
void wake_all(WaitWord& word) { word.notify_all(); }

size_t raise_open_files(size_t wanted) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return wanted;
  if (files.rlim_cur >= wanted) return files.rlim_cur;
  files.rlim_cur = std::min<rlim_t>(wanted, files.rlim_max);
  setrlimit(RLIMIT_NOFILE, &files);
  return files.rlim_cur;
}

}  // namespace ingot
