// The GPU's backend, for tests that run only where there is one.
#pragma once
#include <memory>

#include "backend/cuda/create_cuda.h"
#include "base/error.h"

namespace ingot {

// Null if the build has no CUDA or the machine has no GPU.
inline std::unique_ptr<Backend> gpu(const BackendOptions& options = {.device = "cuda"}) {
  try {
    return create_cuda_backend(options);
  } catch (const UsageError&) {
    return nullptr;
  }
}

}  // namespace ingot
