#include "backend/nvidia_driver.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/shared_library.h"

namespace ingot {
namespace {

#ifdef _WIN32
constexpr const char* kDriverLibrary = "nvcuda.dll";
#else
constexpr const char* kDriverLibrary = "libcuda.so.1";
#endif
constexpr int kMaxGpus = 1024;
constexpr int kMajorAttribute = 75, kMinorAttribute = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, ..._MINOR

// The functions of the CUDA driver API; all return 0 on success.
struct DriverCalls {
  int (*init)(unsigned) = nullptr;
  int (*version)(int*) = nullptr;
  int (*count)(int*) = nullptr;
  int (*get)(int*, int) = nullptr;
  int (*name)(char*, int, int) = nullptr;
  int (*memory)(size_t*, int) = nullptr;
  int (*attribute)(int*, int, int) = nullptr;
};

template <class F>
bool find_call(void* library, const char* name, F& call) {
  return (call = reinterpret_cast<F>(function_of(library, name))) != nullptr;
}

bool find_calls(void* library, DriverCalls& c) {
  return find_call(library, "cuInit", c.init) && find_call(library, "cuDriverGetVersion", c.version) &&
         find_call(library, "cuDeviceGetCount", c.count) && find_call(library, "cuDeviceGet", c.get) &&
         find_call(library, "cuDeviceGetName", c.name) && find_call(library, "cuDeviceTotalMem_v2", c.memory) &&
         find_call(library, "cuDeviceGetAttribute", c.attribute);
}

NvidiaGpu read_gpu(const DriverCalls& calls, int index) {
  NvidiaGpu gpu;
  int device = 0;
  char name[256] = "";
  if (calls.get(&device, index) != 0) return gpu;
  if (calls.name(name, sizeof name - 1, device) == 0) gpu.name = printable(name, 100);
  calls.memory(&gpu.memory_bytes, device);
  calls.attribute(&gpu.major, kMajorAttribute, device);
  calls.attribute(&gpu.minor, kMinorAttribute, device);
  return gpu;
}

}  // namespace

NvidiaDriver read_nvidia_driver(const char* name) {
  NvidiaDriver found;
  void* library = open_library(name != nullptr ? name : kDriverLibrary);
  DriverCalls calls;
  if (library == nullptr || !find_calls(library, calls)) {
    found.why_none = "this machine has no NVIDIA driver";
    return found;
  }
  int version = 0, n = 0;
  if (calls.version(&version) == 0) found.cuda_major = version / 1000, found.cuda_minor = version % 1000 / 10;
  if (const int status = calls.init(0); status != 0) {
    found.why_none = fmt::format("the NVIDIA driver cannot start (CUDA error {}): `nvidia-smi` says more", status);
  } else if (calls.count(&n) != 0 || n <= 0) {
    found.why_none = "the NVIDIA driver finds no GPU";
  } else {
    for (int i = 0; i < std::min(n, kMaxGpus); ++i) found.gpus.push_back(read_gpu(calls, i));
  }
  return found;
}

}  // namespace ingot
