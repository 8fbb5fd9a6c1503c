// An answer of `ingot chat --tools`: prints the answer while it is generated, with reasoning between <think> and
// </think>, and collects the message and its calls.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "cli/chat_tools.h"
#include "text/calls/answer_parser.h"

namespace ingot {

class ChatAnswer {
 public:
  // `tools` in OpenAI's form.
  ChatAnswer(const CallFormat& format, const nlohmann::ordered_json& tools, bool in_reasoning, uint64_t id_seed);

  void feed(std::string_view text);
  void finish();  // call once, at the end of the answer

  // In OpenAI's form: content, reasoning_content and tool_calls.
  nlohmann::ordered_json message() const;
  const std::vector<ToolCall>& calls() const { return calls_; }

 private:
  void show(const AnswerEvents& events);
  void print(std::string_view text, bool is_reasoning);

  AnswerParser parser_;
  std::string content_, reasoning_;
  std::vector<ToolCall> calls_;
  bool in_reasoning_ = false;  // of the printed text
  bool at_line_start_ = true;
};

}  // namespace ingot
