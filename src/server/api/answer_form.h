// How an answer is told apart into reasoning, content and tool calls, whichever API then writes it in its own form.
#pragma once
#include <nlohmann/json.hpp>

#include "server/api/fields.h"
#include "server/generation.h"
#include "text/calls/answer_parser.h"

namespace ingot {

struct AnswerForm {
  const CallFormat* format = find_call_format("plain");
  JsonValue tools;                    // that may be called, in OpenAI's shape; null: no calls are looked for
  bool parallel_calls = true;         // false: the first call alone is kept
  bool in_reasoning = false;          // the prompt has begun it
  bool splits_reasoning = true;       // false: it stays in the content, with its markers
  uint64_t id_seed = 0;               // of calls' ids: another one for each answer
  std::vector<std::string> warnings;  // about the request
};

// The tools of a request, one by one. A tool whose type is not `type` is none that a model's template knows: it is left
// out, with a warning. A type that is absent is `type`.
class ToolReader {
 public:
  ToolReader(const char* type, AnswerForm& form) : type_(type), form_(form) {}
  // Whether it is to be kept. Throws ApiError for what is no object, or has a type that is no string.
  bool keeps(const JsonValue& tool, const std::string& where);
  // Of the object that may have "strict".
  void check_strict(const JsonValue& function, const std::string& where);

 private:
  const std::string_view type_;
  AnswerForm& form_;
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
