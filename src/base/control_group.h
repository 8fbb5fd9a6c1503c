// ControlGroup: the limits of Linux's control groups for this process (containers, systemd units). A limit of any group
// above the process's own holds too. Knows versions 1 and 2.
#pragma once
#include <cstddef>
#include <limits>
#include <string>

namespace ingot {

struct ControlGroup {
  size_t memory_left =
      std::numeric_limits<size_t>::max();  // bytes; pages of files that the kernel can drop count as free
  double n_cpus = std::numeric_limits<double>::infinity();  // by the quotas of processor time
  std::string pids;  // the limit of threads, for messages: "pids.max of the control group is 100, 98 are in use"; or ""
};

// mounts: the folder of the group file systems. membership: the file that names the process's groups.
ControlGroup read_control_group(const std::string& mounts = "/sys/fs/cgroup",
                                const std::string& membership = "/proc/self/cgroup");

}  // namespace ingot
