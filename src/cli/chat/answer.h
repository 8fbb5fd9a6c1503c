// One answer of `run` or `chat`: prints the answer while it is generated, with reasoning between <think> and </think>,
// on a terminal in lines of whole words, and collects the message and its calls.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cli/chat/tools.h"
#include "cli/terminal/console.h"
#include "cli/terminal/wrap.h"
#include "text/calls/answer_parser.h"
#include "text/json_value.h"

namespace ingot {

class ChatAnswer {
 public:
  explicit ChatAnswer(bool prints = true) : prints_(prints) {}

  void add(const AnswerEvents& events);
  void finish();  // call once, at the end of the answer: ends the printed line

  // In OpenAI's form: content, reasoning_content and tool_calls.
  JsonValue message() const;
  const std::string& content() const { return content_; }
  const std::string& reasoning() const { return reasoning_; }
  const std::vector<ToolCall>& calls() const { return calls_; }

 private:
  void print(std::string_view text, bool is_reasoning);

  const bool prints_;
  WordWrap wrap_{[] { return terminal_columns(Stream::kOutput); }};
  std::string content_, reasoning_;
  std::vector<ToolCall> calls_;
  bool in_reasoning_ = false;  // of the printed text
  bool at_line_start_ = true;
};

}  // namespace ingot
