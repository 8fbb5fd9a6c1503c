// Measures which instruction set of this machine multiplies a format's weights fastest.
#pragma once
#include <cstdint>
#include <span>

#include "quant/format.h"

namespace ingot::cpu {

struct Kernels;
enum class Packing : uint8_t;

// The classes of rows of activations, from one row to many. Each class is measured with one number of rows.
constexpr int kRowClasses = 4, kMeasuredRows[kRowClasses] = {1, 8, 32, 256};
constexpr int row_class(int64_t rows) { return rows <= 1 ? 0 : rows <= 12 ? 1 : rows < 64 ? 2 : 3; }

struct KernelChoice {
  const Kernels* for_rows[kRowClasses];
};

// The measured instruction sets: all but the portable one, unless it is the only one.
std::span<const Kernels* const> measured_kernels();

// For formats whose panels are the same in all instruction sets (packs_alike). Every set computes the same bits for
// them. The first call for a format measures for some milliseconds.
KernelChoice fastest_kernels(Format format, Packing packing);

}  // namespace ingot::cpu
