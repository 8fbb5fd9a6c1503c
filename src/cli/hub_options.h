// Models by name: the flags of the Hugging Face Hub, and the one function that makes a path of what the user named as a
// model.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "io/hub/hub.h"

namespace ingot {

// As given; empty or 0: what the environment says. Each has its variable (io/hub/hub.h).
struct HubFlags {
  std::string revision, file, token, endpoint, cache;
  int timeout_s = 0;
  bool offline = false;
};

void add_hub_options(CLI::App& app, HubFlags& flags);        // all of them
void add_hub_cache_option(CLI::App& app, HubFlags& flags);   // --hf-cache alone

HubOptions hub_options(const HubFlags& flags);

// The path of a model on this machine: `given` itself when there is such a file or directory, else that of the Hub's
// ORG/REPO[:QUANT], downloaded where it is not in the cache, with a progress bar on a terminal. Throws Error;
// CLI::RuntimeError with the exit code of an interruption.
std::string resolve_model(const std::string& given, const HubFlags& flags);

// A name that must be the Hub's. Throws UsageError.
HubName require_hub_name(const std::string& given);

// f(events), with a progress bar on a terminal, and Ctrl-C as an interruption.
HubModel with_hub_events(const HubName& name, const std::function<HubModel(const HubEvents&)>& f);

// The arguments with llama.cpp's spellings (-hf ORG/REPO, -hff, -hft) as our own.
std::vector<std::string> hub_spellings(const CLI::App& app, int argc, char** argv);

}  // namespace ingot
