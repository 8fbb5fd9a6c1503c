// Kernels compiled for one product of the loaded model. Such a kernel has the body of a kernel that is compiled ahead
// of time (the general kernel), with the product's sizes and flags (product_shape.h) as constants. Only products that
// gain from this have such kernels; docs/notes lists them.
//
// No step waits for a compilation. The first step that asks for a product's kernel starts the compilation in separate
// threads (NVRTC, or a copy that an earlier run left in the user's cache folder), and runs the general kernel. When all
// requested kernels are ready, the next step uses them. Both kernels compute the same numbers in the same order. If
// NVRTC fails, the general kernel stays in use.
//
// The kernel of all layers (kGrid) has no general kernel. It replaces the separate kernels of the layers, and a model
// is ready only when this kernel is compiled.
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
  enum Which : uint8_t { kDotCodes, kDotRows, kMatvec, kTiles, kWarpgroups, kExpertCodes, kGrid } which;
  Layout layout;
  bool has_min, group16;
  // kDotCodes and kExpertCodes: gates + 1. kDotRows: rows of weights in a task. The others: rows of activations of a
  // block, counted in tiles of 8 rows for kMatvec and kTiles, in single rows for kWarpgroups.
  int n;
  ProductShape shape;
  std::string source;  // the whole source, only for kGrid

  bool operator==(const SpecialisedKernel&) const = default;
};

const char* name_of(Layout layout);  // in a source

// Blocks of kTiles that a multiprocessor has room for.
constexpr int blocks_at_once(int token_tiles, int weight_tiles) {
  return token_tiles <= 2 && weight_tiles == 1 ? 3 : 2;
}

// The source that NVRTC compiles; its kernel is named "specialised".
std::string source_of(const SpecialisedKernel& kernel);

class SpecialisedKernels {
 public:
  // For a device with these limits; NVRTC must be available. `folder` caches the compiled kernels; "": no cache.
  SpecialisedKernels(const DeviceLimits& device, std::string folder);
  ~SpecialisedKernels();  // waits for running compilations
  SpecialisedKernels(const SpecialisedKernels&) = delete;
  SpecialisedKernels& operator=(const SpecialisedKernels&) = delete;

  // Returns the kernel for a launch. Null if it is not ready yet or could not be compiled.
  const void* find(const SpecialisedKernel& kernel);

  // Loads the compiled kernels, unless some are still being compiled. Returns true if there are new kernels; recorded
  // steps should then be recorded again.
  bool load_ready();
  void wait();  // until all requested kernels are compiled

  int n_failed() const { return n_failed_; }  // to compile or to load

 private:
  struct Entry {
    SpecialisedKernel kernel;
    std::vector<char> code;  // empty: the compilation failed
    cudaLibrary_t library = nullptr;
    const void* function = nullptr;
  };

  void add_thread();
  void work();
  std::vector<char> make(const SpecialisedKernel& kernel);
  void load(Entry& entry);

  const size_t most_shared_;
  const std::string arch_;  // for example "sm_90a"
  std::string made_with_;   // set at the first request
  const CacheFolder folder_;

  // Entries up to n_taken_ belong to the caller's thread. In the other entries, `code` belongs to the thread that
  // compiles the entry.
  std::deque<Entry> entries_;
  size_t n_taken_ = 0;
  int n_failed_ = 0;

  std::mutex mutex_;
  std::condition_variable asked_, made_;
  size_t n_begun_ = 0, n_made_ = 0;  // of entries_
  int n_kept_ = 0;                   // loaded from the folder
  bool stops_ = false, has_complained_ = false;
  std::chrono::steady_clock::time_point first_asked_;
  std::vector<std::thread> threads_;
};

// The kernel for a launch: the specialised kernel if it is ready, else the general kernel.
template <class Kernel>
Kernel kernel_or(Kernel any, SpecialisedKernels* specialised, const SpecialisedKernel& wanted) {
  const void* found = specialised != nullptr ? specialised->find(wanted) : nullptr;
  return found != nullptr ? reinterpret_cast<Kernel>(const_cast<void*>(found)) : any;
}

}  // namespace ingot::cuda
