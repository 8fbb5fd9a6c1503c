// Models by name: the flags of the Hugging Face Hub, and resolve_model(), the one function that turns the user's name
// of a model into a path.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "io/hub/hub.h"

namespace ingot {

// The values of the flags; empty or 0: the value of the environment variable (io/hub/hub.h lists them).
struct HubFlags {
  std::string revision, file, token, endpoint, cache;
  int timeout_s = 0;
  bool offline = false;
};

void add_hub_options(CLI::App& app, HubFlags& flags);        // all of the Hub's flags
void add_hub_cache_option(CLI::App& app, HubFlags& flags);   // only --hf-cache

HubOptions hub_options(const HubFlags& flags);

// The path of a model on this machine. Returns `given` if that file or directory exists. Else `given` is the Hub's
// ORG/REPO[:QUANT]: downloads the model if the cache does not have it, with a progress bar on a terminal. Throws Error,
// or CLI::RuntimeError with the exit code of an interruption.
std::string resolve_model(const std::string& given, const HubFlags& flags);

// Parses a name that must be the Hub's. Throws UsageError.
HubName require_hub_name(const std::string& given);

// Calls f(events), with a progress bar on a terminal. Ctrl-C counts as an interruption.
HubModel with_hub_events(const HubName& name, const std::function<HubModel(const HubEvents&)>& f);

}  // namespace ingot
