// The CUDA backend, without a CUDA header: cuda_backend.cc makes it; where the build has no CUDA, cuda_stub.cc says so.
#pragma once
#include <memory>

#include "backend/backend.h"

namespace ingot {

// Throws UsageError when the build has no CUDA, or the machine no GPU or driver.
std::unique_ptr<Backend> create_cuda_backend(const BackendOptions& options);

}  // namespace ingot
