// The CUDA backend, which cuda_library.cc opens at run time.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "backend/backend.h"

namespace ingot {

// Throws UsageError if the installation has no CUDA, or the machine has no GPU or no driver.
std::unique_ptr<Backend> create_cuda_backend(const BackendOptions& options);

// One line that says why there is no GPU to run on; empty if there is one.
std::string why_no_cuda();

namespace cuda {

// For tests: from now on, the n-th allocation of device or pinned memory (0: the next) fails once; -1: none fails.
void fail_allocation(int n);
int allocations_left();  // allocations before the failing one; -1: it has failed, or none is set to fail

// For tests: the next n recordings of steps fail, as without memory for them.
void fail_recordings(int n);
int failing_recordings();  // how many of them are left

// For tests: backends made from now on plan for a card of this compute capability, whose blocks have at most
// `shared_bytes` of shared memory. BackendOptions::kernels must be "fixed", because the real GPU cannot run kernels
// that NVRTC compiles for another card. major = 0: backends plan for the real GPU.
void pretend_card(int major, int minor, size_t shared_bytes);

}  // namespace cuda
}  // namespace ingot
