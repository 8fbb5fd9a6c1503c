#include "cli/chat/tools.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "cli/terminal/terminal.h"
#include "io/json.h"
#include "text/json_value.h"

namespace ingot {
namespace {

constexpr size_t kMaxFileBytes = 4 << 20, kMaxTools = 128, kMaxNameBytes = 64;
constexpr size_t kShownBytes = 2000;  // of arguments and results, on the terminal

// ---- the file

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

// One tool of the file. Errors name its place: "tools.json: [2].function.name ...".
class ToolReader {
 public:
  ToolReader(const std::string& path, size_t index) : where_(fmt::format("{}: [{}]", printable(path), index)) {}

  void read(const JsonValue& tool, ToolFile& file) const {
    check_object(tool, "", {"type", "function", "command"});
    if (tool.contains("type") && tool["type"] != "function") fail(".type", "must be \"function\"");
    if (!tool.contains("function")) fail("", "has no 'function'");
    const JsonValue& function = tool["function"];
    check_object(function, ".function", {"name", "description", "parameters", "strict"});
    const std::string name =
        function.contains("name") && function["name"].is_string() ? function["name"] : JsonValue("");
    if (!is_name(name)) fail(".function.name", "must be 1 to 64 letters, digits, '_' or '-'");
    if (function.contains("description") && !function["description"].is_string())
      fail(".function.description", "must be a string");
    if (function.contains("parameters") && !function["parameters"].is_object())
      fail(".function.parameters", "must be an object: a JSON Schema");
    if (!file.commands.emplace(name, read_command(tool)).second)
      fail(".function.name", fmt::format("'{}' is already the name of another tool", name));
    file.shown.push_back({{"type", "function"}, {"function", function}});
  }

 private:
  [[noreturn]] void fail(const std::string& place, const std::string& message) const {
    throw Error("{}{} {}", where_, place, message);
  }
  void check_object(const JsonValue& value, const std::string& place,
                    std::initializer_list<std::string_view> known) const {
    if (!value.is_object()) fail(place, "must be an object");
    for (const auto& [key, member] : value.items())
      if (std::ranges::find(known, key) == known.end())
        fail(place, fmt::format("has the unknown field '{}': use only {}", printable(key, 64),
                                fmt::join(known.begin(), known.end(), ", ")));
  }
  std::vector<std::string> read_command(const JsonValue& tool) const {
    std::vector<std::string> command;
    const JsonValue words = tool.value("command", JsonValue());
    const bool is_list = words.is_array() && !words.empty() &&
                         std::ranges::all_of(words, [](const JsonValue& word) { return word.is_string(); });
    if (!is_list) fail(".command", "must be an array of strings: the program and its arguments, without a shell");
    for (const JsonValue& word : words) command.push_back(word);
    const bool has_nul = std::ranges::any_of(command, [](const std::string& w) { return w.find('\0') != w.npos; });
    if (command.front().empty() || has_nul)
      fail(".command", "must begin with the name of a program and contain no zero bytes");
    return command;
  }

  const std::string where_;
};

// ---- a call

// Replaces invalid UTF-8: a command may write any bytes, but templates and terminals need UTF-8.
std::string valid_utf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    out += step.ok ? text.substr(0, step.length) : "\xEF\xBF\xBD";
    text.remove_prefix(step.length);
  }
  return out;
}

std::string how_it_ended(const CommandResult& result, const CommandLimits& limits) {
  using enum CommandResult::End;
  switch (result.end) {
    case kExit: return result.code == 0 ? "" : fmt::format("The command ended with the code {}.\n", result.code);
    case kSignal: return fmt::format("The command was ended by the signal {}.\n", result.code);
    case kTimeout: return fmt::format("The command was stopped after {} seconds.\n", limits.time.count() / 1000);
    case kStopped: return "The user stopped the command.\n";
  }
  return "";
}

// Prints text of a model or a command without control bytes.
void print_shown(const char* what, std::string_view text) {
  std::string shown;
  for (size_t begin = 0; begin <= text.size() && shown.size() < kShownBytes;) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    shown += (begin > 0 ? "\n" : "") + printable(text.substr(begin, end - begin), kShownBytes - shown.size());
    begin = end + 1;
  }
  say("[{}: {}]\n", what, shown);
  std::fflush(stdout);
}

}  // namespace

ToolFile read_tool_file(const std::string& path) {
  const std::string text = read_file(path, kMaxFileBytes);
  walk_json(text, path, [](const JsonEvent&) {});  // reports the position of an error, and limits the depth
  const JsonValue document = JsonValue::parse(text);
  if (!document.is_array() || document.empty() || document.size() > kMaxTools)
    throw Error("{}: must be a JSON array of 1 to {} tools", printable(path), kMaxTools);
  ToolFile file{.shown = JsonValue::array(), .commands = {}};
  for (size_t i = 0; i < document.size(); ++i) ToolReader(path, i).read(document[i], file);
  return file;
}

ToolResult ToolRunner::run(const ToolCall& call) {
  print_shown("call", fmt::format("{} {}", call.name, call.arguments));
  ToolResult result;
  const auto command = tools_.commands.find(call.name);
  if (command == tools_.commands.end()) {
    result = {fmt::format("There is no tool '{}'.", call.name)};
  } else if (consent_ == ToolConsent::kNone) {
    result = {"The call was not run.", true};
  } else if (!may_run(call.name)) {
    result = {"The user did not allow the call."};
  } else {
    result = run_allowed(call, command->second);
  }
  print_shown("result", result.text);
  return result;
}

bool ToolRunner::may_run(const std::string& name) {
  if (consent_ == ToolConsent::kAll || always_.contains(name)) return true;
  const std::string answer = reader_.read(fmt::format("Run {}? [y/N/always] ", name)).value_or("");
  if (answer == "a" || answer == "always") always_.insert(name);
  return answer == "y" || answer == "yes" || always_.contains(name);
}

ToolResult ToolRunner::run_allowed(const ToolCall& call, const std::vector<std::string>& command) {
  try {
    InterruptGuard guard;
    const CommandResult result = run_command(command, call.arguments, limits_, &InterruptGuard::interrupted);
    const std::string cut =
        result.is_cut ? fmt::format("\n[the rest beyond {} bytes is left out]", limits_.output_bytes) : "";
    return {how_it_ended(result, limits_) + valid_utf8(result.output) + cut,
            result.end == CommandResult::End::kStopped, result.end == CommandResult::End::kStopped};
  } catch (const Error& error) {
    return {fmt::format("The call failed: {}", error.what())};
  }
}

}  // namespace ingot
