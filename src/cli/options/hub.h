// The flags of the Hugging Face Hub, and resolve_model(), which converts a model name given by the user to a path.
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

// The local path of a model. Returns `given` if that file or directory exists. Otherwise `given` is the Hub's
// ORG/REPO[:QUANT]: downloads the model if it is not in the cache, with a progress bar on a terminal. Throws Error or,
// when interrupted, CLI::RuntimeError with the exit code.
std::string resolve_model(const std::string& given, const HubFlags& flags);

// Parses a Hub name. Throws UsageError for other names.
HubName require_hub_name(const std::string& given);

// Calls f(events), with a progress bar on a terminal. Ctrl-C counts as an interruption.
HubModel with_hub_events(const HubName& name, const std::function<HubModel(const HubEvents&)>& f);

}  // namespace ingot
