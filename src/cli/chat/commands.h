// The commands of `ingot chat` that begin with a slash.
#pragma once
#include <string>

#include "cli/chat/session.h"

namespace ingot {

// Runs "/NAME ARGUMENT". Returns false if the command ends the program.
bool run_chat_command(ChatSession& session, LineReader& reader, const std::string& line);

}  // namespace ingot
