// Limits of control groups, read from trees of files as Linux shows them.
#include "base/control_group.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace ingot {
namespace {

namespace fs = std::filesystem;
constexpr size_t kMiB = size_t{1} << 20;

class ControlGroupTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / "control_group";
    fs::remove_all(root_);
    fs::create_directories(root_ / "mounts");
  }
  void TearDown() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / "mounts" / path).parent_path());
    std::ofstream(root_ / "mounts" / path) << text << "\n";
  }
  ControlGroup read(const std::string& membership) {
    std::ofstream(root_ / "membership") << membership;
    return read_control_group((root_ / "mounts").string(), (root_ / "membership").string());
  }

  fs::path root_;
};

TEST_F(ControlGroupTest, NoneIsNoLimit) {
  for (const char* membership : {"", "0::/\n", "garbage\n", "0::/no/such\n"}) {
    const ControlGroup group = read(membership);
    EXPECT_EQ(group.memory_left, SIZE_MAX);
    EXPECT_GT(group.n_cpus, 1e9);
    EXPECT_EQ(group.pids, "");
  }
}

// The page cache is not used memory, and the tightest group decides.
TEST_F(ControlGroupTest, ReadsTheOwnGroupAndThoseAbove) {
  write("memory.max", "max");
  write("a/memory.max", std::to_string(1000 * kMiB));
  write("a/memory.current", std::to_string(900 * kMiB));
  write("a/memory.stat", "anon 1\ninactive_file " + std::to_string(600 * kMiB) + "\nactive_file 7");
  write("a/b/memory.max", std::to_string(500 * kMiB));
  write("a/b/memory.current", std::to_string(100 * kMiB));
  write("a/cpu.max", "150000 100000");
  write("a/b/cpu.max", "max 100000");
  write("a/pids.max", "77");
  write("a/pids.current", "5");
  ControlGroup group = read("0::/a/b\n");
  EXPECT_EQ(group.memory_left, 400 * kMiB);
  EXPECT_EQ(group.n_cpus, 1.5);
  EXPECT_EQ(group.pids, "pids.max of the control group is 77, 5 are in use");
  group = read("0::/a\n");
  EXPECT_EQ(group.memory_left, 700 * kMiB);
  group = read("0::/\n");
  EXPECT_EQ(group.memory_left, SIZE_MAX);
}

// In a container, the file system's root is the container's group, but the membership may name a path of the host.
TEST_F(ControlGroupTest, ReadsTheRootOfAContainer) {
  write("memory.max", std::to_string(300 * kMiB));
  write("memory.current", std::to_string(310 * kMiB));
  write("cpu.max", "50000 100000");
  const ControlGroup group = read("0::/docker/0123\n");
  EXPECT_EQ(group.memory_left, 0u);
  EXPECT_EQ(group.n_cpus, 0.5);
}

TEST_F(ControlGroupTest, ReadsVersion1) {
  write("memory/job/memory.limit_in_bytes", std::to_string(200 * kMiB));
  write("memory/job/memory.usage_in_bytes", std::to_string(150 * kMiB));
  write("memory/job/memory.stat", "cache 1\ntotal_inactive_file " + std::to_string(50 * kMiB));
  write("memory/memory.limit_in_bytes", "9223372036854771712");
  write("cpu,cpuacct/job/cpu.cfs_quota_us", "300000");
  write("cpu,cpuacct/job/cpu.cfs_period_us", "100000");
  write("cpu,cpuacct/cpu.cfs_quota_us", "-1");
  write("cpu,cpuacct/cpu.cfs_period_us", "100000");
  const ControlGroup group = read("5:memory:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/job\n0::/\n");
  EXPECT_EQ(group.memory_left, 100 * kMiB);
  EXPECT_EQ(group.n_cpus, 3);
}

}  // namespace
}  // namespace ingot
