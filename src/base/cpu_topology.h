// The cores and memory nodes of this machine, as Linux describes them in files.
#pragma once
#include <filesystem>
#include <vector>

namespace ingot {

// The cores whose CPUs this process may use; a core that runs several threads at once (hyperthreads) has several CPUs.
// 0 if the files do not say. `root` is the root of the file system.
int allowed_cores(const std::filesystem::path& root = "/");

// A part of the memory (a NUMA node), and the CPUs near it.
struct MemoryNode {
  int id = 0;
  std::vector<int> cpus;  // only those on which this process may run
  int n_cores = 0;        // of these CPUs
};

// The nodes with CPUs for this process, by number. Empty if the files do not say.
std::vector<MemoryNode> memory_nodes(const std::filesystem::path& root = "/");

}  // namespace ingot
