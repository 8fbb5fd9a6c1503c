// The cores of this machine, as Linux describes them in files.
#pragma once
#include <filesystem>

namespace ingot {

// The cores whose CPUs this process may use; a core that runs several threads at once (hyperthreads) has several CPUs.
// 0 if the files do not say. `root` is the root of the file system.
int allowed_cores(const std::filesystem::path& root = "/");

}  // namespace ingot
