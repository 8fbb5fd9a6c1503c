#include "base/cpu_topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

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

}  // namespace
}  // namespace ingot
