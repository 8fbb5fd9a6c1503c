// The devices that tests may use.
#pragma once
#include <string>

#include "backend/backend.h"
#include "base/error.h"

namespace ingot {

// Whether this build and machine have the device; all have "cpu" and "ref".
inline bool has_device(const std::string& device) {
  try {
    create_backend({.device = device.substr(0, device.find(','))});  // "cpu,cpu": two stages
    return true;
  } catch (const UsageError&) {
    return false;
  }
}

}  // namespace ingot
