#include <windows.h>

#include "base/process_use.h"

namespace ingot {

ProcessUse process_use() {
  ProcessUse use;
  FILETIME begin{}, end{}, kernel{}, user{};
  const auto seconds = [](const FILETIME& t) { return (t.dwHighDateTime * 4294967296.0 + t.dwLowDateTime) * 1e-7; };
  if (GetProcessTimes(GetCurrentProcess(), &begin, &end, &kernel, &user) != 0)
    use.cpu_s = seconds(kernel) + seconds(user);
  DWORD handles = 0;
  if (GetProcessHandleCount(GetCurrentProcess(), &handles) != 0) use.open_files = handles;
  return use;
}

}  // namespace ingot
