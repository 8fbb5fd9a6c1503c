// What users of other programs type: llama.cpp's flags, `help`, `version`, `list`. All of it becomes arguments that the
// commands know, before they are parsed.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace ingot {

// The arguments as `app` parses them. A flag that changes nothing here is left out, and one note on standard error
// names all of those. Throws UsageError for a command that is unknown.
std::vector<std::string> known_arguments(const CLI::App& app, int argc, char** argv);

// Names the first argument that the command does not know, and the most similar flag.
std::string unknown_argument(const CLI::App& app);

}  // namespace ingot
