// Messages of the library name its fields ("max_tokens is 0"). On the command line, the user typed a flag.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace ingot {

// The message with the field at its beginning replaced by the flag of the command, in the spelling of the arguments.
std::string with_flag_name(const CLI::App& app, const std::vector<std::string>& args, std::string message);

}  // namespace ingot
