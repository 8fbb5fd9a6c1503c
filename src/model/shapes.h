// Known models by shape, with random weights: to measure speed where no file is at hand (`--shape llama-3.2-1b --type
// Q4_K`).
#pragma once
#include <memory>
#include <string>

#include "model/weights.h"

namespace ingot {

// Throws UsageError that lists the known names.
Config config_of_shape(const std::string& name);
std::string shape_names();  // "smollm-135m, qwen2.5-0.5b, ..."

// Weights of that config, matrices in that format: standard deviation 1/sqrt(n_in), norms 1, biases small; the same for
// the same seed. Rows whose length the format's block does not divide fall back to Q8_0, or to F16.
std::unique_ptr<WeightSource> dummy_source(const Config& config, Format format, uint64_t seed);

}  // namespace ingot
