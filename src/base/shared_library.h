// Loads optional shared libraries at run time. Implemented in shared_library_posix.cc and shared_library_windows.cc.
#pragma once
#include <string>

namespace ingot {

// Loads a library, which stays loaded; null if this fails.
void* open_library(const std::string& name);
// A function of the library by name; null if absent.
void* function_of(void* library, const char* name);

}  // namespace ingot
