// Known models by shape, with random weights: for measuring speed without a model file (`--shape llama-3.2-1b --type
// Q4_K`).
#pragma once
#include <memory>
#include <string>

#include "model/files/weights.h"

namespace ingot {

// Throws UsageError that lists the known names.
Config config_of_shape(const std::string& name);
std::string shape_names();  // "smollm-135m, qwen2.5-0.5b, ..."

// Random weights for `config`, with matrices in `format`: standard deviation 1/sqrt(n_in), norms 1, small biases. The
// same seed gives the same weights. If the format's blocks do not divide a row, the matrix is Q8_0, or F16 if Q8_0 does
// not fit.
std::unique_ptr<WeightSource> dummy_source(const Config& config, Format format, uint64_t seed);

}  // namespace ingot
