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

// A loop of products on registers, for measurements; returns the number of operations.
struct PeakProduct {
  const char* name;  // "bf16 tiles", "f32 AVX2"
  double (*run)(int64_t iterations);
};

// The kinds of products of this machine, the fastest first.
std::vector<PeakProduct> peak_products();

// Finds the list of available_kernels(), in the file for the machine's processor, which also has peak_products().
std::vector<const Kernels*> find_kernels();

}  // namespace ingot::cpu
