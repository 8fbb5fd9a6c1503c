// Which threads run near which memory, on machines whose memory is in several nodes (NUMA). A page lies on the node of
// the thread that touches it first. So threads that stay on a node, and touch what they will read, read from near.
#pragma once
#include <string_view>
#include <vector>

#include "base/cpu_topology.h"

namespace ingot {

// The nodes to use, by name: "distribute" (all), "isolate" (the one of the CPU `current`) or "off" (none: the system
// places threads and memory). Throws UsageError for another name, and where there is no choice between nodes.
std::vector<MemoryNode> choose_nodes(std::string_view name, std::vector<MemoryNode> nodes, int current);

// The same for this process, by what it could use when it first asked: a thread that is bound later knows only its
// node.
std::vector<MemoryNode> choose_nodes(std::string_view name);

int cores_of(const std::vector<MemoryNode>& nodes);

// The node of a thread out of n_threads. Neighbours share a node, and each node has threads by the number of its cores.
const MemoryNode& node_of(int thread, int n_threads, const std::vector<MemoryNode>& nodes);

}  // namespace ingot
