#include "base/control_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>

namespace ingot {
namespace {

// Paths are strings here: limits are read when memory is short, and libstdc++ 12 leaves a broken path behind if memory
// runs out while operator/ appends.

std::string word_in(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// No value: no such file, "max", or no number.
std::optional<size_t> number_in(const std::string& path) {
  const std::string word = word_in(path);
  size_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && !word.empty() ? std::optional(value) : std::nullopt;
}

// The value of `key` in a file of "key value" lines; 0 if absent.
size_t stat_in(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  size_t value = 0;
  while (file >> word >> value)
    if (word == key) return value;
  return 0;
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

// Calls visit for a group and all groups above it. In a container, the file system may show only a part of the path
// that the process's membership names. So folders that do not exist are left out.
void each_group(const std::string& mount, const std::string& path,
                const std::function<void(const std::string&)>& visit) {
  std::string group = mount + "/" + path;
  for (size_t depth = 0; depth < 256; ++depth, group.resize(group.rfind('/'))) {
    while (group.size() > mount.size() && group.back() == '/') group.pop_back();
    if (is_folder(group)) visit(group);
    if (group.size() <= mount.size()) return;
  }
}

struct MemoryNames {
  const char *limit, *used, *inactive;
};
constexpr MemoryNames kMemory1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr MemoryNames kMemory2{"memory.max", "memory.current", "inactive_file"};

void limit_memory(const std::string& group, const MemoryNames& names, ControlGroup& out) {
  const std::optional<size_t> limit = number_in(group + "/" + names.limit);
  if (!limit) return;
  const size_t used = number_in(group + "/" + names.used).value_or(0);
  const size_t held = used - std::min(used, stat_in(group + "/memory.stat", names.inactive));
  out.memory_left = std::min(out.memory_left, *limit > held ? *limit - held : 0);
}

void limit_cpus(double quota, double period, ControlGroup& out) {
  if (quota > 0 && period > 0) out.n_cpus = std::min(out.n_cpus, quota / period);
}

void read_version_2(const std::string& mount, const std::string& path, ControlGroup& out) {
  each_group(mount, path, [&](const std::string& group) {
    limit_memory(group, kMemory2, out);
    std::ifstream cpu(group + "/cpu.max");
    double quota = 0, period = 0;
    if (cpu >> quota >> period) limit_cpus(quota, period, out);
    const std::string pids = word_in(group + "/pids.max");
    if (out.pids.empty() && !pids.empty() && pids != "max")
      out.pids =
          fmt::format("pids.max of the control group is {}, {} are in use", pids, word_in(group + "/pids.current"));
  });
}

void read_version_1(const std::string& mounts, const std::string& controllers, const std::string& path,
                    ControlGroup& out) {
  std::stringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');) {
    // Controllers that are mounted together have one folder.
    const std::string own = mounts + "/" + name, mount = is_folder(own) ? own : mounts + "/" + controllers;
    each_group(mount, path, [&](const std::string& group) {
      if (name == "memory") limit_memory(group, kMemory1, out);
      if (name == "cpu")
        limit_cpus(static_cast<double>(number_in(group + "/cpu.cfs_quota_us").value_or(0)),
                   static_cast<double>(number_in(group + "/cpu.cfs_period_us").value_or(0)), out);
    });
  }
}

}  // namespace

ControlGroup read_control_group(const std::string& mounts, const std::string& membership) {
  ControlGroup out;
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {  // "0::/path" or "number:controllers:/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty())
      read_version_2(mounts, path, out);
    else
      read_version_1(mounts, controllers, path, out);
  }
  return out;
}

}  // namespace ingot
