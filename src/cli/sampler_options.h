// The flags of the samplers that llama.cpp's users know: DRY, XTC, top-n-sigma, dynamic temperature, Mirostat 2, and
// the order of all stages. `run` and `chat` have them.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "backend/sampling.h"

namespace ingot {

// `breakers` gets the texts of --dry-sequence-breaker, which become tokens when the model is loaded.
void add_stage_options(CLI::App& app, SamplingParams& params, std::vector<std::string>& breakers);

}  // namespace ingot
