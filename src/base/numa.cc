#include "base/numa.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/system.h"

namespace ingot {

std::vector<MemoryNode> choose_nodes(std::string_view name, std::vector<MemoryNode> nodes, int current) {
  if (name == "off") return {};
  if (name != "distribute" && name != "isolate")
    throw UsageError("unknown use of memory nodes '{}': use distribute, isolate or off", printable(name));
  if (nodes.empty()) throw UsageError("memory nodes, {}: the system does not list its memory nodes; use off", name);
  if (nodes.size() == 1) {
    throw UsageError(
        "memory nodes, {}: all CPUs of this process are on node {}, so there is nothing to choose; use off", name,
        nodes[0].id);
  }
  if (name == "distribute") return nodes;
  const auto has_current = [&](const MemoryNode& node) {
    return std::find(node.cpus.begin(), node.cpus.end(), current) != node.cpus.end();
  };
  const auto found = std::find_if(nodes.begin(), nodes.end(), has_current);
  return {found != nodes.end() ? *found : nodes.front()};
}

std::vector<MemoryNode> choose_nodes(std::string_view name) {
  static const std::vector<MemoryNode> nodes = memory_nodes();
  return choose_nodes(name, nodes, current_cpu());
}

int cores_of(const std::vector<MemoryNode>& nodes) {
  return std::accumulate(nodes.begin(), nodes.end(), 0, [](int n, const MemoryNode& node) { return n + node.n_cores; });
}

const MemoryNode& node_of(int thread, int n_threads, const std::vector<MemoryNode>& nodes) {
  CHECK(!nodes.empty() && thread >= 0 && thread < n_threads);
  int64_t core = int64_t{thread} * cores_of(nodes) / n_threads;
  for (const MemoryNode& node : nodes) {
    if (core < node.n_cores) return node;
    core -= node.n_cores;
  }
  return nodes.back();
}

}  // namespace ingot
