// What this process takes, for metrics. Implemented in process_use_posix.cc and process_use_windows.cc.
#pragma once
#include <cstddef>

namespace ingot {

struct ProcessUse {  // 0: unknown on this system
  double cpu_s = 0;  // of all threads, in user and system mode
  size_t resident_bytes = 0, virtual_bytes = 0;
  size_t open_files = 0, max_open_files = 0;
};
ProcessUse process_use();

}  // namespace ingot
