#include "text/generic_tools.h"

#include "base/json.h"
#include "text/calls/call_writer.h"
#include "text/chat_messages.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

std::string content_text(const Json& message) {
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) return "";
  return content->is_array() ? joined_parts(*content) : content->get<std::string>();
}

}  // namespace

void tools_to_system(Json& messages, const Json& tools) {
  std::string text = "You can call tools. Each of these lines is the JSON description of one:\n<tools>\n";
  for (const Json& tool : tools) text += spaced_json(tool) + "\n";
  text +=
      "</tools>\nTo call a tool, answer with its name and its arguments as a JSON object between tags:\n"
      "<tool_call>{\"name\": \"the tool's name\", \"arguments\": {\"an argument\": \"its value\"}}</tool_call>\n"
      "Write one such line for each call, and nothing after the last. What the tools say comes in the next message, "
      "between <tool_response> and </tool_response>. If no tool helps, answer without a call.";
  if (messages[0]["role"] != "system") messages.insert(messages.begin(), Json{{"role", "system"}});
  const std::string given = content_text(messages[0]);
  messages[0]["content"] = given.empty() ? text : given + "\n\n" + text;
}

void tool_calls_to_text(Json& messages, const CallFormat& format, bool keeps_results) {
  Json out = Json::array();
  bool after_result = false;
  for (Json& message : messages) {
    const bool is_result = message["role"] == "tool" && !keeps_results;
    if (is_result) {
      const std::string text = "<tool_response>" + content_text(message) + "</tool_response>";
      if (after_result)
        out.back()["content"].get_ref<std::string&>() += "\n" + text;
      else
        out.push_back({{"role", "user"}, {"content", text}});
    } else {
      if (message.contains("tool_calls") && message["tool_calls"].is_array()) {
        arguments_to_object(message);
        const std::string text = content_text(message), calls = written_calls(format, message["tool_calls"]);
        message["content"] = text.empty() || calls.empty() ? text + calls : text + "\n" + calls;
        message.erase("tool_calls");
      }
      out.push_back(std::move(message));
    }
    after_result = is_result;
  }
  messages = std::move(out);
}

}  // namespace ingot
