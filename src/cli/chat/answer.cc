#include "cli/chat/answer.h"

#include <fmt/format.h>

#include "base/json.h"

namespace ingot {

void ChatAnswer::add(const AnswerEvents& events) {
  using enum AnswerEvent::Kind;
  for (const AnswerEvent& event : events) {
    switch (event.kind) {
      case kReasoning: reasoning_ += event.text, print(event.text, true); break;
      case kContent: content_ += event.text, print(event.text, false); break;
      case kCallBegin: calls_.push_back({.id = event.id, .name = event.text, .arguments = {}}); break;
      case kCallArguments: calls_.back().arguments += event.text; break;
      case kCallEnd:
      case kWarning:
      case kMarkup: break;
    }
  }
  std::fflush(stdout);
}

void ChatAnswer::finish() {
  if (in_reasoning_) print("", false);
  if (prints_) fmt::print("{}{}", wrap_.finish(), at_line_start_ ? "" : "\n");
  std::fflush(stdout);
}

void ChatAnswer::print(std::string_view text, bool is_reasoning) {
  if (!prints_) return;
  if (is_reasoning != in_reasoning_) fmt::print("{}", wrap_.add(is_reasoning ? "<think>\n" : "\n</think>\n"));
  if (is_reasoning != in_reasoning_) at_line_start_ = true;
  in_reasoning_ = is_reasoning;
  fmt::print("{}", wrap_.add(text));
  if (!text.empty()) at_line_start_ = text.ends_with('\n');
}

JsonValue ChatAnswer::message() const {
  JsonValue message = {{"role", "assistant"}, {"content", content_}};
  if (!reasoning_.empty()) message["reasoning_content"] = reasoning_;
  for (const ToolCall& call : calls_)
    message["tool_calls"].push_back(
        {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  return message;
}

}  // namespace ingot
