// libcuda.so.1 as far as nvidia_driver.cc calls it, with the GPUs that fake_driver_set() names.
#include <cstddef>
#include <cstdio>

namespace {
int n_gpus = 0, cuda_version = 0, start_status = 0;
}

extern "C" {
void fake_driver_set(int gpus, int version, int status) {
  n_gpus = gpus, cuda_version = version, start_status = status;
}
int cuInit(unsigned) { return start_status; }
int cuDriverGetVersion(int* version) { return *version = cuda_version, 0; }
int cuDeviceGetCount(int* n) { return *n = n_gpus, 0; }
int cuDeviceGet(int* device, int index) { return *device = 100 + index, index < n_gpus ? 0 : 101; }
int cuDeviceGetName(char* name, int size, int device) {
  std::snprintf(name, static_cast<size_t>(size), "GPU\x1b[31m %d", device - 100);
  return 0;
}
int cuDeviceTotalMem_v2(size_t* bytes, int device) { return *bytes = size_t{1} << (device - 100 + 30), 0; }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  return *value = attribute == 75 ? 9 : attribute == 76 ? device - 100 : -1, 0;
}
}
