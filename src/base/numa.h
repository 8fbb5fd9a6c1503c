// Places threads near their memory on machines with several memory nodes (NUMA). The system allocates a page on the
// node of the thread that touches the page first. So a bound thread should also be the first to touch its data.
#pragma once
#include <string_view>
#include <vector>

#include "base/cpu_topology.h"

namespace ingot {

// The nodes to use, by name: "distribute" (all nodes), "isolate" (the node of the CPU `current`) or "off" (none: the
// system places threads and memory). Throws UsageError for another name, and for "distribute" and "isolate" with fewer
// than two nodes.
std::vector<MemoryNode> choose_nodes(std::string_view name, std::vector<MemoryNode> nodes, int current);

// The same for this process and the calling thread's CPU. The nodes are read only at the first call, because a thread
// that has been bound sees only its own node.
std::vector<MemoryNode> choose_nodes(std::string_view name);

int cores_of(const std::vector<MemoryNode>& nodes);

// The node of a thread out of n_threads. Consecutive threads share a node; a node's share of threads is its share of
// cores.
const MemoryNode& node_of(int thread, int n_threads, const std::vector<MemoryNode>& nodes);

}  // namespace ingot
