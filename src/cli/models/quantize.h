// Common code of `ingot quantize` and `ingot convert`: the flags, and writing a GGUF file with progress and a summary.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "cli/options/hub.h"

namespace ingot {

struct WriteOptions {
  std::string in, out, type;
  HubFlags hub;
  std::string imatrix, output_type, embedding_type, layer_inputs_type;
  std::string log_level = "warn";
  int n_threads = 0;
  bool allow_requantize = false, allow_decode = false, force = false, json = false;
};

void add_write_options(CLI::App& app, WriteOptions& options);
// options.type: a mix's name, or "auto" for the stored types of the weights. Throws Error and UsageError.
void write_model(const WriteOptions& options);

}  // namespace ingot
