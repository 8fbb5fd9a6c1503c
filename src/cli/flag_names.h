// Messages of the library name its fields ("max_tokens is 0"), those of the parser the longest name of a flag. On the
// command line, the user typed one of the flag's names.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace ingot {

// The message with the field or flag at its beginning replaced by the command's flag, in the spelling of the arguments.
std::string with_flag_name(const CLI::App& app, const std::vector<std::string>& args, std::string message);

}  // namespace ingot
