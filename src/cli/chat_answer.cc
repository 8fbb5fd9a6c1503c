#include "cli/chat_answer.h"

#include <fmt/format.h>

#include "base/error.h"
#include "text/json_value.h"

namespace ingot {

ChatAnswer::ChatAnswer(const CallFormat& format, const JsonValue& tools, bool in_reasoning, uint64_t id_seed)
    : parser_(format, {.tools = &tools, .in_reasoning = in_reasoning, .id_seed = id_seed}) {}

void ChatAnswer::feed(std::string_view text) {
  AnswerEvents events;
  parser_.feed(text, events);
  show(events);
}

void ChatAnswer::finish() {
  AnswerEvents events;
  parser_.finish(events);
  show(events);
  if (in_reasoning_) print("", false);
  if (!at_line_start_) fmt::print("\n");
  std::fflush(stdout);
}

void ChatAnswer::show(const AnswerEvents& events) {
  using enum AnswerEvent::Kind;
  for (const AnswerEvent& event : events) {
    switch (event.kind) {
      case kReasoning: reasoning_ += event.text, print(event.text, true); break;
      case kContent: content_ += event.text, print(event.text, false); break;
      case kCallBegin: calls_.push_back({.id = event.id, .name = event.text, .arguments = {}}); break;
      case kCallArguments: calls_.back().arguments += event.text; break;
      case kCallEnd: calls_.back().whole = event.whole; break;
      case kWarning: fmt::print(stderr, "ingot: warning: {}\n", printable(event.text)); break;
      case kMarkup: break;
    }
  }
  std::fflush(stdout);
}

void ChatAnswer::print(std::string_view text, bool is_reasoning) {
  if (is_reasoning != in_reasoning_) fmt::print("{}", is_reasoning ? "<think>\n" : "\n</think>\n");
  if (is_reasoning != in_reasoning_) at_line_start_ = true;
  in_reasoning_ = is_reasoning;
  fmt::print("{}", text);
  if (!text.empty()) at_line_start_ = text.ends_with('\n');
}

// A call that was cut off gets the arguments {}, because some templates reject arguments that are not JSON.
JsonValue ChatAnswer::message() const {
  JsonValue message = {{"role", "assistant"}, {"content", content_}};
  if (!reasoning_.empty()) message["reasoning_content"] = reasoning_;
  for (const ToolCall& call : calls_)
    message["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.whole ? call.arguments : "{}"}}}});
  return message;
}

}  // namespace ingot
