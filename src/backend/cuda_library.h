// Opens libingot-cuda.so, the CUDA backend, at run time: so one program serves machines with and without a GPU.
// cuBLASLt and NVRTC, which are NVIDIA's, are looked for in the system, in CUDA's folders and in NVIDIA's Python
// packages beside ingot's.
#pragma once
#include <string>
#include <vector>

#include "backend/cuda/entry.h"

namespace ingot {

struct CudaLibrary {
  const CudaEntry* entry = nullptr;  // null if there is none
  std::string path;                  // of the library
  std::string why_none;              // one line, if there is none
};

// Opens the first of these files that exists. If the file needs a library of NVIDIA that the system does not find, the
// folders are tried. The library stays open, and its log lines go to the caller's log.
CudaLibrary open_cuda_library(const std::vector<std::string>& files, const std::vector<std::string>& folders);

// Where this program's own library may be: beside the program or libingot.so, in ../lib/ingot, ...
std::vector<std::string> cuda_library_files();
// Folders with NVIDIA's libraries that the system's search does not know.
std::vector<std::string> nvidia_folders();

// This machine's library, opened at the first call if there is a driver.
const CudaLibrary& cuda_library();

}  // namespace ingot
