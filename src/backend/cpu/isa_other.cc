// For processors that have no kernels of their own.
#include "backend/cpu/isa.h"

namespace ingot::cpu {

namespace portable { extern const Kernels kKernels; }

std::vector<const Kernels*> find_kernels() { return {&portable::kKernels}; }

std::vector<PeakProduct> peak_products() {
  return {{"int8", portable::kKernels.peak_int8}, {"f32", portable::kKernels.peak_f32}};
}

}  // namespace ingot::cpu
