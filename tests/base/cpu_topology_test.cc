#include "base/cpu_topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace ingot {
namespace {

// A file system root with the files that Linux provides: the allowed CPUs, the CPUs of each CPU's core, and the CPUs of
// each memory node listed in `online`.
class FakeRoot {
 public:
  FakeRoot(const std::string& allowed, const std::vector<std::string>& siblings, const std::string& online = "",
           const std::vector<std::string>& node_cpus = {})
      : path(std::filesystem::path(testing::TempDir()) /
             ("ingot-cpus-" + std::to_string(getpid()) + "-" + std::to_string(++made_))) {
    write("proc/self/status", "Name:\tingot\nCpus_allowed:\tff\nCpus_allowed_list:\t" + allowed + "\nThreads:\t1\n");
    for (size_t cpu = 0; cpu < siblings.size(); ++cpu)
      write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list",
            siblings[cpu] + "\n");
    if (!online.empty()) write("sys/devices/system/node/online", online + "\n");
    for (size_t node = 0; node < node_cpus.size(); ++node)
      write("sys/devices/system/node/node" + std::to_string(node) + "/cpulist", node_cpus[node] + "\n");
  }
  ~FakeRoot() { std::filesystem::remove_all(path); }
  const std::filesystem::path path;

  // A file of /sys/devices/system/cpu/cpuN.
  void describe(int cpu, const std::string& name, const std::string& text) {
    write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/" + name, text + "\n");
  }
  void name_processor(const std::string& cpuinfo) { write("proc/cpuinfo", cpuinfo); }
  void add_cache(int cpu, int index, int level, const std::string& type, const std::string& size,
                 const std::string& sharing) {
    const std::string folder = "cache/index" + std::to_string(index) + "/";
    describe(cpu, folder + "level", std::to_string(level));
    describe(cpu, folder + "type", type);
    describe(cpu, folder + "size", size);
    describe(cpu, folder + "shared_cpu_list", sharing);
  }

 private:
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
  }
  static inline int made_ = 0;
};

TEST(CpuTopology, HyperthreadsOfACoreCountOnce) {
  EXPECT_EQ(allowed_cores(FakeRoot("0-3", {"0", "1", "2", "3"}).path), 4);
  EXPECT_EQ(allowed_cores(FakeRoot("0-3", {"0,2", "1,3", "0,2", "1,3"}).path), 2);
  EXPECT_EQ(allowed_cores(FakeRoot("0-3", {"0-1", "0-1", "2-3", "2-3"}).path), 2);
  EXPECT_EQ(allowed_cores(FakeRoot("0-5", {"0-1", "0-1", "2-3", "2-3", "4", "5"}).path), 4) << "of two kinds";
}

TEST(CpuTopology, CpusThatAreNotAllowedDoNotCount) {
  const std::vector<std::string> four = {"0,2", "1,3", "0,2", "1,3"};
  EXPECT_EQ(allowed_cores(FakeRoot("0,2", four).path), 1);
  EXPECT_EQ(allowed_cores(FakeRoot("2-3", four).path), 2);
  EXPECT_EQ(allowed_cores(FakeRoot("3", four).path), 1);
}

TEST(CpuTopology, IsUnknownWithoutTheFiles) {
  EXPECT_EQ(allowed_cores("/nowhere"), 0);
  EXPECT_EQ(allowed_cores(FakeRoot("0-1", {"0"}).path), 0) << "CPU 1 has none";
  EXPECT_EQ(allowed_cores(FakeRoot("all", {"0"}).path), 0);
}

TEST(CpuTopology, NamesTheProcessor) {
  FakeRoot root("0", {"0"});
  EXPECT_EQ(processor_name(root.path), "");
  root.name_processor("processor\t: 0\nmodel\t\t: 1\nmodel name\t: A Fast One: 9 GHz\nflags\t\t: fpu\n");
  EXPECT_EQ(processor_name(root.path), "A Fast One: 9 GHz");
}

std::string nodes_text(const std::vector<MemoryNode>& nodes) {
  std::string text;
  for (const MemoryNode& node : nodes)
    text += fmt::format("{}: {} ({} cores); ", node.id, fmt::join(node.cpus, " "), node.n_cores);
  return text;
}

TEST(MemoryNodes, HaveTheCpusOfThisProcess) {
  const std::vector<std::string> pairs = {"0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"};
  const std::vector<std::string> two = {"0-1,4-5", "2-3,6-7"};
  EXPECT_EQ(nodes_text(memory_nodes(FakeRoot("0-7", pairs, "0-1", two).path)),
            "0: 0 1 4 5 (2 cores); 1: 2 3 6 7 (2 cores); ");
  EXPECT_EQ(nodes_text(memory_nodes(FakeRoot("1-3", pairs, "0-1", two).path)), "0: 1 (1 cores); 1: 2 3 (2 cores); ");
  EXPECT_EQ(nodes_text(memory_nodes(FakeRoot("2,6", pairs, "0-1", two).path)), "1: 2 6 (1 cores); ");
}

TEST(MemoryNodes, MayHaveNoCpus) {  // memory on a card, or a node that is offline
  EXPECT_EQ(nodes_text(memory_nodes(FakeRoot("0-1", {"0", "1"}, "0,2", {"0-1", "", ""}).path)), "0: 0 1 (2 cores); ");
  EXPECT_EQ(nodes_text(memory_nodes(FakeRoot("0-1", {"0", "1"}, "1", {"0", "1"}).path)), "1: 1 (1 cores); ");
}

TEST(MemoryNodes, AreNoneWithoutTheFiles) {
  EXPECT_TRUE(memory_nodes("/nowhere").empty());
  EXPECT_TRUE(memory_nodes(FakeRoot("0-1", {"0", "1"}).path).empty());
  EXPECT_EQ(nodes_text(memory_nodes(FakeRoot("0-1", {}, "0", {"0-1"}).path)), "0: 0 1 (2 cores); ")
      << "cores are not known";
}

// Two sockets of two cores with two threads each, numbered as Linux usually does: the second threads come last.
struct TwoSockets : FakeRoot {
  explicit TwoSockets(const std::string& allowed = "0-7")
      : FakeRoot(allowed, {"0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"}, "0-1", {"0-1,4-5", "2-3,6-7"}) {
    for (int cpu = 0; cpu < 8; ++cpu) {
      const int core = cpu % 4, socket = core / 2;
      const std::string siblings = fmt::format("{},{}", core, core + 4),
                        of_socket = socket == 0 ? "0-1,4-5" : "2-3,6-7";
      describe(cpu, "topology/physical_package_id", std::to_string(socket));
      add_cache(cpu, 0, 1, "Data", "48K", siblings);
      add_cache(cpu, 1, 1, "Instruction", "32K", siblings);
      add_cache(cpu, 2, 2, "Unified", "2048K", siblings);
      add_cache(cpu, 3, 3, "Unified", "105M", of_socket);
    }
  }
};

std::string caches_text(const CpuTopology& topology) {
  std::string text;
  for (const CpuCaches& c : topology.caches)
    text += fmt::format("L{} {} {} KiB x {}, {}; ", c.level, c.type, c.bytes >> 10, c.n_caches, c.n_cpus);
  return text;
}

TEST(Topology, HasSocketsCoresCachesAndNodes) {
  const CpuTopology t = read_topology(TwoSockets().path);
  EXPECT_EQ(t.n_sockets, 2);
  EXPECT_EQ(t.n_cores, 4);
  EXPECT_EQ(t.most_threads, 2);
  ASSERT_EQ(t.cpus.size(), 8u);
  EXPECT_EQ(t.cpus[6].cpu, 6);
  EXPECT_EQ(t.cpus[6].core, 2);
  EXPECT_EQ(t.cpus[6].socket, 1);
  EXPECT_EQ(caches_text(t), "L1 Data 48 KiB x 4, 2; L2 Unified 2048 KiB x 4, 2; L3 Unified 107520 KiB x 2, 4; ");
  EXPECT_EQ(nodes_text(t.nodes), "0: 0 1 4 5 (2 cores); 1: 2 3 6 7 (2 cores); ");
}

TEST(Topology, CountsOnlyCpusOfThisProcess) {
  const CpuTopology t = read_topology(TwoSockets("1,5-6").path);
  EXPECT_EQ(t.n_sockets, 2);
  EXPECT_EQ(t.n_cores, 2);
  EXPECT_EQ(t.most_threads, 2);
  EXPECT_EQ(caches_text(t), "L1 Data 48 KiB x 2, 2; L2 Unified 2048 KiB x 2, 2; L3 Unified 107520 KiB x 2, 2; ");
}

TEST(Topology, PutsThreadsApartOrTogether) {
  const CpuTopology t = read_topology(TwoSockets().path);
  const auto text = [](const std::vector<int>& cpus) { return fmt::format("{}", fmt::join(cpus, " ")); };
  EXPECT_EQ(text(cpus_apart(t, 4)), "0 1 2 3");
  EXPECT_EQ(text(cpus_apart(t, 6)), "0 1 2 3 4 5");
  EXPECT_EQ(text(cpus_together(t, 3)), "0 4 1");
  EXPECT_EQ(text(cpus_together(t, 6)), "0 4 1 5 2 6");
  EXPECT_EQ(cpus_apart(t, 20).size(), 8u);
  EXPECT_TRUE(cpus_together(t, 0).empty());
}

TEST(Topology, OfTwoKindsOfCores) {  // two cores with two threads, two with one
  const CpuTopology t = read_topology(FakeRoot("0-5", {"0-1", "0-1", "2-3", "2-3", "4", "5"}).path);
  EXPECT_EQ(t.n_cores, 4);
  EXPECT_EQ(t.n_sockets, 1);
  EXPECT_TRUE(t.caches.empty());
  EXPECT_EQ(fmt::format("{}", fmt::join(cpus_apart(t, 5), " ")), "0 2 4 5 1");
}

TEST(Topology, TakesEachCpuAsACoreWithoutTheFiles) {
  const CpuTopology t = read_topology(FakeRoot("0-2", {}).path);
  EXPECT_EQ(t.n_cores, 3);
  EXPECT_EQ(t.most_threads, 1);
  EXPECT_TRUE(read_topology("/nowhere").cpus.empty());
}

}  // namespace
}  // namespace ingot
