// Core: what the parts of a CudaBackend share: the device, its memory, and the step.
#pragma once
#include <memory>

#include "backend/backend.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/current_step.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/step_clock.h"

namespace ingot::cuda {

struct Core {
  explicit Core(const BackendOptions& options);  // throws UsageError for options and GPUs that ingot does not support

  // The two functions return x itself if possible, else a copy in scratch.
  Tensor in_act_dtype(const Tensor& x);  // x in the type of activations
  Tensor aligned(const Tensor& x);       // also aligned to 16 bytes. A copy has room to be arranged in place.

  Device device;             // the first member, because all others belong to it
  DType act = DType::kF16;   // of activations between products
  const bool deterministic;  // batch-invariant
  DeviceMemory memory{device};
  CurrentStep step;
  std::unique_ptr<StepClock> clock;  // null: steps are not traced
};

inline bool on_16_bytes(const Tensor& x) { return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride % 8 == 0; }

}  // namespace ingot::cuda
