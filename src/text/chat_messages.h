// Checks and small changes of messages in OpenAI's shape, for ChatTemplate.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace ingot {

// Throw Error naming the field (messages[2].content) unless a template can be given this.
void check_messages(const nlohmann::ordered_json& messages);
void check_tools(const nlohmann::ordered_json& tools);
void check_template_variables(const nlohmann::ordered_json& variables);

// Content made of parts as one text, the parts on lines of their own.
std::string joined_parts(const nlohmann::ordered_json& parts);

// The arguments of each tool call of the message as an object (when they are the JSON text of one), or as text.
void arguments_to_object(nlohmann::ordered_json& message);
void arguments_to_text(nlohmann::ordered_json& message);

// As json.dumps of Python spaces it, which is how models have learnt it.
std::string spaced_json(const nlohmann::ordered_json& json);

// The system message at the front put before the text of the first user message (or made one).
void merge_system(nlohmann::ordered_json& messages);

}  // namespace ingot
