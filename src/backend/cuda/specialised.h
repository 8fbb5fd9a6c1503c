// Kernels compiled for one product of the model that runs: the body of a kernel that the program has ahead of time,
// with the product's sizes and flags (product_shape.h) as constants. docs/performance.md says where that wins, and only
// there it is done.
//
// Nobody waits for them. The first step that asks for such a product has it made by threads of its own (NVRTC, or a
// copy that an earlier run kept in the user's cache folder), and runs the kernel of any shape; when all that was asked
// for is there, the next step takes it up. Both compute the same numbers in the same order. Where NVRTC fails, the
// kernel of any shape stays.
#pragma once
#include <driver_types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backend/cuda/matmul/packed_weight.h"
#include "backend/cuda/matmul/product_shape.h"
#include "base/cache_folder.h"

namespace ingot::cuda {

struct DeviceLimits;

struct SpecialisedKernel {
  enum Which : uint8_t { kDotCodes, kDotRows, kMatvec, kTiles, kWarpgroups, kExpertCodes } which;
  Layout layout;
  bool has_min, group16;
  // Of kDotCodes and kExpertCodes: gates + 1. Of kDotRows: rows of weights of a task. Of the others: what a block takes
  // of activations, of kMatvec and kTiles in tiles of 8 rows, of kWarpgroups in rows.
  int n;
  ProductShape shape;

  bool operator==(const SpecialisedKernel&) const = default;
};

// What NVRTC compiles; the kernel in it is called "specialised".
std::string source_of(const SpecialisedKernel& kernel);

class SpecialisedKernels {
 public:
  // For a device of these limits, where there is NVRTC. `folder` keeps what was made; "": nothing.
  SpecialisedKernels(const DeviceLimits& device, std::string folder);
  ~SpecialisedKernels();  // waits for what is being compiled
  SpecialisedKernels(const SpecialisedKernels&) = delete;
  SpecialisedKernels& operator=(const SpecialisedKernels&) = delete;

  // The kernel, as launches take it; null when there is none yet, or none at all.
  const void* find(const SpecialisedKernel& kernel);

  // Takes up what has been made, unless more is on its way. True: there is something new, so recorded steps are to be
  // forgotten.
  bool take_up();
  void wait();  // until all is made that was asked for

  int n_failed() const { return n_failed_; }  // of those taken up

 private:
  struct Entry {
    SpecialisedKernel kernel;
    std::vector<char> code;  // empty: it could not be made
    cudaLibrary_t library = nullptr;
    const void* function = nullptr;
  };

  void add_thread();
  void work();
  std::vector<char> make(const SpecialisedKernel& kernel);
  void load(Entry& entry);

  const size_t most_shared_;
  const std::string arch_;  // "sm_90a", say
  std::string made_with_;   // once there is something to make
  const CacheFolder folder_;

  // The entries up to n_taken_ are the caller's alone; of the others the code is a thread's, which makes it.
  std::deque<Entry> entries_;
  size_t n_taken_ = 0;
  int n_failed_ = 0;

  std::mutex mutex_;
  std::condition_variable asked_, made_;
  size_t n_begun_ = 0, n_made_ = 0;  // of entries_
  int n_kept_ = 0;                   // that came from the folder
  bool stops_ = false, has_complained_ = false;
  std::chrono::steady_clock::time_point first_asked_;
  std::vector<std::thread> threads_;
};

// The kernel for a launch: a specialised one, or that of any shape.
template <class Kernel>
Kernel kernel_or(Kernel any, SpecialisedKernels* specialised, const SpecialisedKernel& wanted) {
  const void* found = specialised != nullptr ? specialised->find(wanted) : nullptr;
  return found != nullptr ? reinterpret_cast<Kernel>(const_cast<void*>(found)) : any;
}

}  // namespace ingot::cuda
