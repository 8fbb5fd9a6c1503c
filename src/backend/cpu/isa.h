// The kernel tables of this build, and the ones that this machine can run.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "backend/cpu/kernels.h"
#include "backend/cpu/recurrence_kernels.h"

namespace ingot::cpu {

// The instruction sets that this machine can run, best first; never empty.
std::span<const Kernels* const> available_kernels();

// The instruction set with this name, or the best one if `name` is empty. Throws UsageError, which lists the available
// names.
const Kernels& choose_kernels(std::string_view name);

const RecurrenceKernels& recurrence_of(const Kernels& kernels);  // the table of the same instruction set

}  // namespace ingot::cpu
