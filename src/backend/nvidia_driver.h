// What the NVIDIA driver says about its GPUs, by the driver's own library. This needs neither CUDA's libraries nor a
// build with CUDA, so `ingot devices` can say why a GPU is not used.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace ingot {

struct NvidiaGpu {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  size_t memory_bytes = 0;
};

struct NvidiaDriver {
  std::string why_none;                // one line; empty if there is a GPU
  int cuda_major = 0, cuda_minor = 0;  // the newest CUDA that the driver runs; zeros: no driver
  std::vector<NvidiaGpu> gpus;
};

// `library` is the driver's: nullptr means that of this machine.
NvidiaDriver read_nvidia_driver(const char* library = nullptr);

}  // namespace ingot
