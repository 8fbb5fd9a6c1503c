// Tools for a model whose chat template has no place for them, in words: what there is and how to call it in the system
// message, an assistant's calls as <tool_call>{"name": ..., "arguments": ...}</tool_call> in its text, and results as a
// user's turn between <tool_response> and </tool_response>. Called by ChatTemplate, with messages that it has checked.
#pragma once
#include <nlohmann/json_fwd.hpp>

namespace ingot {

// Adds `tools` to the system message at the front, or makes one.
void tools_to_system(nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools);

// The calls of every assistant and the results of every tool become text. Results that follow each other are one turn.
void tool_calls_to_text(nlohmann::ordered_json& messages);

}  // namespace ingot
