#include <dlfcn.h>

#include "base/shared_library.h"

namespace ingot {

void* open_library(const std::string& name) { return dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); }
void* function_of(void* library, const char* name) { return dlsym(library, name); }

}  // namespace ingot
