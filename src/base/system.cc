#include "base/system.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace ingot {
namespace {

// The number after `key` in a file of "key value" lines, or the first number when key is empty.
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

}  // namespace

size_t available_memory_bytes() {
  constexpr size_t kUnknown = std::numeric_limits<size_t>::max();
  const size_t system_kib = number_in("/proc/meminfo", "MemAvailable:", kUnknown / 1024);
  const size_t limit = number_in("/sys/fs/cgroup/memory.max", "", kUnknown);
  const size_t used = number_in("/sys/fs/cgroup/memory.current", "", 0);
  return std::min(system_kib * 1024, limit > used ? limit - used : 0);
}

std::string human_bytes(size_t bytes) {
  const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace ingot
