#include "base/cpu_topology.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

namespace ingot {
namespace {

// A root with files as Linux has them: which CPUs are allowed, and for each CPU those of its core.
class FakeRoot {
 public:
  FakeRoot(const std::string& allowed, const std::vector<std::string>& siblings)
      : path(std::filesystem::path(testing::TempDir()) / ("ingot-cpus-" + std::to_string(getpid()) + "-" + std::to_string(++made_))) {
    write("proc/self/status", "Name:\tingot\nCpus_allowed:\tff\nCpus_allowed_list:\t" + allowed + "\nThreads:\t1\n");
    for (size_t cpu = 0; cpu < siblings.size(); ++cpu)
      write("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list", siblings[cpu] + "\n");
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

}  // namespace
}  // namespace ingot
