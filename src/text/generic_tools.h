// Tools for a model whose chat template does not support them. The system message describes the tools and how to call
// them. An assistant's calls become <tool_call>{"name": ..., "arguments": ...}</tool_call> in its text. Results become
// a user's turn between <tool_response> and </tool_response>. Called by ChatTemplate, with messages that it has
// checked.
#pragma once
#include <nlohmann/json_fwd.hpp>

namespace ingot {

// Adds `tools` to the system message at the front, or adds such a message.
void tools_to_system(nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools);

// Turns the calls of every assistant and the results of every tool into text. Consecutive results become one turn.
void tool_calls_to_text(nlohmann::ordered_json& messages);

}  // namespace ingot
