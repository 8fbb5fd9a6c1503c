// Which kernels a 64-bit Arm machine can run. The same sets as in cmake/cpu_kernels.cmake.
#include "backend/cpu/isa_arm.h"
#include "backend/cpu/isa.h"

namespace ingot::cpu {

namespace portable { extern const Kernels kKernels; }
namespace neon_dot { extern const Kernels kKernels; }
namespace neon_i8mm { extern const Kernels kKernels; }

std::vector<const Kernels*> find_kernels() {
  const ArmFeatures features = arm_features();
  std::vector<const Kernels*> found;
  if (features.dot && features.i8mm && features.bf16) found.push_back(&neon_i8mm::kKernels);
  if (features.dot) found.push_back(&neon_dot::kKernels);
  found.push_back(&portable::kKernels);
  return found;
}

std::vector<PeakProduct> peak_products() {
  const Kernels& best = *available_kernels().front();
  std::vector<PeakProduct> products;
  if (best.bf16_dot) products.push_back({"bf16 NEON", best.peak_bf16});
  products.push_back({"int8 NEON", best.peak_int8});
  products.push_back({"f32 NEON", best.peak_f32});
  return products;
}

}  // namespace ingot::cpu
