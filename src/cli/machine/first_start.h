// `ingot` alone at a terminal: a short menu, whose answer is the arguments of a command.
#pragma once
#include <string>
#include <vector>

namespace ingot {

// Asks what to do. Empty: the user leaves.
std::vector<std::string> ask_first_command();

}  // namespace ingot
