// DeviceLost: the device has failed for good, as a GPU does after a kernel's bad access. Every later call to the device
// fails too, and only a new process helps: the engine ends, and the program exits with kExitLostDevice.
#pragma once
#include "base/error.h"

namespace ingot {

class DeviceLost : public Error {
 public:
  using Error::Error;
};

inline constexpr int kExitLostDevice = 71;

}  // namespace ingot
