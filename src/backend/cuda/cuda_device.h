// Device: one GPU of the machine. It has the stream on which a backend enqueues everything, the limits that kernels are
// cut for, and what the driver has been told about each kernel. What is true of one GPU only is kept here and not in a
// static, so a process may use several.
#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <string>
#include <unordered_map>

namespace ingot::cuda {

// Makes the GPU the one that CUDA calls of this thread are for; costs nothing where it is already. The thread's device
// before is not restored: to set a device makes its context, and the device that a thread begins with may be one that
// this process does not use. For destructors, which cannot throw: a GPU that is lost is no concern of theirs.
cudaError_t select_device(int index) noexcept;

// How many clusters of 2^i blocks the GPU holds at once.
using ClustersAtOnce = std::array<int, 5>;

// What a GPU of its kind has.
struct DeviceLimits {
  int major = 0, minor = 0;  // compute capability
  int n_multiprocessors = 1;
  size_t most_shared = size_t{48} << 10;  // bytes of shared memory that one block can have
  size_t l2_bytes = 0;

  bool is_hopper() const { return major == 9; }  // its own instructions are no newer GPU's
  bool has_dependent_launch() const { return major >= 9; }
  bool has_clusters() const { return major >= 9; }
};

class Device {
 public:
  // Makes GPU `index` current in this thread, and a stream on it.
  explicit Device(int index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Any thread that calls CUDA for this device calls this first. Throws what check() throws.
  void make_current() const;

  int index() const { return index_; }
  cudaStream_t stream() const { return stream_; }
  const std::string& name() const { return name_; }
  size_t memory_bytes() const { return memory_bytes_; }
  const DeviceLimits& limits() const { return limits_; }
  int n_multiprocessors() const { return limits_.n_multiprocessors; }
  size_t most_shared() const { return limits_.most_shared; }
  bool is_hopper() const { return limits_.is_hopper(); }
  bool has_dependent_launch() const { return limits_.has_dependent_launch(); }
  bool has_clusters() const { return limits_.has_clusters(); }

  // Allows launches of the kernel with `shared` bytes of dynamic shared memory and clusters of `cluster_blocks` blocks.
  // The driver is told once.
  void prepare(const void* kernel, size_t shared, unsigned cluster_blocks);

  // Of clusters up to most_blocks, with so much dynamic shared memory a block; 0: the GPU cannot launch them. A kernel
  // is asked about once, so threads and memory are always the same ones.
  const ClustersAtOnce& clusters_at_once(const void* kernel, int threads, size_t shared, unsigned most_blocks);

 private:
  static constexpr unsigned kPortableCluster = 8;  // larger ones need leave
  struct Kernel {
    bool known = false;
    size_t static_shared = 0;
    size_t shared = 0;     // dynamic bytes that a launch may take
    bool wide = false;     // may have clusters of more than kPortableCluster blocks
    unsigned counted = 0;  // blocks of the largest cluster in at_once
    ClustersAtOnce at_once{};
  };
  cudaError_t permit(Kernel& k, const void* kernel, size_t shared, unsigned cluster_blocks);

  const int index_;
  cudaStream_t stream_ = nullptr;
  std::string name_;
  size_t memory_bytes_ = 0;
  DeviceLimits limits_;
  std::unordered_map<const void*, Kernel> kernels_;
};

}  // namespace ingot::cuda
