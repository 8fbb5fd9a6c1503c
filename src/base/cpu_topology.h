// The cores, caches and memory nodes of this machine, read from Linux's /proc and /sys.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace ingot {

// The number of cores whose CPUs this process may use; 0 if unknown. A core with hyperthreads has several CPUs. `root`
// is the folder that holds proc and sys; "" is the machine's own.
int allowed_cores(const std::string& root = "");

// The processor's name, as in /proc/cpuinfo; "" if unknown.
std::string processor_name(const std::string& root = "");

// A part of the memory (a NUMA node), and the CPUs near it.
struct MemoryNode {
  int id = 0;
  std::vector<int> cpus;  // only those on which this process may run
  int n_cores = 0;        // of these CPUs
};

// The nodes that have CPUs for this process, in the order of their ids. Empty if unknown.
std::vector<MemoryNode> memory_nodes(const std::string& root = "");

// A CPU on which this process may run: a core, or one of the threads of a core.
struct CpuPlace {
  int cpu = 0;
  int core = 0;    // the first CPU of its core
  int socket = 0;  // the package; 0 if unknown
};

// The caches of one level and type.
struct CpuCaches {
  int level = 0;
  std::string type;  // "Data", "Instruction" or "Unified"
  size_t bytes = 0;  // of one cache
  int n_caches = 0;  // that CPUs of this process use
  int n_cpus = 0;    // of this process, that share one: of the cache with the most
};

struct CpuTopology {
  std::vector<CpuPlace> cpus;  // of this process, by number; empty if unknown
  std::vector<CpuCaches> caches;  // by level; data and unified caches only
  std::vector<MemoryNode> nodes;
  int n_sockets = 0, n_cores = 0;
  int most_threads = 0;  // of this process on one core
};

CpuTopology read_topology(const std::string& root = "");

// CPUs for n threads: a CPU of each core before a second one of any core (apart), or all CPUs of a core before the next
// core (together). At most all CPUs.
std::vector<int> cpus_apart(const CpuTopology& topology, int n);
std::vector<int> cpus_together(const CpuTopology& topology, int n);

}  // namespace ingot
