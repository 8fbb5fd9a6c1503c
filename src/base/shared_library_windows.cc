#include <windows.h>

#include <filesystem>

#include "base/shared_library.h"

namespace ingot {

void* open_library(const std::string& name) {
  return name.empty() ? GetModuleHandleA(nullptr) : LoadLibraryA(name.c_str());
}

std::string library_fault() { return "Windows error " + std::to_string(GetLastError()); }

void* function_of(void* library, const char* name) {
  return reinterpret_cast<void*>(GetProcAddress(static_cast<HMODULE>(library), name));
}

std::string folder_of_this_code() {
  char path[MAX_PATH] = "";
  GetModuleFileNameA(nullptr, path, MAX_PATH);
  return std::filesystem::path(path).parent_path().string();
}

}  // namespace ingot
