#include "server/fields/tool_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace ingot {
namespace {

constexpr size_t kMaxTools = 256;
constexpr size_t kMaxName = 256;  // bytes, as in AnswerParser

// The names of a tool's members in one style.
struct StyleNames {
  const char* type;
  const char* function;  // the member that contains the rest; null: the rest is next to the type
  const char* parameters;
};
constexpr StyleNames kStyles[] = {
    {"function", "function", "parameters"}, {"function", nullptr, "parameters"}, {"custom", nullptr, "input_schema"}};

const StyleNames& names_of(ToolStyle style) { return kStyles[static_cast<size_t>(style)]; }

// Whether templates support the tool's type. An absent type counts as supported.
bool is_known(const JsonValue& tool, const char* known, const std::string& where, AnswerForm& form) {
  if (!tool.is_object()) refuse_value(where, "must be an object");
  if (!tool.contains("type") || tool["type"].is_null()) return true;
  const std::string& type = string_member(tool, "type", where);
  if (type == known) return true;
  form.warnings.push_back(
      fmt::format("{} is left out: this server has no tools of the type '{}'", where, printable(type, 64)));
  return false;
}

// Converts a flat tool to the form for templates.
JsonValue in_chat_form(const JsonValue& tool, const StyleNames& names, const std::string& where) {
  JsonValue function = {{"name", string_member(tool, "name", where)}};
  if (tool.contains("description") && !tool["description"].is_null())
    function["description"] = string_member(tool, "description", where);
  function["parameters"] = tool.value(names.parameters, JsonValue::object());
  return {{"type", "function"}, {"function", std::move(function)}};
}

void read_tool(const JsonValue& tool, const StyleNames& names, const std::string& where, AnswerForm& form) {
  if (!is_known(tool, names.type, where, form)) return;
  const std::string inner = names.function ? fmt::format("{}.{}", where, names.function) : where;
  if (names.function && (!tool.contains(names.function) || !tool[names.function].is_object()))
    refuse_value(inner, "must be an object");
  const JsonValue& function = names.function ? tool[names.function] : tool;
  const std::string& name = string_member(function, "name", inner);
  if (name.empty() || name.size() > kMaxName)
    refuse_value(inner + ".name", fmt::format("must have 1 to {} bytes, not {}", kMaxName, name.size()));
  const auto is_same = [&](const CallableTool& other) { return other.name == name; };
  if (std::ranges::any_of(form.callable, is_same))
    refuse_value(inner + ".name",
                 fmt::format("repeats the name '{}': each tool needs its own name", printable(name, 64)));
  const Fields fields(function, inner + ".");
  const JsonValue* parameters = fields.find(names.parameters);
  form.callable.push_back({.name = name,
                           .parameters = parameters ? *parameters : JsonValue(),
                           .where = fmt::format("{}.{}", inner, names.parameters),
                           .strict = fields.boolean("strict").value_or(false)});
  form.tools.push_back(names.function ? tool : in_chat_form(tool, names, where));
}

// Restricts the callable tools to `kept`.
void keep_callable(const std::set<std::string>& kept, const std::string& path, AnswerForm& form) {
  for (const std::string& name : kept)
    if (std::ranges::none_of(form.callable, [&](const CallableTool& tool) { return tool.name == name; }))
      refuse_value(path, fmt::format("names the tool '{}', which the request does not have", printable(name, 64)));
  const size_t n_before = form.callable.size();
  std::erase_if(form.callable, [&](const CallableTool& tool) { return !kept.contains(tool.name); });
  form.limits_tools = form.callable.size() < n_before;
}

// The name in {"type": "function", "name": ...} or {"type": "function", "function": {"name": ...}}.
std::string named_function(const JsonValue& choice, const std::string& path) {
  if (!choice.is_object()) refuse_value(path, "must be an object");
  const bool is_nested = choice.contains("function") && choice["function"].is_object();
  return string_member(is_nested ? choice["function"] : choice, "name", is_nested ? path + ".function" : path);
}

void force_one(const std::string& name, AnswerForm& form) {
  keep_callable({name}, "tool_choice", form);
  form.choice = ToolChoice::kRequired;
  form.parallel_calls = false;
}

// OpenAI's tool_choice as a string, or the "mode" of allowed_tools.
ToolChoice choice_of_word(const JsonValue& word, const std::string& path) {
  if (word == "none") return ToolChoice::kNone;
  if (word == "auto") return ToolChoice::kAuto;
  if (word == "required") return ToolChoice::kRequired;
  refuse_value(path, "must be \"none\", \"auto\", \"required\", a function or allowed_tools");
}

// {"type": "allowed_tools", "mode": "auto" or "required", "tools": [...]}. Chat requests nest mode and tools in a
// member "allowed_tools".
void read_allowed(const JsonValue& choice, AnswerForm& form) {
  const bool is_nested = choice.contains("allowed_tools") && choice["allowed_tools"].is_object();
  const std::string path = is_nested ? "tool_choice.allowed_tools" : "tool_choice";
  const Fields fields(is_nested ? choice["allowed_tools"] : choice, path + ".");
  const JsonValue* mode = fields.find("mode");
  form.choice = mode ? choice_of_word(*mode, path + ".mode") : ToolChoice::kAuto;
  const JsonValue& tools = fields.at("tools");
  if (!tools.is_array() || tools.empty()) fields.refuse("tools", "must be an array of at least one tool");
  std::set<std::string> names;
  for (size_t i = 0; i < tools.size(); ++i)
    names.insert(named_function(tools[i], fmt::format("{}.tools[{}]", path, i)));
  keep_callable(names, path + ".tools", form);
}

void read_openai_choice(const JsonValue& choice, AnswerForm& form) {
  if (!choice.is_object()) {
    form.choice = choice_of_word(choice, "tool_choice");
    return;
  }
  const std::string type = string_member(choice, "type", "tool_choice");
  if (type == "function") return force_one(named_function(choice, "tool_choice"), form);
  if (type != "allowed_tools") refuse_value("tool_choice.type", "must be \"function\" or \"allowed_tools\"");
  read_allowed(choice, form);
}

void read_anthropic_choice(const JsonValue& choice, AnswerForm& form) {
  const Fields fields(choice, "tool_choice.");
  const std::string type = fields.string("type", 64).value_or("");
  form.parallel_calls = !fields.boolean("disable_parallel_tool_use").value_or(false);
  if (type == "none") {
    form.choice = ToolChoice::kNone;
  } else if (type == "any") {
    form.choice = ToolChoice::kRequired;
  } else if (type == "tool") {
    force_one(string_member(choice, "name", "tool_choice"), form);
  } else if (type != "auto") {
    fields.refuse("type", "must be auto, any, tool or none");
  }
}

}  // namespace

void read_tools(const Fields& fields, ToolStyle style, AnswerForm& form) {
  if (const JsonValue* tools = fields.find("tools")) {
    if (tools->size() > kMaxTools)
      fields.refuse("tools", fmt::format("has {} elements: at most {}", tools->size(), kMaxTools));
    for (size_t i = 0; i < tools->size(); ++i)
      read_tool((*tools)[i], names_of(style), fmt::format("tools[{}]", i), form);
    if (form.callable.empty() && !tools->empty())
      refuse_value("tools", "has only tools that the server would have to run, and this server runs none");
  }
  form.parallel_calls = fields.boolean("parallel_tool_calls").value_or(true);
  if (const JsonValue* choice = fields.find("tool_choice"))
    style == ToolStyle::kMessages ? read_anthropic_choice(*choice, form) : read_openai_choice(*choice, form);
  if (form.choice == ToolChoice::kRequired && form.callable.empty())
    fields.refuse("tool_choice", "requires a call, but the request has no tools to call");
  if (form.choice != ToolChoice::kNone) return;
  form.tools = nullptr;
  form.callable.clear();
}

}  // namespace ingot
