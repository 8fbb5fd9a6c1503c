// Reads the tools of a request, and which of them the answer may or must call: tools, tool_choice, parallel_tool_calls,
// disable_parallel_tool_use. Converts the forms of the three APIs to OpenAI's chat form.
#pragma once
#include "server/requests/fields.h"
#include "text/answers/answer_form.h"

namespace ingot {

enum class ToolStyle : uint8_t {
  kChat,       // {"type": "function", "function": {"name", "description", "parameters", "strict"}}
  kResponses,  // the members of "function" are next to "type"
  kMessages,   // {"name", "description", "input_schema", "strict"}: Anthropic's
};

// Fills the form's tools, choice and warnings. A tool whose type templates do not support is left out with a warning. A
// request with only such tools is refused. Throws ApiError that names the field.
void read_tools(const Fields& fields, ToolStyle style, AnswerForm& form);

}  // namespace ingot
