#include "text/thinking_controls.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/json.h"

namespace ingot {
namespace {

// The prompt of a short question, or nothing if the template refuses the variables.
std::optional<std::string> question_with(const ChatTemplate& chat, const nlohmann::ordered_json& variables) {
  try {
    return chat.render({{{"role", "user"}, {"content", "Hello"}}}, nullptr, true, variables);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

ThinkingControls thinking_controls(const ChatTemplate& chat) {
  ThinkingControls controls;
  for (const char* name : {"enable_thinking", "thinking"}) {
    if (!chat.mentions(name)) continue;
    const auto on = question_with(chat, {{name, true}}), off = question_with(chat, {{name, false}});
    if (!on || !off || on == off) continue;
    controls.switch_name = name;
    break;
  }
  if (!chat.mentions("reasoning_effort")) return controls;
  // Common values come first, because of two values with the same prompt the later one is left out.
  std::vector<std::string> prompts;
  for (const std::string effort : {"low", "medium", "high", "minimal"}) {
    const auto prompt = question_with(chat, {{"reasoning_effort", effort}});
    if (!prompt || std::ranges::find(prompts, *prompt) != prompts.end()) continue;
    prompts.push_back(*prompt);
    controls.efforts.insert(effort == "minimal" ? controls.efforts.begin() : controls.efforts.end(), effort);
  }
  if (controls.efforts.size() < 2) controls.efforts.clear();
  return controls;
}

}  // namespace ingot
