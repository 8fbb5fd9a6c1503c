// Flags that replace values of the model's file while ingot runs it; the file does not change.
#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "model/files/checkpoint.h"

namespace ingot {

struct OverrideFlags {
  std::vector<std::string> keys;  // KEY=TYPE:VALUE
  RopeOverrides ropes;
};

void add_override_options(CLI::App& app, OverrideFlags& flags);
// The model with the values of the flags. Both throw UsageError for a flag that does not suit the model.
std::shared_ptr<const Checkpoint> with_overrides(Gguf file, const OverrideFlags& flags);
std::shared_ptr<const Checkpoint> open_with_overrides(const std::string& path, const OverrideFlags& flags);

}  // namespace ingot
