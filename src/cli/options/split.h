// The flags that assign the parts of a model to devices, including llama.cpp's spellings.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "model/devices/ranks.h"

namespace ingot {

struct SplitFlags {
  std::string gpu_layers = "auto", cpu_experts = "auto";  // or "all", or a number
  std::string override_tensor;
  int pp = 1;
  std::vector<int> layers_split;
};

void add_split_options(CLI::App& app, SplitFlags& flags);
// `device` is the value of --device; changed to cpu if no layer is assigned to a GPU. n_ranks: the value of --tp.
// Throws UsageError.
SplitOptions read_split_flags(const SplitFlags& flags, int n_ranks, std::string& device);

}  // namespace ingot
