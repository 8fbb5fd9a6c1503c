// DeviceLost: the device has failed for good, as a GPU after a kernel's bad access. All that is asked of it from now on
// fails too, and only a new process helps: the engine ends, and the program with a code of its own.
#pragma once
#include "base/error.h"

namespace ingot {

class DeviceLost : public Error {
 public:
  using Error::Error;
};

inline constexpr int kExitLostDevice = 71;

}  // namespace ingot
