// The text of --help and --help-all. --help has the common options of a command and fits 25 lines of 80 columns.
// --help-all has every option, in the form that scripts/docs/program_help.py reads. Both fit the terminal's columns.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace ingot {

// Call first: subcommands that are added later inherit both flags and the formatter.
void set_help(CLI::App& app);

// The common options of a command, for this many columns. usage: the line that CLI11 makes.
std::string short_help(const CLI::App& command, const std::string& name, const std::string& usage, int columns);
// Help of CLI11, for this many columns; 0: as it is.
std::string wrapped_help(const std::string& text, int columns);

}  // namespace ingot
