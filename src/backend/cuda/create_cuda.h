// The CUDA backend, without a CUDA header: cuda_backend.cc makes it; where the build has no CUDA, cuda_stub.cc says so.
#pragma once
#include <memory>
#include <string>

#include "backend/backend.h"

namespace ingot {

// Throws UsageError when the build has no CUDA, or the machine no GPU or driver.
std::unique_ptr<Backend> create_cuda_backend(const BackendOptions& options);

// Why there is no GPU to run on, as a line; empty: there is one.
std::string why_no_cuda();

namespace cuda {

// For tests: the n-th allocation of device or pinned memory from now on (0: the next) fails, once; -1: none does.
void fail_allocation(int n);
int allocations_left();  // before that one; -1: it has failed, or none is to

}  // namespace cuda
}  // namespace ingot
