// What `ingot --version` prints.
#pragma once
#include <string>

namespace ingot {

std::string version_line();  // "ingot 0.2.0"
std::string version_json();  // with the commit, the compiler, the system and the backends

std::string build_commit();  // "unknown" outside a clone
std::string build_compiler();

}  // namespace ingot
