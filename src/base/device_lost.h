// DeviceLost: the device has failed permanently, for example a GPU after an illegal access in a kernel. Every later
// call fails too; only a new process can use the device. So the engine stops, and the program exits with
// kExitLostDevice.
#pragma once
#include "base/error.h"

namespace ingot {

class DeviceLost : public Error {
 public:
  using Error::Error;
};

inline constexpr int kExitLostDevice = 71;

}  // namespace ingot
