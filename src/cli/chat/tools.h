// The tools of `ingot chat --tools FILE`: reads the file, asks the user before a call, and runs the call's command.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/terminal/line_reader.h"
#include "cli/terminal/run_command.h"

namespace ingot {

// A file of tools: a JSON array of tools in OpenAI's form, each with an additional member `command`.
struct ToolFile {
  nlohmann::ordered_json shown;                                           // for the chat template, without commands
  std::map<std::string, std::vector<std::string>, std::less<>> commands;  // by the function's name
};

// Throws Error that names the file and the place in it.
ToolFile read_tool_file(const std::string& path);

struct ToolCall {
  std::string id, name, arguments;  // the arguments are a JSON object
};

struct ToolResult {
  std::string text;         // for the model
  bool ends_turn = false;   // the user's next message comes before the next answer
  bool skips_rest = false;  // the answer's remaining calls are not run
};

// Whether the user is asked before a call, all calls run, or none.
enum class ToolConsent { kAsk, kAll, kNone };

class ToolRunner {
 public:
  ToolRunner(const ToolFile& tools, LineReader& reader, ToolConsent consent, const CommandLimits& limits)
      : tools_(tools), reader_(reader), consent_(consent), limits_(limits) {}

  // Prints the call, asks the user, runs the command with the arguments on standard input, and prints the result.
  ToolResult run(const ToolCall& call);

 private:
  bool may_run(const std::string& name);
  ToolResult run_allowed(const ToolCall& call, const std::vector<std::string>& command);

  const ToolFile& tools_;
  LineReader& reader_;
  const ToolConsent consent_;
  const CommandLimits limits_;
  std::set<std::string> always_;  // tools that run without asking
};

}  // namespace ingot
