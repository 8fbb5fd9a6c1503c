#include "backend/cpu/isa.h"

#include "base/error.h"

namespace ingot::cpu {

std::span<const Kernels* const> available_kernels() {
  static const std::vector<const Kernels*> available = find_kernels();
  return available;
}

const Kernels& choose_kernels(std::string_view name) {
  if (name.empty()) return *available_kernels().front();
  std::string names;
  for (const Kernels* kernels : available_kernels()) {
    if (name == kernels->isa) return *kernels;
    names += (names.empty() ? "" : ", ") + std::string(kernels->isa);
  }
  throw UsageError("this machine has no instruction set '{}': use one of {}", printable(name), names);
}

}  // namespace ingot::cpu
