#include "text/chat.h"

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "text/calls/call_format.h"
#include "text/chat_messages.h"
#include "text/generic_tools.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}{% "
    "endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// A word that no template writes on its own.
constexpr std::string_view kNeedle = "xqz7needle";

Json message(const char* role, Json content) { return Json{{"role", role}, {"content", std::move(content)}}; }

bool contains(const std::optional<std::string>& text, std::string_view what) {
  return text && text->find(what) != std::string::npos;
}

Json text_parts(std::string_view text) { return Json::array({Json{{"type", "text"}, {"text", text}}}); }

// Content and tools in the forms that the template supports.
template <class Adapt>
Json content_of(const Adapt& adapt, std::string_view text) {
  return adapt.text_to_parts ? text_parts(text) : Json(text);
}
template <class Adapt>
Json tools_of(const Adapt& adapt, const Json& tools) {
  const Json& shown = adapt.tools_to_system ? Json() : tools;
  return shown.is_null() && adapt.null_tools_to_empty ? Json::array() : shown;
}

// The syntax of calls that become text: that of the family, or the one that tools_to_system() describes.
const CallFormat& history_format(std::string_view source, bool is_described) {
  const CallFormat& family = call_format_of_template(source);
  const bool has_text = family.syntax != CallSyntax::kNone && family.syntax != CallSyntax::kChannel;
  return has_text && !is_described ? family : *find_call_format("generic");
}

}  // namespace

ChatTemplate::ChatTemplate(std::string source, std::string bos, std::string eos, TemplateLimits limits,
                           TemplateClock clock)
    : source_(std::move(source)),
      bos_(std::move(bos)),
      eos_(std::move(eos)),
      limits_(limits),
      clock_(std::move(clock)),
      template_(Template::parse(kChatMl)) {
  try {
    template_ = Template::parse(source_, limits_);
  } catch (const Error& error) {
    log_warn("the model's chat template is invalid; using ChatML instead: {}", error.what());
    source_ = kChatMl;
  }
  adapt_ = probe();
  answer_prefix_ = find_answer_prefix();
}

std::string ChatTemplate::find_answer_prefix() const {
  try {
    const Json messages = adapted(Json::array({message("user", "Hello")}), nullptr);
    const Json tools = tools_of(adapt_, nullptr);
    const std::string closed = render_as_is(messages, tools, false, nullptr);
    const std::string open = render_as_is(messages, tools, true, nullptr);
    return open.starts_with(closed) ? open.substr(closed.size()) : "";
  } catch (const Error&) {
    return "";
  }
}

ChatTemplate ChatTemplate::chatml_default() { return ChatTemplate(std::string(kChatMl), "", ""); }

std::string ChatTemplate::render(const Json& messages, const Json& tools, bool add_generation_prompt,
                                 const Json& variables, const Edit& last_edit) const {
  check_messages(messages, {.images = reads(MediaKind::kImage), .recordings = reads(MediaKind::kSound)});
  check_tools(tools);
  check_template_variables(variables);
  if (!last_edit)
    return render_as_is(adapted(messages, tools), tools_of(adapt_, tools), add_generation_prompt, variables);
  Json all[] = {adapted(messages, tools), tools_of(adapt_, tools), variables};
  for (Json& part : all) last_edit(part);
  return render_as_is(all[0], all[1], add_generation_prompt, all[2]);
}

std::string ChatTemplate::render_as_is(const Json& messages, const Json& tools, bool add_generation_prompt,
                                       const Json& variables) const {
  Json all = {{"messages", messages}, {"tools", tools},
              {"documents", nullptr}, {"add_generation_prompt", add_generation_prompt},
              {"bos_token", bos_},    {"eos_token", eos_}};
  for (const auto& [name, value] : variables.items()) all[name] = value;
  return template_.render(all, limits_, clock_);
}

Json ChatTemplate::adapted(Json messages, const Json& tools) const {
  for (Json& one : messages)
    if (adapt_.developer_to_system && one["role"] == "developer") one["role"] = "system";
  if (adapt_.merges_systems) merge_leading_systems(messages);
  if (adapt_.late_systems_to_users) late_systems_to_users(messages);
  for (const MediaKind kind : kMediaKinds) {
    const Medium& medium = media_[static_cast<size_t>(kind)];
    if (medium.moves_from_tools) move_tool_media(messages, kind);
    if (medium.to_text)
      for (Json& one : messages) media_to_text(one, kind);
  }
  fix_call_ids(messages, adapt_.short_ids);
  const bool tells_tools = adapt_.tools_to_system && !tools.empty();
  if (adapt_.calls_to_text || tells_tools) {
    const CallFormat& format = history_format(source_, tells_tools);
    tool_calls_to_text(messages, format, adapt_.keeps_results && format.name != "generic");
  }
  if (tells_tools) tools_to_system(messages, tools);
  if (adapt_.system_to_user) merge_system(messages);
  if (adapt_.merges_users) merge_users(messages);
  for (Json& one : messages) {
    if (adapt_.arguments_to_object) arguments_to_object(one);
    if (adapt_.arguments_to_text) arguments_to_text(one);
    if (adapt_.absent_to_null && !one.contains("content")) one["content"] = nullptr;
    if (adapt_.null_to_empty && one.contains("content") && one["content"].is_null()) one["content"] = "";
    if (!one.contains("content")) continue;
    Json& content = one["content"];
    if (adapt_.parts_to_text && content.is_array()) content = joined_parts(content);
    if (adapt_.text_to_parts && content.is_string()) content = text_parts(content.get_ref<const std::string&>());
  }
  return messages;
}

std::optional<std::string> ChatTemplate::attempt(const Json& messages, const Json& tools) const {
  try {
    return render_as_is(messages, tools, true, nullptr);
  } catch (const Error&) {
    return std::nullopt;
  }
}

ChatTemplate::Adapt ChatTemplate::probe() const {
  Adapt adapt;
  probe_content(adapt);
  probe_turns(adapt);
  probe_tool_calls(adapt);
  return adapt;
}

void ChatTemplate::probe_content(Adapt& adapt) const {
  // Json::array() instead of braces: compilers disagree on whether {message} is an array or a copy of the message.
  auto asked = [&](Json content, const Json& tools) {
    return attempt(Json::array({message("user", std::move(content))}), tools);
  };
  auto text = asked(kNeedle, nullptr);
  if (!text) {
    text = asked(kNeedle, Json::array());
    adapt.null_tools_to_empty = text.has_value();
  }
  const auto parts = asked(text_parts(kNeedle), tools_of(adapt, nullptr));
  const bool reads_text = contains(text, kNeedle);
  const bool reads_parts = contains(parts, kNeedle) && !contains(parts, "'type'") && !contains(parts, "\"type\"");
  adapt.parts_to_text = !reads_parts;
  adapt.text_to_parts = !reads_text && reads_parts;
  const Json conversation =
      Json::array({message("system", content_of(adapt, kNeedle)), message("user", content_of(adapt, "Hello"))});
  const auto system = attempt(conversation, tools_of(adapt, nullptr));
  adapt.system_to_user = (reads_text || reads_parts) && !contains(system, kNeedle);
}

void ChatTemplate::read(MediaKind kind, std::string placeholder) {
  Medium& medium = media_[static_cast<size_t>(kind)];
  medium.placeholder = std::move(placeholder);
  Json parts = text_parts(kNeedle);
  parts.insert(parts.begin(), Json{{"type", facts_of(kind).part}});
  const Json tools = tools_of(adapt_, nullptr), asked = message("user", content_of(adapt_, "Hello"));
  const auto shown = attempt(Json::array({message("user", parts)}), tools);
  medium.to_text = !contains(shown, medium.placeholder) || !contains(shown, kNeedle);
  Json call = Json::parse(R"({"role": "assistant", "content": "", "tool_calls": [
      {"type": "function", "id": "call00001", "function": {"name": "look", "arguments": {"at": "x"}}}]})");
  call["content"] = content_of(adapt_, "");
  if (adapt_.arguments_to_text) arguments_to_text(call);
  Json result = message("tool", std::move(parts));
  result["name"] = "look", result["tool_call_id"] = "call00001";
  const auto answered = attempt(Json::array({asked, std::move(call), std::move(result)}), tools);
  medium.moves_from_tools =
      medium.to_text || adapt_.calls_to_text || !contains(answered, medium.placeholder) || !contains(answered, kNeedle);
}

// Which orders of system and user messages the template shows.
void ChatTemplate::probe_turns(Adapt& adapt) const {
  const Json tools = tools_of(adapt, nullptr);
  const auto say = [&](const char* role, std::string_view text) { return message(role, content_of(adapt, text)); };
  const auto shows = [&](const Json& messages) { return contains(attempt(messages, tools), kNeedle); };
  if (!shows(Json::array({say("user", kNeedle)}))) return;  // the probes would not tell anything
  adapt.developer_to_system = !shows(Json::array({say("developer", kNeedle), say("user", "Hi")}));
  adapt.merges_systems = !shows(Json::array({say("system", "Be brief."), say("system", kNeedle), say("user", "Hi")})) ||
                         !shows(Json::array({say("system", kNeedle), say("system", "Be brief."), say("user", "Hi")}));
  const auto with_late = [&](std::string_view first, std::string_view late) {
    return Json::array({say("system", first), say("user", "Hello"), say("assistant", "Hi"), say("system", late),
                        say("user", "Go on.")});
  };
  adapt.late_systems_to_users = !shows(with_late("Be brief.", kNeedle)) || !shows(with_late(kNeedle, "Be brief."));
  adapt.merges_users = !shows(Json::array({say("user", kNeedle), say("user", "Go on.")})) ||
                       !shows(Json::array({say("user", "Hello"), say("user", kNeedle)}));
}

std::string ChatTemplate::change_of(const Json& messages) const {
  if (!adapt_.late_systems_to_users || !has_late_system(messages)) return "";
  return "the model's chat template takes system messages only at the beginning: leading ones are joined, and later "
         "ones are passed as user messages";
}

// Which ids of calls the template takes.
void ChatTemplate::probe_ids(Adapt& adapt, const Json& tools) const {
  const auto shows = [&](const char* id) {
    Json call = Json::parse(R"({"role": "assistant", "content": "", "tool_calls": [
        {"type": "function", "function": {"name": "look", "arguments": {"at": "x"}}}]})");
    call["content"] = content_of(adapt, "");
    if (adapt.arguments_to_text) arguments_to_text(call);
    Json result = message("tool", content_of(adapt, kNeedle));
    result["name"] = "look";
    call["tool_calls"][0]["id"] = result["tool_call_id"] = id;
    return contains(attempt(Json::array({message("user", content_of(adapt, "Hello")), call, result}), tools), kNeedle);
  };
  adapt.keeps_results = shows("call00001");
  adapt.short_ids = adapt.keeps_results && !shows("call_0123456789abcdefghijklmn");
}

void ChatTemplate::probe_tool_calls(Adapt& adapt) const {
  static const Json tools = Json::parse(R"([{"type": "function", "function": {
      "name": "look", "description": "Looks.",
      "parameters": {"type": "object", "properties": {"at": {"type": "string", "description": "Where."}},
                     "required": ["at"]}}}])");
  auto calling = [&](std::optional<Json> content, const Json& arguments) {
    Json call = Json::parse(
        R"({"role": "assistant", "tool_calls": [{"id": "call00001", "type": "function",
                                               "function": {"name": "look"}}]})");
    if (content) call["content"] = std::move(*content);
    call["tool_calls"][0]["function"]["arguments"] = arguments;
    return attempt(Json::array({message("user", content_of(adapt, "Hello")), std::move(call)}), tools);
  };
  Json object = Json::object();
  object[std::string(kNeedle)] = 1;
  const auto from_object = calling(content_of(adapt, ""), object);
  const auto from_text = calling(content_of(adapt, ""), object.dump());
  // A template that needs more variables fails on every probe, so the probes do not show what the template supports.
  const bool renders = attempt(Json::array({message("user", content_of(adapt, "Hello"))}), nullptr).has_value();
  adapt.calls_to_text = renders && !contains(from_object, kNeedle) && !contains(from_text, kNeedle);
  // A template that prints an object in Python's notation does not support objects.
  const bool reads_object =
      contains(from_object, kNeedle) && !contains(from_object, fmt::format("{{'{}': 1}}", kNeedle));
  const bool reads_text = contains(from_text, object.dump());
  adapt.arguments_to_object = reads_object && !reads_text;
  adapt.arguments_to_text = reads_text && !reads_object;
  const Json arguments = adapt.arguments_to_text ? Json(object.dump()) : object;
  const auto from_empty = adapt.arguments_to_text ? from_text : from_object;
  const auto from_null = calling(Json(nullptr), arguments), from_absent = calling(std::nullopt, arguments);
  // A template that fails on all tool calls is bad too, because it may still get messages without content.
  auto is_bad = [&](const auto& text) { return !text || (contains(text, "None") && !contains(from_empty, "None")); };
  adapt.null_to_empty = is_bad(from_null);
  adapt.absent_to_null = is_bad(from_absent);
  if (renders) probe_tools(adapt, tools);
  if (renders) probe_ids(adapt, tools);
}

// Some templates show tools only if there is a system message.
void ChatTemplate::probe_tools(Adapt& adapt, const Json& tools) const {
  Json named = tools;
  named[0]["function"]["name"] = kNeedle;
  const Json asked = Json::array({message("user", content_of(adapt, "Hello"))});
  Json both = asked;
  both.insert(both.begin(), message("system", content_of(adapt, "Be brief.")));
  adapt.tools_to_system = !contains(attempt(asked, named), kNeedle) && !contains(attempt(both, named), kNeedle);
}

}  // namespace ingot
