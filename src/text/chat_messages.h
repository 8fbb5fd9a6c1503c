// Checks and small changes of messages in OpenAI's format, for ChatTemplate.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ingot {

// These functions throw Error, which names the field (messages[2].content), for malformed input or input over a limit.
void check_messages(const nlohmann::ordered_json& messages);
void check_tools(const nlohmann::ordered_json& tools);
void check_template_variables(const nlohmann::ordered_json& variables);

// Joins the texts of content parts, one part per line.
std::string joined_parts(const nlohmann::ordered_json& parts);

// Turns the arguments of each tool call of the message into an object if they are the JSON text of an object
// (arguments_to_object), or into text (arguments_to_text).
void arguments_to_object(nlohmann::ordered_json& message);
void arguments_to_text(nlohmann::ordered_json& message);

// JSON with the spaces of Python's json.dumps, the form that models saw in training.
std::string spaced_json(const nlohmann::ordered_json& json);

// Moves the system message at the front into the first user message, before its text. Adds a user message if there is
// none.
void merge_system(nlohmann::ordered_json& messages);

}  // namespace ingot
