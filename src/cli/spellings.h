// Translates the spellings of other programs (llama.cpp's flags, `help`, `version`, `list`) to ingot's arguments before
// parsing.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace ingot {

// Returns the arguments for `app` to parse. Flags that would change nothing are removed; one note on standard error
// names them. Throws UsageError for an unknown command.
std::vector<std::string> known_arguments(const CLI::App& app, int argc, char** argv);

// An error message that names the first unknown argument and the most similar flag.
std::string unknown_argument(const CLI::App& app);

}  // namespace ingot
