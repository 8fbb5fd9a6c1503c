// Libraries that are loaded while the program runs, because it also works without them: shared_library_posix.cc and
// shared_library_windows.cc.
#pragma once
#include <string>

namespace ingot {

// A library that stays loaded; null if it cannot be loaded.
void* open_library(const std::string& name);
// A function of this library; null if it has none of this name.
void* function_of(void* library, const char* name);

}  // namespace ingot
