#include "text/calls/call_writer.h"

#include "base/json.h"
#include "text/chat_messages.h"

namespace ingot {
namespace {

using Json = nlohmann::ordered_json;

// A value in Python's syntax: JSON with Python's literals.
std::string python_value(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_null()) return "None";
  if (!value.is_structured()) return spaced_json(value);
  std::string text;
  for (const auto& [key, one] : value.items()) {
    text += text.empty() ? "" : ", ";
    text += value.is_object() ? spaced_json(key) + ": " + python_value(one) : python_value(one);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

// A value in Gemma's syntax. `mark` comes before and after strings.
std::string gemma_value(const Json& value, std::string_view mark) {
  if (value.is_string()) return std::string(mark) + value.get<std::string>() + std::string(mark);
  if (!value.is_structured()) return spaced_json(value);
  std::string text;
  for (const auto& [key, one] : value.items()) {
    text += text.empty() ? "" : ",";
    text += (value.is_object() ? key + ":" : "") + gemma_value(one, mark);
  }
  return value.is_object() ? "{" + text + "}" : "[" + text + "]";
}

std::string written_arguments(const CallFormat& format, const Json& arguments) {
  if (format.syntax == CallSyntax::kGemma) return gemma_value(arguments, format.string_mark);
  if (format.syntax != CallSyntax::kTagged && format.syntax != CallSyntax::kPython) return spaced_json(arguments);
  std::string text;
  for (const auto& [key, value] : arguments.items()) {
    const std::string plain = value.is_string() ? value.get<std::string>() : spaced_json(value);
    text += format.syntax == CallSyntax::kTagged ? format.parameter_text(key, plain, value.is_string())
                                                 : (text.empty() ? "" : ", ") + key + "=" + python_value(value);
  }
  return text;
}

}  // namespace

std::string written_calls(const CallFormat& format, const Json& calls) {
  std::string text;
  int index = 0;
  for (const Json& call : calls) {
    const Json& function = call.contains("function") && call["function"].is_object() ? call["function"] : call;
    const std::string name = function.value("name", Json("")).get<std::string>();
    text += index == 0 ? format.begin_text(name, 0) : format.next_text(name, index);
    text += written_arguments(format, function.value("arguments", Json::object()));
    ++index;
  }
  return index == 0 ? "" : text + format.end_text();
}

}  // namespace ingot
