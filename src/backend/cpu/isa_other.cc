// For processors that have no kernels of their own.
#include "backend/cpu/isa.h"

namespace ingot::cpu {

namespace portable { extern const Kernels kKernels; }

std::vector<const Kernels*> find_kernels() { return {&portable::kKernels}; }

}  // namespace ingot::cpu
