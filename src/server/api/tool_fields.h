// The tools of a request, and which of them the answer may or must call, in the forms of the three APIs: tools,
// tool_choice, parallel_tool_calls, disable_parallel_tool_use. All become OpenAI's chat form.
#pragma once
#include "server/api/answer_form.h"
#include "server/api/fields.h"

namespace ingot {

enum class ToolStyle : uint8_t {
  kChat,       // {"type": "function", "function": {"name", "description", "parameters", "strict"}}
  kResponses,  // the members of "function" stand beside "type"
  kMessages,   // {"name", "description", "input_schema", "strict"}: Anthropic's
};

// Fills the form's tools, choice and warnings. A tool whose type no model's template knows is left out, with a warning;
// a request with such tools only is refused. Throws ApiError that names the field.
void read_tools(const Fields& fields, ToolStyle style, AnswerForm& form);

}  // namespace ingot
