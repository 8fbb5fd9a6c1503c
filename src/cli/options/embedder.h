// The common flags of the commands with an Embedder (embed, rerank), and loading of the model.
#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/options/hub.h"
#include "cli/options/parallel.h"
#include "model/vectors/embedder.h"

namespace ingot {

struct EmbedderFlags {
  std::string model, device = "cpu", log_level = "warn";
  HubFlags hub;
  ParallelFlags parallel;
  int n_threads = 0, n_ctx = 0, batch = 2048;
  bool truncate = false, check_tensors = false;
};

// `model` and `item` are their names in the help: "an embedding model", "text".
void add_embedder_flags(CLI::App& command, EmbedderFlags& flags, const std::string& model, const std::string& item);

// Loads the model, with a progress bar on a terminal. `options`: the options that no flag sets.
std::unique_ptr<Embedder> open_embedder(const EmbedderFlags& flags, EmbedOptions options);

}  // namespace ingot
