// The flags that say which device runs which part of a model, and llama.cpp's spellings of them.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "model/ranks.h"

namespace ingot {

struct SplitFlags {
  std::string gpu_layers = "auto", cpu_experts = "auto";  // or "all", or a number
  std::string override_tensor;
  int pp = 1;
  std::vector<int> layers_split;
};

void add_split_options(CLI::App& app, SplitFlags& flags);
// `device` is the value of --device; it becomes cpu if no layer is to be on a GPU. n_ranks: of --tp, which takes a list
// of devices too. Throws UsageError.
SplitOptions read_split_flags(const SplitFlags& flags, int n_ranks, std::string& device);

}  // namespace ingot
