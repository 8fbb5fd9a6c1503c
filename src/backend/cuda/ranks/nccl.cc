#include "backend/cuda/ranks/nccl.h"

#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/cuda/memory.h"
#include "base/device_lost.h"
#include "base/error.h"
#include "base/log.h"

namespace ingot::cuda {
namespace {

// NCCL's interface, the same in all versions 2.x.
struct UniqueId {
  char bytes[128];
};
using Status = int;
constexpr Status kSuccess = 0, kInProgress = 7;
enum NcclType : int { kUint8 = 1, kHalf = 6, kFloat = 7, kBfloat = 9 };
constexpr int kSum = 0;

constexpr std::chrono::seconds kMaxAbortTime{5};

struct Library {
  Status (*version)(int*) = nullptr;
  Status (*unique_id)(UniqueId*) = nullptr;
  Status (*init)(void**, int, UniqueId, int) = nullptr;
  Status (*destroy)(void*) = nullptr;
  Status (*abort)(void*) = nullptr;
  Status (*async_error)(void*, Status*) = nullptr;
  const char* (*error)(Status) = nullptr;
  const char* (*last_error)(void*) = nullptr;
  Status (*all_reduce)(const void*, void*, size_t, int, int, void*, cudaStream_t) = nullptr;
  Status (*all_gather)(const void*, void*, size_t, int, void*, cudaStream_t) = nullptr;
  Status (*broadcast)(const void*, void*, size_t, int, int, void*, cudaStream_t) = nullptr;
  bool is_loaded = false;
};

Library load_library() {
  // Disables multicast over NVLink, which needs rights that containers often lack. Connections are made at the start,
  // because a recorded step cannot make one.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  setenv("NCCL_RUNTIME_CONNECT", "0", 0);
  Library l;
  void* handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return l;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    return function != nullptr;
  };
  l.is_loaded = find("ncclGetVersion", l.version) && find("ncclGetUniqueId", l.unique_id) &&
                find("ncclCommInitRank", l.init) && find("ncclCommDestroy", l.destroy) &&
                find("ncclCommAbort", l.abort) && find("ncclCommGetAsyncError", l.async_error) &&
                find("ncclGetErrorString", l.error) && find("ncclGetLastError", l.last_error) &&
                find("ncclAllReduce", l.all_reduce) && find("ncclAllGather", l.all_gather) &&
                find("ncclBroadcast", l.broadcast);
  int version = 0;
  if (l.is_loaded && l.version(&version) == kSuccess)
    log_info("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  return l;
}

const Library& library() {
  static const Library loaded = load_library();
  if (!loaded.is_loaded)
    throw Error(
        "several GPUs need NCCL, and libnccl.so.2 was not found: install libnccl2, or nvidia-nccl-cu12 from PyPI and "
        "put "
        "its folder nvidia/nccl/lib into LD_LIBRARY_PATH");
  return loaded;
}

void check_nccl(Status status, const char* call) {
  if (status == kSuccess || status == kInProgress) return;
  throw DeviceLost("NCCL: {} failed: {} ({})", call, library().error(status), library().last_error(nullptr));
}

int type_of(const Tensor& t) { return t.dtype == DType::kF32 ? kFloat : t.dtype == DType::kF16 ? kHalf : kBfloat; }

}  // namespace

Nccl::Nccl(Communicator& ranks) {
  const Library& l = library();
  UniqueId id{};
  if (ranks.rank() == 0) check_nccl(l.unique_id(&id), "ncclGetUniqueId");
  std::vector<UniqueId> all(static_cast<size_t>(ranks.size()));
  ranks.exchange(all.data(), &id, sizeof(id));
  check_nccl(l.init(&comm_, ranks.size(), all[0], ranks.rank()), "ncclCommInitRank");
}

Nccl::~Nccl() {
  abort();
  if (aborted_.valid() && aborted_.wait_for(kMaxAbortTime) != std::future_status::ready)
    log_warn("NCCL has not ended the communication of this rank within {} s", kMaxAbortTime.count());
}

// Aborts, because destroying a communicator waits for all ranks. ncclCommAbort has no time limit either. So a detached
// thread calls it, and a rank that hangs does not stop this one.
void Nccl::abort() {
  void* comm = std::exchange(comm_, nullptr);
  if (comm == nullptr) return;
  std::packaged_task<void()> task([comm] { library().abort(comm); });
  aborted_ = task.get_future();
  std::thread(std::move(task)).detach();
}

void Nccl::all_reduce(const Tensor& x, cudaStream_t stream) {
  CHECK(x.contiguous());
  check_nccl(
      library().all_reduce(x.data, x.data, static_cast<size_t>(x.rows * x.cols), type_of(x), kSum, comm_, stream),
      "ncclAllReduce");
}

void Nccl::all_gather(const Tensor& y, const Tensor& x, cudaStream_t stream) {
  CHECK(x.contiguous() && y.contiguous());
  check_nccl(library().all_gather(x.data, y.data, static_cast<size_t>(x.rows * x.cols), type_of(x), comm_, stream),
             "ncclAllGather");
}

void Nccl::broadcast(void* data, size_t bytes, cudaStream_t stream) {
  check_nccl(library().broadcast(data, data, bytes, kUint8, 0, comm_, stream), "ncclBroadcast");
}

void Nccl::check_peers() {
  Status status = kSuccess;
  check_nccl(library().async_error(comm_, &status), "ncclCommGetAsyncError");
  check_nccl(status, "a rank");
}

}  // namespace ingot::cuda
