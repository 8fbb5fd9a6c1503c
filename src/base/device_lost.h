// DeviceLost: the device has failed permanently, for example a GPU after an illegal access in a kernel. Every later
// call to the device fails too, and only a new process can use the device again. So the engine stops, and the program
// exits with kExitLostDevice.
#pragma once
#include "base/error.h"

namespace ingot {

class DeviceLost : public Error {
 public:
  using Error::Error;
};

inline constexpr int kExitLostDevice = 71;

}  // namespace ingot
