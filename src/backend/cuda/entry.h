// What libingot-cuda.so gives to the program that opens it (backend/cuda_library.cc). The library has its own copies of
// base/, quant/ and backend/, so it shares only this table and the classes of backend.h with the program: both must
// come from the same build.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "base/log.h"

namespace ingot {

// Differs if the layouts of shared classes may differ.
extern const char* const kCudaBuild;  // cuda_build.cc

struct CudaEntry {
  const char* build;  // kCudaBuild of the library. This member stays the first.
  std::unique_ptr<Backend> (*create)(const BackendOptions& options);
  std::string (*why_none)();     // one line that says why the library finds no GPU; empty if it does
  void (*log_to)(LogSink sink);  // gets all lines of the library, of any level
  // For tests (create_cuda.h).
  void (*fail_allocation)(int n);
  int (*allocations_left)();
  void (*fail_recordings)(int n);
  int (*failing_recordings)();
  void (*pretend_card)(int major, int minor, size_t shared_bytes);
};

namespace cuda::library {  // what the table points to

std::unique_ptr<Backend> create(const BackendOptions& options);
std::string why_none();
void fail_allocation(int n);
int allocations_left();
void fail_recordings(int n);
int failing_recordings();
void pretend_card(int major, int minor, size_t shared_bytes);

}  // namespace cuda::library
}  // namespace ingot

extern "C" const ingot::CudaEntry* ingot_cuda_entry();
