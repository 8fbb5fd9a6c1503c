#include "text/chat.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "text/chat_messages.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

// A word that no template writes by itself.
constexpr std::string_view kNeedle = "xqz7needle";

Json message(const char* role, Json content) { return Json{{"role", role}, {"content", std::move(content)}}; }

bool contains(const std::optional<std::string>& text, std::string_view what) {
  return text && text->find(what) != std::string::npos;
}

Json text_parts(std::string_view text) { return Json::array({Json{{"type", "text"}, {"text", text}}}); }

}  // namespace

ChatTemplate::ChatTemplate(std::string source, std::string bos, std::string eos, TemplateLimits limits, TemplateClock clock)
    : source_(std::move(source)),
      bos_(std::move(bos)),
      eos_(std::move(eos)),
      limits_(limits),
      clock_(std::move(clock)),
      template_(Template::parse(kChatMl)) {
  try {
    template_ = Template::parse(source_, limits_);
  } catch (const Error& error) {
    log_warn("the model's chat template is broken, using ChatML in its place: {}", error.what());
    source_ = kChatMl;
    is_fallback_ = true;
  }
  adapt_ = probe();
}

ChatTemplate ChatTemplate::chatml_default() { return ChatTemplate(std::string(kChatMl), "", ""); }

std::string ChatTemplate::render(const Json& messages, const Json& tools, bool add_generation_prompt, const Json& variables) const {
  check_messages(messages);
  check_tools(tools);
  check_template_variables(variables);
  return render_as_is(adapted(messages), tools, add_generation_prompt, variables);
}

std::string ChatTemplate::render_as_is(const Json& messages, const Json& tools, bool add_generation_prompt,
                                       const Json& variables) const {
  Json all = {{"messages", messages},
              {"tools", tools},
              {"documents", nullptr},
              {"add_generation_prompt", add_generation_prompt},
              {"bos_token", bos_},
              {"eos_token", eos_}};
  for (const auto& [name, value] : variables.items()) all[name] = value;
  return template_.render(all, limits_, clock_);
}

Json ChatTemplate::adapted(Json messages) const {
  if (adapt_.system_to_user) merge_system(messages);
  for (Json& one : messages) {
    if (adapt_.arguments_to_object) arguments_to_object(one);
    if (adapt_.arguments_to_text) arguments_to_text(one);
    if (adapt_.null_to_empty && (!one.contains("content") || one["content"].is_null())) one["content"] = "";
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
  probe_tool_calls(adapt);
  return adapt;
}

void ChatTemplate::probe_content(Adapt& adapt) const {
  const auto text = attempt({message("user", kNeedle)}, nullptr);
  const auto parts = attempt({message("user", text_parts(kNeedle))}, nullptr);
  const bool reads_text = contains(text, kNeedle);
  const bool reads_parts = contains(parts, kNeedle) && !contains(parts, "'type'") && !contains(parts, "\"type\"");
  adapt.parts_to_text = !reads_parts;
  adapt.text_to_parts = !reads_text && reads_parts;
  auto content = [&](std::string_view words) { return adapt.text_to_parts ? text_parts(words) : Json(words); };
  const auto system = attempt({message("system", content(kNeedle)), message("user", content("Hello"))}, nullptr);
  adapt.system_to_user = (reads_text || reads_parts) && !contains(system, kNeedle);
}

void ChatTemplate::probe_tool_calls(Adapt& adapt) const {
  const Json tools = Json::array({{{"type", "function"},
                                   {"function",
                                    {{"name", "look"},
                                     {"description", "Looks."},
                                     {"parameters",
                                      {{"type", "object"},
                                       {"properties", {{"at", {{"type", "string"}, {"description", "Where."}}}}},
                                       {"required", {"at"}}}}}}}});
  auto content = [&](std::string_view words) { return adapt.text_to_parts ? text_parts(words) : Json(words); };
  auto calling = [&](Json call_content, Json arguments) {
    Json call = message("assistant", std::move(call_content));
    call["tool_calls"] = Json::array(
        {{{"id", "call00001"}, {"type", "function"}, {"function", {{"name", "look"}, {"arguments", std::move(arguments)}}}}});
    return attempt({message("user", content("Hello")), std::move(call)}, tools);
  };
  const Json object = {{kNeedle, 1}};
  const auto from_object = calling(content(""), object);
  const auto from_text = calling(content(""), object.dump());
  const bool reads_object = contains(from_object, kNeedle), reads_text = contains(from_text, object.dump());
  adapt.arguments_to_object = reads_object && !reads_text;
  adapt.arguments_to_text = reads_text && !reads_object;
  const Json arguments = adapt.arguments_to_text ? Json(object.dump()) : object;
  const auto from_empty = adapt.arguments_to_text ? from_text : from_object;
  const auto from_null = calling(nullptr, arguments);
  // A template that fails on tool calls altogether still meets messages without content.
  adapt.null_to_empty = !from_null || (contains(from_null, "None") && !contains(from_empty, "None"));
}

}  // namespace ingot
