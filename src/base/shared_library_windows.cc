#include <windows.h>

#include "base/shared_library.h"

namespace ingot {

void* open_library(const std::string& name) { return LoadLibraryA(name.c_str()); }
void* function_of(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

}  // namespace ingot
