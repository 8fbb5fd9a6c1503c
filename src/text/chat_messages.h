// Checks and small changes of messages in OpenAI's format, for ChatTemplate.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "text/media_kind.h"

namespace ingot {

// These functions throw Error, which names the field (messages[2].content), for malformed input or input over a limit.
// reads: parts {"type": "image"} or {"type": "audio"} are allowed too, in messages of the roles user and tool.
struct ReadableParts {
  bool images = false, recordings = false;
};
void check_messages(const nlohmann::ordered_json& messages, ReadableParts reads = {});
void check_tools(const nlohmann::ordered_json& tools);
void check_template_variables(const nlohmann::ordered_json& variables);
// For messages of a request: a role must be one of OpenAI's, or appear in a comparison in the template's source. A
// message needs content, or as an assistant's message calls or reasoning.
void check_turns(const nlohmann::ordered_json& messages, std::string_view template_source);

// Joins the texts of content parts, one part per line.
std::string joined_parts(const nlohmann::ordered_json& parts);

// Images and recordings in content parts.
int count_media(const nlohmann::ordered_json& messages, MediaKind kind);
// Moves those of results of tools into a user message after the results.
void move_tool_media(nlohmann::ordered_json& messages, MediaKind kind);
// Replaces each by a text part that is its mark.
void media_to_text(nlohmann::ordered_json& message, MediaKind kind);

// Turns the arguments of each tool call of the message into an object if they are the JSON text of an object
// (arguments_to_object), or into text (arguments_to_text).
void arguments_to_object(nlohmann::ordered_json& message);
void arguments_to_text(nlohmann::ordered_json& message);

// JSON with the spaces of Python's json.dumps, the form that models saw in training.
std::string spaced_json(const nlohmann::ordered_json& json);

// Joins the system and developer messages at the front into one.
void merge_leading_systems(nlohmann::ordered_json& messages);
// Makes user messages of the system and developer messages after the first of another role, in place.
void late_systems_to_users(nlohmann::ordered_json& messages);
// Joins neighbouring user messages.
void merge_users(nlohmann::ordered_json& messages);
// Whether a system or developer message follows another message.
bool has_late_system(const nlohmann::ordered_json& messages);

// Gives ids to calls without an id, and to results without one the id of the earliest call that has no result yet. With
// `short_ids`, each id that does not have 9 letters and digits is replaced by one that has, the same for equal ids.
void fix_call_ids(nlohmann::ordered_json& messages, bool short_ids);

// Moves the system message at the front into the first user message, before its text. Adds a user message if there is
// none.
void merge_system(nlohmann::ordered_json& messages);

}  // namespace ingot
