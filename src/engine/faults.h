// The message of a fault on the engine's thread, in places where an exception would end the process. For src/engine only.
#pragma once
#include <exception>
#include <new>
#include <string>

#include "engine/request.h"

namespace ingot {

// kOutOfMemory if memory has run out.
inline std::string message_of(const std::exception& error) noexcept {
  if (dynamic_cast<const std::bad_alloc*>(&error)) return kOutOfMemory;
  try {
    return *error.what() == '\0' ? "the step failed" : error.what();
  } catch (...) {
    return kOutOfMemory;  // short enough not to allocate
  }
}

}  // namespace ingot
