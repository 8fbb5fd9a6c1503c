// Chips: what is fixed for a generation of NVIDIA GPUs, as data. The driver says how large a GPU is (DeviceLimits), and
// measurement says which kernels are fast (matmul_kernels.h).
#pragma once

namespace ingot::cuda {

struct Chip {
  int from;  // ten times the least compute capability; a GPU is of the last row that it reaches
  const char* name;
  bool has_clusters;          // thread block clusters
  bool has_dependent_launch;  // programmatic dependent launch
  bool multiplies_float8;     // the tensor cores multiply 8-bit floats
  bool runs_grid;             // grid/layers.h: all layers in one launch on the whole GPU
  const char* code_suffix;    // of the architecture that NVRTC compiles for; "a" permits the chip's own instructions
  int prompt_chunk;           // tokens of a prompt in a step; more hardly speed up prompts
};

inline constexpr Chip kChips[] = {
    // clusters, dependent launch, 8-bit floats, grid
    {80, "Ampere", false, false, false, false, "", 2048},
    {89, "Ada", false, false, true, false, "", 2048},
    {90, "Hopper", true, true, true, true, "a", 2048},
    {100, "Blackwell", true, true, true, false, "", 2048},
};

// The row of a compute capability; the first row for older GPUs, which ingot refuses.
constexpr const Chip& chip_of(int major, int minor) {
  const Chip* chip = &kChips[0];
  for (const Chip& row : kChips)
    if (10 * major + minor >= row.from) chip = &row;
  return *chip;
}

}  // namespace ingot::cuda
