#include "backend/cuda/cuda_device.h"

#include <algorithm>

#include "backend/cuda/entry.h"
#include "backend/cuda/memory.h"

namespace ingot::cuda {
namespace {

constexpr size_t kWorkspace = 32 << 20;           // NVIDIA's recommendation for cuBLASLt on Hopper
constexpr size_t kFreeShared = size_t{48} << 10;  // bytes, static and dynamic, that any block may use

struct Card {
  int major = 0, minor = 0;
  size_t shared_bytes = 0;
} pretended;  // for tests

}  // namespace

void library::pretend_card(int major, int minor, size_t shared_bytes) { pretended = {major, minor, shared_bytes}; }

cudaError_t select_device(int index) noexcept {
  int current = -1;
  if (cudaGetDevice(&current) == cudaSuccess && current == index) return cudaSuccess;
  return cudaSetDevice(index);
}

void Device::make_current() const { check(select_device(index_), "cudaSetDevice"); }

Device::Device(int index) : index_(index) {
  make_current();
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  name_ = properties.name;
  memory_bytes_ = properties.totalGlobalMem;
  limits_ = {.major = properties.major,
             .minor = properties.minor,
             .n_multiprocessors = properties.multiProcessorCount,
             .most_shared = properties.sharedMemPerBlockOptin,
             .l2_bytes = static_cast<size_t>(properties.l2CacheSize),
             .multiplies_float8 = chip_of(properties.major, properties.minor).multiplies_float8,
             .has_hopper_code = finds_hopper_code()};
  if (pretended.major > 0) {
    limits_.major = pretended.major, limits_.minor = pretended.minor;
    limits_.has_hopper_code &= pretended.major == 9;
    limits_.most_shared = std::min(limits_.most_shared, pretended.shared_bytes);
  }
  // Before the streams: a constructor that throws does not destroy them.
  for (Workspace* w : {&workspace_, &branch_workspace_})
    *w = {Memory(kWorkspace), Memory(kReadyBytes * static_cast<size_t>(limits_.n_multiprocessors))};
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  for (cudaStream_t* other : {&copy_stream_, &branch_})
    check(cudaStreamCreateWithFlags(other, cudaStreamNonBlocking), "cudaStreamCreate");
  for (cudaEvent_t* event : {&forked_, &ended_})
    check(cudaEventCreateWithFlags(event, cudaEventDisableTiming), "cudaEventCreate");
  for (const Workspace* w : {&workspace_, &branch_workspace_})  // the branch waits for stream_
    check(cudaMemsetAsync(w->ready.data(), 0, w->ready.size(), stream_), "cudaMemset");
}

size_t Device::workspace_bytes() const {
  size_t bytes = 0;
  for (const Workspace* w : {&workspace_, &branch_workspace_}) bytes += w->memory.size() + w->ready.size();
  return bytes;
}

Device::~Device() {
  select_device(index_);
  for (cudaEvent_t event : {forked_, ended_}) cudaEventDestroy(event);
  for (cudaStream_t stream : {branch_, copy_stream_, stream_}) cudaStreamDestroy(stream);
}

void Device::begin_branch() {
  check(cudaEventRecord(forked_, stream_), "cudaEventRecord");
  check(cudaStreamWaitEvent(branch_, forked_), "cudaStreamWaitEvent");
  on_branch_ = true;
}

void Device::end_branch() noexcept {
  on_branch_ = false;
  cudaEventRecord(ended_, branch_);
}

void Device::join() noexcept { cudaStreamWaitEvent(stream_, ended_); }

void Device::prepare(const void* kernel, size_t shared, unsigned cluster_blocks) {
  if (shared == 0 && cluster_blocks <= kPortableCluster) return;
  check(permit(kernels_[kernel], kernel, shared, cluster_blocks), "cudaFuncSetAttribute");
}

// Raises the kernel's limit to all shared memory of a block. A smaller limit could undo the setting of another backend,
// which has its own Device for the same GPU.
cudaError_t Device::permit(Kernel& k, const void* kernel, size_t shared, unsigned cluster_blocks) {
  if (!k.known) {
    cudaFuncAttributes attributes{};
    if (const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel); status != cudaSuccess) return status;
    k.known = true;
    k.static_shared = attributes.sharedSizeBytes;
    k.shared = k.static_shared < kFreeShared ? kFreeShared - k.static_shared : 0;
  }
  if (shared > k.shared) {
    const size_t max_dynamic = limits_.most_shared - k.static_shared;
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(max_dynamic));
    if (status != cudaSuccess) return status;
    k.shared = max_dynamic;
  }
  if (cluster_blocks > kPortableCluster && !k.wide) {
    const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (status != cudaSuccess) return status;
    k.wide = true;
  }
  return cudaSuccess;
}

const ClustersAtOnce& Device::clusters_at_once(const void* kernel, int threads, size_t shared, unsigned most_blocks) {
  Kernel& k = kernels_[kernel];
  if (k.counted >= most_blocks) return k.at_once;
  k.counted = most_blocks;
  const bool can = chip().has_clusters && permit(k, kernel, shared, most_blocks) == cudaSuccess;
  for (unsigned n = 1; can && n < k.at_once.size() && n <= most_blocks; ++n) {
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {1, n, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(1, n, static_cast<unsigned>(limits_.n_multiprocessors));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = shared;
    config.attrs = &cluster, config.numAttrs = 1;
    if (cudaOccupancyMaxActiveClusters(&k.at_once[n], kernel, &config) != cudaSuccess) k.at_once[n] = 0;
  }
  cudaGetLastError();  // clears the error of clusters that cannot be launched
  return k.at_once;
}

}  // namespace ingot::cuda
