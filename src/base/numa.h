// Places threads near their memory on machines with several memory nodes (NUMA). The system allocates a page on the
// node of the thread that touches the page first. So a thread that stays on one node reads local memory if the same
// thread touched the data first.
#pragma once
#include <string_view>
#include <vector>

#include "base/cpu_topology.h"

namespace ingot {

// The nodes to use, by name: "distribute" (all nodes), "isolate" (the node of the CPU `current`) or "off" (none: the
// system places threads and memory). Throws UsageError for another name. "distribute" and "isolate" also throw
// UsageError if this process has fewer than two nodes.
std::vector<MemoryNode> choose_nodes(std::string_view name, std::vector<MemoryNode> nodes, int current);

// The same for this process and the calling thread's CPU. The nodes are read only at the first call, because a thread
// that has been bound sees only its own node.
std::vector<MemoryNode> choose_nodes(std::string_view name);

int cores_of(const std::vector<MemoryNode>& nodes);

// The node of a thread out of n_threads. Consecutive threads share a node, and each node gets threads in proportion to
// its cores.
const MemoryNode& node_of(int thread, int n_threads, const std::vector<MemoryNode>& nodes);

}  // namespace ingot
