#include "text/chat_messages.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "text/jinja/template.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxMessages = 16'384, kMaxTools = 256, kMaxVariables = 256, kMaxMessageDepth = 64;

size_t depth_of(const Json& json, size_t limit) {
  if (!json.is_structured() || limit == 0) return 0;
  size_t depth = 0;
  for (const Json& item : json) depth = std::max(depth, depth_of(item, limit - 1));
  return depth + 1;
}

void check_content(const Json& content, size_t i) {
  if (content.is_string() || content.is_null()) return;
  if (!content.is_array()) throw Error("messages[{}].content must be a string, null or an array of parts", i);
  for (size_t j = 0; j < content.size(); ++j) {
    const Json& part = content[j];
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) {
      throw Error("messages[{}].content[{}] must be an object with a type", i, j);
    }
    if (part["type"] != "text") {
      throw Error("messages[{}].content[{}]: parts of type '{}' are not supported; this model reads text only", i, j,
                  printable(part["type"].get_ref<const std::string&>(), 64));
    }
    if (!part.contains("text") || !part["text"].is_string())
      throw Error("messages[{}].content[{}].text must be a string", i, j);
  }
}

void check_tool_calls(const Json& calls, size_t i) {
  if (calls.is_null()) return;
  if (!calls.is_array()) throw Error("messages[{}].tool_calls must be an array", i);
  for (size_t j = 0; j < calls.size(); ++j) {
    if (!calls[j].is_object()) throw Error("messages[{}].tool_calls[{}] must be an object", i, j);
  }
}

// Applies `change` to each `arguments` of the tool calls of a message.
template <class Change>
void for_arguments(Json& message, Change change) {
  if (!message.contains("tool_calls") || !message["tool_calls"].is_array()) return;
  for (Json& call : message["tool_calls"]) {
    Json& function = call.contains("function") && call["function"].is_object() ? call["function"] : call;
    if (function.contains("arguments")) change(function["arguments"]);
  }
}

}  // namespace

void check_messages(const Json& messages) {
  if (!messages.is_array() || messages.empty()) throw Error("messages must be an array of at least one message");
  if (messages.size() > kMaxMessages)
    throw Error("messages has {} items, over the limit of {}", messages.size(), kMaxMessages);
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    if (!message.is_object()) throw Error("messages[{}] must be an object", i);
    if (!message.contains("role") || !message["role"].is_string()) throw Error("messages[{}].role must be a string", i);
    if (message.contains("content")) check_content(message["content"], i);
    if (message.contains("tool_calls")) check_tool_calls(message["tool_calls"], i);
    if (depth_of(message, kMaxMessageDepth + 1) > kMaxMessageDepth)
      throw Error("messages[{}] nests deeper than {}", i, kMaxMessageDepth);
  }
}

void check_tools(const Json& tools) {
  if (tools.is_null()) return;
  if (!tools.is_array()) throw Error("tools must be an array");
  if (tools.size() > kMaxTools) throw Error("tools has {} items, over the limit of {}", tools.size(), kMaxTools);
  for (size_t i = 0; i < tools.size(); ++i) {
    if (!tools[i].is_object()) throw Error("tools[{}] must be an object", i);
    if (depth_of(tools[i], kMaxMessageDepth + 1) > kMaxMessageDepth)
      throw Error("tools[{}] nests deeper than {}", i, kMaxMessageDepth);
  }
}

void check_template_variables(const Json& variables) {
  static constexpr std::string_view kReserved[] = {"messages",  "conversation",  "tools",    "bos_token",
                                                   "eos_token", "chat_template", "tokenize", "add_generation_prompt"};
  if (variables.is_null()) return;
  if (!variables.is_object()) throw Error("the variables of a chat template must be an object");
  if (variables.size() > kMaxVariables) {
    throw Error("the chat template gets {} variables, over the limit of {}", variables.size(), kMaxVariables);
  }
  for (const auto& [name, value] : variables.items()) {
    if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved)) {
      throw Error("the chat template's variable '{}' is reserved", name);
    }
    if (depth_of(value, kMaxMessageDepth + 1) > kMaxMessageDepth) {
      throw Error("the chat template's variable '{}' nests deeper than {}", printable(name, 64), kMaxMessageDepth);
    }
  }
}

std::string joined_parts(const Json& parts) {
  std::string out;
  for (const Json& part : parts) out += (out.empty() ? "" : "\n") + part.value("text", std::string());
  return out;
}

void arguments_to_object(Json& message) {
  for_arguments(message, [](Json& arguments) {
    if (!arguments.is_string()) return;
    Json parsed = Json::parse(arguments.get_ref<const std::string&>(), nullptr, false);
    if (parsed.is_object() && depth_of(parsed, kMaxMessageDepth + 1) <= kMaxMessageDepth) arguments = std::move(parsed);
  });
}

void arguments_to_text(Json& message) {
  for_arguments(message, [](Json& arguments) {
    if (!arguments.is_string()) arguments = spaced_json(arguments);
  });
}

std::string spaced_json(const Json& json) {
  static const Template kAsJson = Template::parse("{{ json | tojson }}");
  return kAsJson.render(Json::object({{"json", json}}));
}

void merge_system(Json& messages) {
  if (messages.empty() || messages[0]["role"] != "system") return;
  const Json content = messages[0].value("content", Json());
  messages.erase(0);
  const std::string system = content.is_array()    ? joined_parts(content)
                             : content.is_string() ? content.get<std::string>()
                                                   : "";
  if (messages.empty() || messages[0]["role"] != "user") {
    messages.insert(messages.begin(), Json{{"role", "user"}, {"content", system}});
    return;
  }
  Json& user = messages[0]["content"];
  if (user.is_array()) {
    user.insert(user.begin(), Json{{"type", "text"}, {"text", system}});
  } else {
    user = system + "\n\n" + (user.is_string() ? user.get<std::string>() : std::string());
  }
}

}  // namespace ingot
