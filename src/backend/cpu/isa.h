// The kernel tables of this build, and the ones that this machine can run.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cpu/kernels.h"

namespace ingot::cpu {

// The instruction sets that this machine can run, best first; never empty.
std::span<const Kernels* const> available_kernels();

// The instruction set with this name, or the best one if `name` is empty. Throws UsageError, which lists the available
// names.
const Kernels& choose_kernels(std::string_view name);

// Finds the same list, in the file for the machine's processor.
std::vector<const Kernels*> find_kernels();

}  // namespace ingot::cpu
