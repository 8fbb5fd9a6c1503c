// Tools for a model whose chat template does not support them. The system message describes the tools and how to call
// them. An assistant's calls become text of its message, in the syntax of a call format. Results become a user's turn
// between <tool_response> and </tool_response>. Called by ChatTemplate, with messages that it has checked.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include "text/calls/call_format.h"

namespace ingot {

// Adds `tools` to the system message at the front, or adds such a message.
void tools_to_system(nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools);

// Turns the calls of every assistant and the results of every tool into text. Consecutive results become one turn. With
// `keeps_results`, results stay messages of the role "tool".
void tool_calls_to_text(nlohmann::ordered_json& messages, const CallFormat& format, bool keeps_results);

}  // namespace ingot
