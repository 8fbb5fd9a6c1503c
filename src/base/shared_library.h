// Loads optional shared libraries at run time. Implemented in shared_library_posix.cc and shared_library_windows.cc.
#pragma once
#include <string>

namespace ingot {

// Loads a library, which stays loaded; null if this fails. "" is the program with the libraries that it is linked with.
void* open_library(const std::string& name);
// Why the last open_library of this thread failed.
std::string library_fault();
// A function of the library by name; null if absent.
void* function_of(void* library, const char* name);
// The folder of the program or the library that contains this function.
std::string folder_of_this_code();

}  // namespace ingot
