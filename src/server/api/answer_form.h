// Splits an answer into reasoning, content and tool calls. Each API writes these parts in its own form.
#pragma once

#include "base/json.h"
#include "server/api/fields.h"
#include "server/generation.h"
#include "text/calls/answer_parser.h"

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
  const CallFormat* format = find_call_format("plain");
  JsonValue tools;                    // the tools that the model sees, in OpenAI's shape; null: calls are not parsed
  std::vector<CallableTool> callable;
  bool limits_tools = false;          // the answer must not call some of `tools`
  ToolChoice choice = ToolChoice::kAuto;
  bool parallel_calls = true;         // false: only the first call is kept
  bool in_reasoning = false;          // the prompt ends inside the reasoning
  bool closed_reasoning = false;      // the prompt ends just after the reasoning
  bool splits_reasoning = true;       // false: reasoning stays in the content, with its markers
  uint64_t id_seed = 0;               // seed of the calls' ids, new for each answer
  std::vector<std::string> warnings;  // about the request
};

// Sets the form's format, its reasoning flags and its seed. Makes the spec keep the format's markers in the text.
void prepare_answer(const ServedModel& model, GenerationSpec& spec, AnswerForm& form);

// Reads the text of one answer as it is generated, and returns events for reasoning, content and calls.
class AnswerReader {
 public:
  explicit AnswerReader(const AnswerForm& form, int choice = 0);

  AnswerEvents read(std::string_view text);
  AnswerEvents finish();  // call once, at the end

  bool has_calls() const { return parser_.n_calls() > 0; }
  // Warnings for people about text that did not parse or was left out. Choice 0 starts with the warnings of the
  // request.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  AnswerEvents shown(AnswerEvents events);
  bool shows(AnswerEvent& event);

  const bool parallel_calls_, splits_reasoning_;
  AnswerParser parser_;
  std::string raw_;  // if reasoning stays in the content: the text not covered by an event yet
  bool has_begun_calls_ = false;
  std::vector<std::string> warnings_;
};

}  // namespace ingot
