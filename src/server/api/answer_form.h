// How an answer is told apart into reasoning, content and tool calls, whichever API then writes it in its own form.
#pragma once
#include <nlohmann/json.hpp>

#include "server/api/fields.h"
#include "server/generation.h"
#include "text/calls/answer_parser.h"

namespace ingot {

enum class ToolChoice : uint8_t { kNone, kAuto, kRequired };

// A tool that the answer may call.
struct CallableTool {
  std::string name;
  JsonValue parameters;  // the schema of its arguments; null: it has none
  std::string where;     // that schema is in the request
  bool strict = false;
};

struct AnswerForm {
  const CallFormat* format = find_call_format("plain");
  JsonValue tools;                    // that the model is shown, in OpenAI's shape; null: no calls are looked for
  std::vector<CallableTool> callable;
  bool limits_tools = false;          // fewer are callable than shown
  ToolChoice choice = ToolChoice::kAuto;
  bool parallel_calls = true;         // false: the first call alone is kept
  bool in_reasoning = false;          // the prompt has begun it
  bool closed_reasoning = false;      // the prompt has begun and ended it
  bool splits_reasoning = true;       // false: it stays in the content, with its markers
  uint64_t id_seed = 0;               // of calls' ids: another one for each answer
  std::vector<std::string> warnings;  // about the request
};

// The form's format, whether the prompt has begun the reasoning, and a seed for ids; and the spec keeps the markers.
void prepare_answer(const ServedModel& model, GenerationSpec& spec, AnswerForm& form);

// One answer's text, as it comes. Its events are reasoning, content and calls.
class AnswerReader {
 public:
  explicit AnswerReader(const AnswerForm& form, int choice = 0);

  AnswerEvents read(std::string_view text);
  AnswerEvents finish();  // once

  bool has_calls() const { return parser_.n_calls() > 0; }
  // What did not parse, and what was left out: for people. The first choice's begin with the request's.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  AnswerEvents shown(AnswerEvents events);
  bool shows(AnswerEvent& event);

  const bool parallel_calls_, splits_reasoning_;
  AnswerParser parser_;
  std::string raw_;  // of which no event has come yet, where reasoning stays in the content
  bool has_begun_calls_ = false;
  std::vector<std::string> warnings_;
};

}  // namespace ingot
