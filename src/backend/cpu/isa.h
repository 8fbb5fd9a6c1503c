// The kernel tables of this build, and which of them this machine can run.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "backend/cpu/kernels.h"
#include "backend/cpu/recurrence_kernels.h"

namespace ingot::cpu {

// The sets that run here, best first; never empty.
std::span<const Kernels* const> available_kernels();

// The set of that name, or the best one when name is empty. Throws UsageError, naming those there are.
const Kernels& choose_kernels(std::string_view name);

const RecurrenceKernels& recurrence_of(const Kernels& kernels);  // of the same set

}  // namespace ingot::cpu
