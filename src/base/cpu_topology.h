// The cores and memory nodes of this machine, read from Linux's /proc and /sys.
#pragma once
#include <string>
#include <vector>

namespace ingot {

// The number of cores whose CPUs this process may use; 0 if unknown. A core with hyperthreads has several CPUs. `root`
// is the folder that holds proc and sys; "" is the machine's own.
int allowed_cores(const std::string& root = "");

// A part of the memory (a NUMA node), and the CPUs near it.
struct MemoryNode {
  int id = 0;
  std::vector<int> cpus;  // only those on which this process may run
  int n_cores = 0;        // of these CPUs
};

// The nodes that have CPUs for this process, in the order of their ids. Empty if unknown.
std::vector<MemoryNode> memory_nodes(const std::string& root = "");

}  // namespace ingot
