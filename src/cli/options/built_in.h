// The models that are built into the program: whole GGUF files (cmake/built_in_models.cmake). Their bytes are
// page-aligned and read-only, and live as long as the program.
#pragma once
#include <memory>
#include <string>

#include "io/gguf/gguf.h"
#include "model/files/checkpoint.h"

namespace ingot {

inline const std::string kDemoModel = "demo", kVisionDemo = "demo-vision";

// The name of the built-in model that a user's name means: the demo model if no model is named, or a name as above, if
// no file has it. Otherwise empty.
std::string built_in_name(const std::string& given);

// The file of built_in_name(). Throws UsageError if the program was built without such models.
Gguf built_in_file(const std::string& name);
// The vision tower of a model with that file; nothing for other checkpoints.
std::shared_ptr<const Gguf> tower_of_built_in(const Checkpoint& checkpoint);

}  // namespace ingot
