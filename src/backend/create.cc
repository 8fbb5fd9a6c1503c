// The only file that lists the devices of this build.
#include "backend/backend.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/create_cuda.h"
#include "backend/device_name.h"
#include "backend/ref/ref_backend.h"
#include "base/error.h"
#include "base/log.h"

namespace ingot {

std::string chosen_device(const std::string& device) {
  if (device != "auto") return device;
  const std::string why = why_no_cuda();
  if (!why.empty()) log_warn("{}: using the CPU", why);
  return why.empty() ? "cuda" : "cpu";
}

std::unique_ptr<Backend> create_backend(const BackendOptions& options) {
  if (options.device == "auto") {
    BackendOptions chosen = options;
    chosen.device = chosen_device(options.device);
    return create_backend(chosen);
  }
  if (options.device == "cpu") return create_cpu_backend(options);
  if (is_cuda(options.device)) return create_cuda_backend(options);
  if (options.device == "ref") return create_ref_backend();
  throw UsageError("unknown device '{}': use cpu, cuda, cuda:N, auto or ref", printable(options.device));
}

}  // namespace ingot
