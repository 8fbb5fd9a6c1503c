#include "backend/cuda/core.h"

#include "backend/cuda/entry.h"
#include "backend/cuda/experts/experts.h"
#include "backend/cuda/kernels.h"
#include "backend/device_name.h"
#include "base/error.h"

namespace ingot::cuda {

std::string library::why_none() {
  int n_devices = 0, driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0)
    return "no CUDA device: this machine has no NVIDIA driver";
  const cudaError_t status = cudaGetDeviceCount(&n_devices);
  if (status == cudaSuccess && n_devices > 0) return "";
  cudaGetLastError();
  return fmt::format("no CUDA device: {}",
                     status == cudaSuccess ? "the driver finds none" : cudaGetErrorString(status));
}

namespace {

// The index of the GPU that the options name, after all options have been checked.
int checked_index(const BackendOptions& options) {
  if (!options.activations.empty() && options.activations != "f16" && options.activations != "f32")
    throw UsageError("unknown type of activations '{}': use f16 or f32", printable(options.activations));
  if (options.deterministic && options.activations == "f32")
    throw UsageError("deterministic steps need activations of f16 on cuda");
  const int index = cuda_index(options.device);
  if (const std::string why = library::why_none(); !why.empty()) throw UsageError("{}; use the device cpu", why);
  int n_devices = 0;
  check(cudaGetDeviceCount(&n_devices), "cudaGetDeviceCount");
  check_cuda_index(index, n_devices);
  return index;
}

}  // namespace

Core::Core(const BackendOptions& options) : device(checked_index(options)), deterministic(options.deterministic) {
  if (options.activations == "f32") act = DType::kF32;
  if (!options.activations.empty()) device.forbid_float8();
  if (10 * device.limits().major < kChips[0].from)
    throw UsageError("{} has compute capability {}.{}: 8.0 (Ampere) or newer is needed; use the device cpu",
                     printable(device.name()), device.limits().major, device.limits().minor);
  if (!has_code())
    throw UsageError(
        "this ingot was built without code for {} (compute capability {}.{}): build it with "
        "-DCMAKE_CUDA_ARCHITECTURES={}{}, or use the device cpu",
        printable(device.name()), device.limits().major, device.limits().minor, device.limits().major,
        device.limits().minor);
  memory.recount(0, device.workspace_bytes());
}

Tensor Core::in_act_dtype(const Tensor& x) {
  if (x.dtype == act) return x;
  const size_t bytes = static_cast<size_t>(x.rows * x.cols) * dtype_bytes(act);
  const Tensor to{memory.scratch(Scratch::kActCopy, bytes), act, x.rows, x.cols, x.cols};
  convert(to, x, device);
  check_launch("convert");
  return to;
}

Tensor Core::aligned(const Tensor& x) {
  if (x.dtype == act && on_16_bytes(x)) return x;
  const int64_t stride = arranged_cols(x.cols);
  const size_t bytes = static_cast<size_t>(x.rows * stride) * dtype_bytes(act);
  const Tensor to{memory.scratch(Scratch::kActCopy, bytes), act, x.rows, x.cols, stride};
  convert(to, x, device);
  check_launch("convert");
  return to;
}

}  // namespace ingot::cuda
