// The metadata of a checkpoint as JSON, with the file's types. For `ingot inspect --json`.
#pragma once

#include "base/json.h"
#include "model/files/checkpoint.h"

namespace ingot {

// For GGUF, the keys of the file. An array with more than 64 elements becomes {"type": "str", "length": 49152, "first":
// [...]}. For a directory, config.json.
nlohmann::ordered_json metadata_json(const Checkpoint& checkpoint);

}  // namespace ingot
