// Chips: what is fixed for a generation of NVIDIA GPUs, as data. The driver says how large a GPU is (DeviceLimits), and
// measurement says which kernels are fast (matmul_kernels.h).
#pragma once
#include <cstddef>

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
    {.from = 80,
     .name = "Ampere",
     .has_clusters = false,
     .has_dependent_launch = false,
     .multiplies_float8 = false,
     .runs_grid = false,
     .code_suffix = "",
     .prompt_chunk = 2048},
    {.from = 89,
     .name = "Ada",
     .has_clusters = false,
     .has_dependent_launch = false,
     .multiplies_float8 = true,
     .runs_grid = false,
     .code_suffix = "",
     .prompt_chunk = 2048},
    {.from = 90,
     .name = "Hopper",
     .has_clusters = true,
     .has_dependent_launch = true,
     .multiplies_float8 = true,
     .runs_grid = true,
     .code_suffix = "a",
     .prompt_chunk = 2048},
    {.from = 100,
     .name = "Blackwell",
     .has_clusters = true,
     .has_dependent_launch = true,
     .multiplies_float8 = true,
     .runs_grid = false,
     .code_suffix = "",
     .prompt_chunk = 2048},
};

// The row of a compute capability; the first row for older GPUs, which ingot refuses.
constexpr const Chip& chip_of(int major, int minor) {
  const Chip* chip = &kChips[0];
  for (const Chip& row : kChips)
    if (10 * major + minor >= row.from) chip = &row;
  return *chip;
}

}  // namespace ingot::cuda
