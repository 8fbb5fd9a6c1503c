// Which instruction set of this machine multiplies a format's weights fastest, by measurement.
#pragma once
#include <cstdint>
#include <span>

#include "quant/format.h"

namespace ingot::cpu {

struct Kernels;

// Products of few, some and many rows of activations are measured, each with one number of rows.
constexpr int kRowClasses = 3, kMeasuredRows[kRowClasses] = {1, 8, 256};
constexpr int row_class(int64_t rows) { return rows <= 1 ? 0 : rows <= 32 ? 1 : 2; }

struct KernelChoice {
  const Kernels* for_rows[kRowClasses];
};

// The sets that are measured: all but the portable one, if there is another.
std::span<const Kernels* const> measured_kernels();

// For formats whose panels are alike in all sets (packs_alike). Their products are the same in each set, bit by bit.
// Measured when a format is first asked for, in some milliseconds, and kept.
KernelChoice fastest_kernels(Format format);

}  // namespace ingot::cpu
