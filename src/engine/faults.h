// Helpers for faults on the engine's thread, in places where an exception would end the process. For src/engine only.
#pragma once
#include <exception>
#include <string>
#include <utility>

#include "base/log.h"

namespace ingot {

inline std::string message_of(const std::exception& error) noexcept {
  try {
    return *error.what() == '\0' ? "the step failed" : error.what();
  } catch (...) {
    return "out of memory";
  }
}

// If logging runs out of memory, the message is dropped.
template <class... Args>
void log_safely(LogLevel level, fmt::format_string<Args...> format, Args&&... args) noexcept {
  try {
    detail::log(level, format, std::forward<Args>(args)...);
  } catch (...) {
  }
}

}  // namespace ingot
