#include "base/cpu_topology.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ingot {
namespace {

// The numbers of a list like "0-3,8,10-11".
std::vector<int> numbers_in(std::istream& list) {
  std::vector<int> numbers;
  for (std::string range; std::getline(list, range, ',');) {
    int first = 0, last = 0;
    char dash = 0;
    std::istringstream text(range);
    if (!(text >> first)) return {};
    last = text >> dash >> last && dash == '-' ? last : first;
    for (int number = first; number <= last && number - first < 4096; ++number) numbers.push_back(number);
  }
  return numbers;
}

std::vector<int> allowed_cpus(const std::string& root) {
  std::ifstream status(root + "/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    constexpr std::string_view kKey = "Cpus_allowed_list:";
    if (!line.starts_with(kKey)) continue;
    std::istringstream list(line.substr(kKey.size()));
    return numbers_in(list);
  }
  return {};
}

std::string cpu_folder(int cpu, const std::string& root) {
  return root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
}

// The CPUs of this CPU's core; empty if unknown.
std::vector<int> siblings_of(int cpu, const std::string& root) {
  std::ifstream file(cpu_folder(cpu, root) + "/topology/thread_siblings_list");
  return numbers_in(file);
}

std::string word_of(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

int number_of(const std::string& path, int otherwise) {
  std::ifstream file(path);
  int number = 0;
  return file >> number ? number : otherwise;
}

// "48K", "2M" or bytes; 0 if unknown.
size_t size_of(const std::string& path) {
  std::ifstream file(path);
  size_t size = 0;
  char unit = 0;
  if (!(file >> size)) return 0;
  file >> unit;
  return unit == 'K' ? size << 10 : unit == 'M' ? size << 20 : size;
}

// A cache is known by the first CPU of those that share it.
std::vector<CpuCaches> caches_of(const std::vector<int>& cpus, const std::string& root) {
  constexpr int kMaxCaches = 16;  // of a CPU
  struct Found {
    size_t bytes = 0;
    std::map<int, int> users;  // CPUs of this process, by cache
  };
  std::map<std::pair<int, std::string>, Found> found;
  for (const int cpu : cpus) {
    for (int i = 0; i < kMaxCaches; ++i) {
      const std::string folder = cpu_folder(cpu, root) + "/cache/index" + std::to_string(i);
      const int level = number_of(folder + "/level", 0);
      if (level == 0) break;
      const std::string type = word_of(folder + "/type");
      std::ifstream list(folder + "/shared_cpu_list");
      const std::vector<int> sharing = numbers_in(list);
      if (type == "Instruction" || sharing.empty()) continue;
      Found& of_level = found[{level, type}];
      of_level.bytes = std::max(of_level.bytes, size_of(folder + "/size"));
      ++of_level.users[sharing.front()];
    }
  }
  std::vector<CpuCaches> caches;
  for (const auto& [key, of_level] : found) {
    int most = 0;
    for (const auto& [first, n] : of_level.users) most = std::max(most, n);
    caches.push_back({key.first, key.second, of_level.bytes, static_cast<int>(of_level.users.size()), most});
  }
  return caches;
}

// The CPUs in the order of (round, socket, core) or (socket, core, round), where a core's i-th CPU has the round i.
std::vector<int> ordered(const CpuTopology& topology, int n, bool apart) {
  std::map<int, int> n_seen;  // by core
  std::vector<std::array<int, 4>> places;
  for (const CpuPlace& place : topology.cpus) {
    const int round = n_seen[place.core]++;
    places.push_back(apart ? std::array{round, place.socket, place.core, place.cpu}
                           : std::array{place.socket, place.core, round, place.cpu});
  }
  std::sort(places.begin(), places.end());
  std::vector<int> cpus;
  for (const auto& place : places)
    if (static_cast<int>(cpus.size()) < n) cpus.push_back(place.back());
  return cpus;
}

// The number of cores of these CPUs; 0 if unknown.
int cores_of(const std::vector<int>& cpus, const std::string& root) {
  std::set<int> first_of_core;
  for (const int cpu : cpus) {
    const std::vector<int> siblings = siblings_of(cpu, root);
    if (siblings.empty()) return 0;
    first_of_core.insert(siblings.front());
  }
  return static_cast<int>(first_of_core.size());
}

}  // namespace

int allowed_cores(const std::string& root) { return cores_of(allowed_cpus(root), root); }

std::string processor_name(const std::string& root) {
  std::ifstream file(root + "/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "";
}

std::vector<MemoryNode> memory_nodes(const std::string& root) {
  const std::vector<int> allowed = allowed_cpus(root);
  const std::string folder = root + "/sys/devices/system/node";
  std::vector<MemoryNode> nodes;
  std::ifstream online(folder + "/online");
  for (const int id : numbers_in(online)) {
    std::ifstream list(folder + "/node" + std::to_string(id) + "/cpulist");
    MemoryNode node;
    node.id = id;
    for (const int cpu : numbers_in(list))
      if (std::find(allowed.begin(), allowed.end(), cpu) != allowed.end()) node.cpus.push_back(cpu);
    if (node.cpus.empty()) continue;
    const int n_cores = cores_of(node.cpus, root);
    node.n_cores = n_cores > 0 ? n_cores : static_cast<int>(node.cpus.size());
    nodes.push_back(std::move(node));
  }
  return nodes;
}

CpuTopology read_topology(const std::string& root) {
  CpuTopology topology;
  const std::vector<int> cpus = allowed_cpus(root);
  std::set<int> sockets;
  std::map<int, int> n_threads;  // by core
  for (const int cpu : cpus) {
    const std::vector<int> siblings = siblings_of(cpu, root);
    const int core = siblings.empty() ? cpu : siblings.front();
    const int socket = number_of(cpu_folder(cpu, root) + "/topology/physical_package_id", 0);
    topology.cpus.push_back({cpu, core, socket});
    sockets.insert(socket);
    topology.most_threads = std::max(topology.most_threads, ++n_threads[core]);
  }
  topology.n_sockets = static_cast<int>(sockets.size());
  topology.n_cores = static_cast<int>(n_threads.size());
  topology.caches = caches_of(cpus, root);
  topology.nodes = memory_nodes(root);
  return topology;
}

std::vector<int> cpus_apart(const CpuTopology& topology, int n) { return ordered(topology, n, true); }

std::vector<int> cpus_together(const CpuTopology& topology, int n) { return ordered(topology, n, false); }

}  // namespace ingot
