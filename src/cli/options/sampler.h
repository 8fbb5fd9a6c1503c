// The flags of samplers known from llama.cpp: DRY, XTC, top-n-sigma, dynamic temperature, Mirostat 2, and the order of
// all stages. For `run` and `chat`.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "backend/sampling.h"

namespace ingot {

// `breakers` receives the texts of --dry-sequence-breaker, which are tokenized when the model is loaded.
void add_stage_options(CLI::App& app, SamplingParams& params, std::vector<std::string>& breakers);

}  // namespace ingot
