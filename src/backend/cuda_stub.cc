// Replaces backend/cuda/ in builds without nvcc.
#include "backend/cuda/create_cuda.h"
#include "backend/device_name.h"
#include "base/error.h"

namespace ingot {

std::unique_ptr<Backend> create_cuda_backend(const BackendOptions& options) {
  cuda_index(options.device);
  throw UsageError("this build has no CUDA: use the device cpu, or install nvcc and build again (make cuda)");
}
std::string why_no_cuda() { return "this build has no CUDA"; }

namespace cuda {

void fail_allocation(int) {}
int allocations_left() { return -1; }
void pretend_card(int, int, size_t) {}

}  // namespace cuda
}  // namespace ingot
