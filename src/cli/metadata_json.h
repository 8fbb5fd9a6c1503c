// The metadata of a checkpoint as JSON with the types that the file has. `ingot inspect --json` prints this.
#pragma once
#include <nlohmann/json.hpp>

#include "cli/options.h"

namespace ingot {

// GGUF: the keys of the file; of an array with more than 64 elements {"type": "str", "length": 49152, "first": [...]}.
// A directory: its config.json.
nlohmann::ordered_json metadata_json(const Checkpoint& checkpoint, const ModelOptions& options);

}  // namespace ingot
