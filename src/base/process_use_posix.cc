#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/process_use.h"

namespace ingot {

ProcessUse process_use() {
  ProcessUse use;
  rusage times{};
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  if (getrusage(RUSAGE_SELF, &times) == 0) use.cpu_s = seconds(times.ru_utime) + seconds(times.ru_stime);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  size_t mapped = 0, resident = 0;
  if (std::ifstream("/proc/self/statm") >> mapped >> resident) {
    use.virtual_bytes = mapped * page;
    use.resident_bytes = resident * page;
  }
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) use.max_open_files = files.rlim_cur;
  if (DIR* folder = opendir("/proc/self/fd")) {
    while (readdir(folder)) ++use.open_files;
    closedir(folder);
    use.open_files -= std::min<size_t>(use.open_files, 3);  // ".", ".." and the folder itself
  }
  return use;
}

}  // namespace ingot
