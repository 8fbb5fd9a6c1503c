// AnswerForm: how one answer is split into reasoning, content and tool calls. The command line, the C API and the
// server fill the same form, so the same answer has the same parts everywhere.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "text/calls/call_format.h"
#include "text/json_value.h"

namespace ingot {

enum class ToolChoice : uint8_t { kNone, kAuto, kRequired };

// A tool that the answer may call.
struct CallableTool {
  std::string name;
  JsonValue parameters;  // the schema of the arguments; null: no schema
  std::string where;     // path of the schema in the request
  bool strict = false;
};

struct AnswerForm {
  const CallFormat* format = nullptr;  // null: the whole answer is content
  JsonValue tools;                    // the tools that the model sees, in OpenAI's shape; null: calls are not parsed
  std::vector<CallableTool> callable;
  bool limits_tools = false;          // the answer must not call some of `tools`
  ToolChoice choice = ToolChoice::kAuto;
  bool parallel_calls = true;         // false: only the first call is kept
  bool in_reasoning = false;          // the prompt ends inside the reasoning
  bool closed_reasoning = false;      // the prompt ends just after the reasoning
  bool splits_reasoning = true;       // false: reasoning stays in the content, with its markers
  bool whole_calls = false;           // a call is passed on when it is complete; an incomplete call becomes content
  bool constrains_calls = false;      // a grammar makes the model write calls of the format
  std::vector<std::string> stops;     // strings that end the answer's content
  bool keep_stop = false;             // keep the stop string in the content
  uint64_t id_seed = 0;               // seed of the calls' ids, new for each answer
  std::vector<std::string> warnings;  // about the request
};

}  // namespace ingot
