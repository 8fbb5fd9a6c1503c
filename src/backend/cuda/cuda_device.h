// Device: one GPU of the machine. It holds the stream on which a backend enqueues all work, the limits for which
// kernels are planned, and the attributes already set for each kernel. Data about one GPU is held here and not in a
// static variable, so a process may use several GPUs.
#pragma once
#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <string>
#include <unordered_map>

#include "backend/cuda/chips.h"
#include "backend/cuda/memory.h"

namespace ingot::cuda {

// Makes the GPU the current device of this thread; costs nothing if it already is. The previous device is not restored,
// because setting a device creates its context, and a thread may begin with a device that this process does not use.
// Does not throw, because destructors call it and ignore the error of a lost GPU.
cudaError_t select_device(int index) noexcept;

// Whether the program's code for the current device has Hopper's special instructions. Code compiled for 9.0a has them.
// Newer GPUs do not support them, and code that the driver compiles from PTX lacks them. Throws like check().
bool finds_hopper_code();

// [n]: how many clusters of n blocks can be resident on the GPU at once.
using ClustersAtOnce = std::array<int, 17>;

// The properties of the GPU's model.
struct DeviceLimits {
  int major = 0, minor = 0;  // compute capability
  int n_multiprocessors = 1;
  size_t most_shared = size_t{48} << 10;  // most bytes of shared memory in one block
  size_t l2_bytes = 0;
  bool multiplies_float8 = false;  // the tensor cores multiply 8-bit floats, and options do not forbid it

  bool has_hopper_code = false;  // see finds_hopper_code()

  const Chip& chip() const { return chip_of(major, minor); }
};

// Memory in which the blocks of one product exchange sums. A product may use all of it while it runs.
struct Workspace {
  Memory memory;
  Memory ready;  // kReadyBytes for each multiprocessor, zero between kernels
};
inline constexpr size_t kReadyBytes = 32;

class Device {
 public:
  // Makes GPU `index` the current device of this thread, and creates a stream on it.
  explicit Device(int index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // A thread must call this before it allocates memory on this device or asks about it. Throws like check().
  void make_current() const;

  int index() const { return index_; }
  // Also makes this GPU the thread's current device, because a kernel is launched on the current device. So one thread
  // may run ops of several GPUs in turn.
  cudaStream_t stream() const {
    select_device(index_);
    return on_branch_ ? branch_ : stream_;
  }
  // For copies that must not wait for the work in stream().
  cudaStream_t copy_stream() const { return copy_stream_; }
  const std::string& name() const { return name_; }
  size_t memory_bytes() const { return memory_bytes_; }
  const DeviceLimits& limits() const { return limits_; }
  int n_multiprocessors() const { return limits_.n_multiprocessors; }
  size_t most_shared() const { return limits_.most_shared; }
  const Chip& chip() const { return limits_.chip(); }
  void forbid_float8() { limits_.multiplies_float8 = false; }

  // Enqueues two groups of kernels that may run at the same time, for kernels that leave much of the GPU idle. During
  // on_branch(), stream() is a second stream. Work that the caller enqueues afterwards waits for both groups.
  template <class A, class B>
  void side_by_side(A&& on_branch, B&& on_stream) {
    const Join join(*this);
    {
      const Branch branch(*this);
      on_branch();
    }
    on_stream();
  }
  bool is_on_branch() const { return on_branch_; }

  const Workspace& workspace() const { return on_branch_ ? branch_workspace_ : workspace_; }  // of stream()
  size_t workspace_bytes() const;

  // Allows launches of the kernel with `shared` bytes of dynamic shared memory and clusters of `cluster_blocks` blocks.
  // Calls the driver only when a limit has to be raised.
  void prepare(const void* kernel, size_t shared, unsigned cluster_blocks);

  // Counts clusters of up to most_blocks blocks, each with `shared` bytes of dynamic shared memory; 0: the GPU cannot
  // launch them. The result is cached by kernel, so all calls for a kernel must pass the same threads and memory.
  const ClustersAtOnce& clusters_at_once(const void* kernel, int threads, size_t shared, unsigned most_blocks);

 private:
  static constexpr unsigned kPortableCluster = 8;  // larger clusters must be permitted first
  struct Kernel {
    bool known = false;
    size_t static_shared = 0;
    size_t shared = 0;     // dynamic bytes that a launch may use
    bool wide = false;     // may have clusters of more than kPortableCluster blocks
    unsigned counted = 0;  // blocks of the largest cluster in at_once
    ClustersAtOnce at_once{};
  };
  struct Branch {
    Device& device;
    explicit Branch(Device& d) : device(d) { device.begin_branch(); }
    ~Branch() { device.end_branch(); }
  };
  struct Join {
    Device& device;
    explicit Join(Device& d) : device(d) {}
    ~Join() { device.join(); }
  };
  void begin_branch();
  // CUDA keeps an error of these two functions, and the next check_launch() reports it.
  void end_branch() noexcept;
  void join() noexcept;
  cudaError_t permit(Kernel& k, const void* kernel, size_t shared, unsigned cluster_blocks);

  const int index_;
  cudaStream_t stream_ = nullptr, copy_stream_ = nullptr, branch_ = nullptr;
  cudaEvent_t forked_ = nullptr, ended_ = nullptr;  // of the branch
  bool on_branch_ = false;
  std::string name_;
  size_t memory_bytes_ = 0;
  DeviceLimits limits_;
  std::unordered_map<const void*, Kernel> kernels_;
  Workspace workspace_, branch_workspace_;
};

}  // namespace ingot::cuda
