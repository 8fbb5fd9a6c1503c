#include <dlfcn.h>
#include <link.h>

#include <filesystem>

#include "base/shared_library.h"

namespace ingot {

void* open_library(const std::string& name) {
  return dlopen(name.empty() ? nullptr : name.c_str(), RTLD_NOW | RTLD_LOCAL);
}

std::string library_fault() {
  const char* fault = dlerror();
  return fault == nullptr ? "" : fault;
}

void* function_of(void* library, const char* name) { return dlsym(library, name); }

std::string folder_of_this_code() {
  Dl_info info{};
  link_map* object = nullptr;
  const auto* here = reinterpret_cast<const void*>(&folder_of_this_code);
  if (dladdr1(here, &info, reinterpret_cast<void**>(&object), RTLD_DL_LINKMAP) == 0 || object == nullptr) return "";
  const bool is_program = object->l_name[0] == 0;
  std::error_code error;
  const auto file = std::filesystem::canonical(is_program ? "/proc/self/exe" : object->l_name, error);
  return error ? "" : file.parent_path().string();
}

}  // namespace ingot
