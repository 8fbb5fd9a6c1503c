#include "text/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>

#include "base/ascii.h"
#include "base/error.h"
#include "base/json.h"
#include "base/splitmix.h"
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

// The kind of a part; nothing: it is text, or of an unknown type.
std::optional<MediaKind> media_of(const Json& part) {
  if (part.is_object() && part.contains("type") && part["type"].is_string())
    for (const MediaKind kind : kMediaKinds)
      if (part["type"].get_ref<const std::string&>() == facts_of(kind).part) return kind;
  return std::nullopt;
}

// The kind of a part as clients send it, before a server takes its data out.
std::optional<MediaKind> media_of_request(const Json& type) {
  if (type == "image" || type == "image_url") return MediaKind::kImage;
  if (type == "audio" || type == "input_audio" || type == "audio_url") return MediaKind::kSound;
  return std::nullopt;
}

void check_content(const Json& content, size_t i, const Json& role, ReadableParts reads) {
  if (content.is_string() || content.is_null()) return;
  if (!content.is_array()) throw Error("messages[{}].content must be a string, null or an array of parts", i);
  const auto is_read = [&](MediaKind kind) { return kind == MediaKind::kImage ? reads.images : reads.recordings; };
  const char* const all = reads.images && reads.recordings ? "text, images and recordings only"
                          : reads.images                   ? "text and images only"
                          : reads.recordings               ? "text and recordings only"
                                                           : "text only";
  for (size_t j = 0; j < content.size(); ++j) {
    const Json& part = content[j];
    if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) {
      throw Error("messages[{}].content[{}] must be an object with a type", i, j);
    }
    if (const auto kind = media_of(part); kind && is_read(*kind)) {
      if (role == "user" || role == "tool") continue;
      throw Error("messages[{}].content[{}]: {} belong in messages of the role user or tool", i, j,
                  facts_of(*kind).names);
    }
    if (const auto kind = media_of_request(part["type"]); kind && !is_read(*kind))
      throw Error("messages[{}].content[{}]: {} are not supported; this model reads {}", i, j, facts_of(*kind).names,
                  all);
    if (part["type"] != "text") {
      throw Error("messages[{}].content[{}]: parts of type '{}' are not supported; this model reads {}", i, j,
                  printable(part["type"].get_ref<const std::string&>(), 64), all);
    }
    if (!part.contains("text") || !part["text"].is_string())
      throw Error("messages[{}].content[{}].text must be a string", i, j);
  }
}

const std::string& role_of(const Json& message, size_t i) {
  if (!message.is_object()) throw Error("messages[{}] must be an object", i);
  if (!message.contains("role") || !message["role"].is_string()) throw Error("messages[{}].role must be a string", i);
  return message["role"].get_ref<const std::string&>();
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

void check_messages(const Json& messages, ReadableParts reads) {
  if (!messages.is_array() || messages.empty()) throw Error("messages must be an array of at least one message");
  if (messages.size() > kMaxMessages)
    throw Error("messages has {} items, over the limit of {}", messages.size(), kMaxMessages);
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    role_of(message, i);
    if (message.contains("content")) check_content(message["content"], i, message["role"], reads);
    if (message.contains("tool_calls")) check_tool_calls(message["tool_calls"], i);
    if (depth_of(message, kMaxMessageDepth + 1) > kMaxMessageDepth)
      throw Error("messages[{}] nests deeper than {}", i, kMaxMessageDepth);
  }
}

void check_turns(const Json& messages, std::string_view template_source) {
  static constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    const std::string& role = role_of(message, i);
    const auto compared = [&](char quote) {
      return template_source.find(fmt::format("== {}{}{}", quote, role, quote)) != std::string::npos;
    };
    if (std::ranges::find(kRoles, role) == std::end(kRoles) && !compared('\'') && !compared('"'))
      throw Error("messages[{}].role must be system, developer, user, assistant or tool", i);
    const auto has = [&](const char* name) { return message.contains(name) && !message[name].is_null(); };
    for (const char* name : {"audio", "function_call"})
      if (has(name)) throw Error("messages[{}].{} is not supported: use content or tool_calls", i, name);
    const auto some = [&](const char* name) { return has(name) && !message[name].empty(); };
    if (!has("content") && !(role == "assistant" && (some("tool_calls") || some("reasoning_content"))))
      throw Error("messages[{}].content is missing", i);
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

int count_media(const Json& messages, MediaKind kind) {
  int n = 0;
  for (const Json& message : messages)
    if (message.contains("content") && message["content"].is_array())
      n += static_cast<int>(
          std::ranges::count_if(message["content"], [&](const Json& part) { return media_of(part) == kind; }));
  return n;
}

void move_tool_media(Json& messages, MediaKind kind) {
  Json out = Json::array(), moved = Json::array();
  const auto flush = [&] {
    if (!moved.empty()) out.push_back(Json{{"role", "user"}, {"content", std::exchange(moved, Json::array())}});
  };
  for (Json& message : messages) {
    if (message["role"] != "tool") {
      flush();
    } else if (message.contains("content") && message["content"].is_array()) {
      Json kept = Json::array();
      for (Json& part : message["content"]) (media_of(part) == kind ? moved : kept).push_back(std::move(part));
      if (kept.empty()) kept.push_back(Json{{"type", "text"}, {"text", ""}});
      message["content"] = std::move(kept);
    }
    out.push_back(std::move(message));
  }
  flush();
  messages = std::move(out);
}

void media_to_text(Json& message, MediaKind kind) {
  if (!message.contains("content") || !message["content"].is_array()) return;
  for (Json& part : message["content"])
    if (media_of(part) == kind) part = Json{{"type", "text"}, {"text", facts_of(kind).mark}};
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

namespace {

bool is_system(const Json& message) { return message["role"] == "system" || message["role"] == "developer"; }

// Appends the content of a message, text or parts, to that of another message, as its own paragraph.
void append_content(Json& into, const Json& from) {
  Json& content = into["content"];
  const Json more = from.value("content", Json());
  if (content.is_array() && more.is_array()) {
    content.insert(content.end(), more.begin(), more.end());
    return;
  }
  const auto has_media = [](const Json& one) {
    return one.is_array() && std::ranges::any_of(one, [](const Json& part) { return media_of(part).has_value(); });
  };
  if (has_media(content) || has_media(more)) {
    Json parts = content.is_array() ? content : Json::array({Json{{"type", "text"}, {"text", content}}});
    for (const Json& part : more.is_array() ? more : Json::array({Json{{"type", "text"}, {"text", more}}}))
      parts.push_back(part);
    content = std::move(parts);
    return;
  }
  const auto text_of = [](const Json& one) {
    return one.is_array() ? joined_parts(one) : one.is_string() ? one.get<std::string>() : "";
  };
  const std::string first = text_of(content), second = text_of(more);
  content = first.empty() || second.empty() ? first + second : first + "\n\n" + second;
}

// Joins each message with the previous one if `joins` says so for both.
template <class Joins>
void merge_neighbours(Json& messages, Joins joins) {
  Json out = Json::array();
  for (Json& message : messages) {
    if (!out.empty() && joins(out, message))
      append_content(out.back(), message);
    else
      out.push_back(std::move(message));
  }
  messages = std::move(out);
}

bool is_short_id(std::string_view id) {
  return id.size() == 9 && std::ranges::all_of(id, [](char c) {
    return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9');
  });
}

// An id of 9 letters and digits for any id.
std::string short_id(const std::string& id) {
  if (is_short_id(id)) return id;
  constexpr std::string_view kDigits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  uint64_t state = id.size();
  for (const char c : id) state = splitmix(state ^ static_cast<unsigned char>(c));
  std::string out;
  for (int i = 0; i < 9; ++i) out += kDigits[splitmix(state += kSplitMixStep) % kDigits.size()];
  return out;
}

bool has_id(const Json& object, const char* name) {
  return object.contains(name) && object[name].is_string() && object[name] != "";
}

}  // namespace

void merge_leading_systems(Json& messages) {
  merge_neighbours(messages, [](const Json& before, const Json& message) {
    return before.size() == 1 && is_system(before[0]) && is_system(message);
  });
}

void late_systems_to_users(Json& messages) {
  bool is_late = false;
  for (Json& message : messages) {
    if (!is_system(message))
      is_late = true;
    else if (is_late)
      message["role"] = "user";
  }
}

bool has_late_system(const Json& messages) {
  return std::ranges::any_of(messages.begin() + !messages.empty(), messages.end(), is_system);
}

void merge_users(Json& messages) {
  merge_neighbours(messages, [](const Json& before, const Json& message) {
    return before.back()["role"] == "user" && message["role"] == "user";
  });
}

void fix_call_ids(Json& messages, bool short_ids) {
  int n_calls = 0;
  std::deque<std::string> open;  // calls without a result
  for (Json& message : messages) {
    const bool has_calls = message.contains("tool_calls") && message["tool_calls"].is_array();
    if (message["role"] == "assistant" && has_calls) {
      open.clear();
      for (Json& call : message["tool_calls"]) {
        ++n_calls;
        if (!has_id(call, "id")) call["id"] = fmt::format("call{:05}", n_calls);
        if (short_ids) call["id"] = short_id(call["id"].get<std::string>());
        open.push_back(call["id"].get<std::string>());
      }
    } else if (message["role"] == "tool") {
      if (has_id(message, "tool_call_id")) {
        if (short_ids) message["tool_call_id"] = short_id(message["tool_call_id"].get<std::string>());
        std::erase(open, message["tool_call_id"].get<std::string>());
      } else if (!open.empty()) {
        message["tool_call_id"] = open.front();
        open.pop_front();
      }
    }
  }
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
