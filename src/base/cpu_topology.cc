#include "base/cpu_topology.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
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

// The number of cores of these CPUs; 0 if unknown.
int cores_of(const std::vector<int>& cpus, const std::string& root) {
  std::set<int> first_of_core;
  for (const int cpu : cpus) {
    const std::string folder = root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu);
    std::ifstream file(folder + "/topology/thread_siblings_list");
    const std::vector<int> siblings = numbers_in(file);
    if (siblings.empty()) return 0;
    first_of_core.insert(siblings.front());
  }
  return static_cast<int>(first_of_core.size());
}

}  // namespace

int allowed_cores(const std::string& root) { return cores_of(allowed_cpus(root), root); }

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

}  // namespace ingot
