// The tools of `ingot chat --tools FILE`: what the file says, and a call of the model on its way from the question to
// the user to the command's result.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "cli/line_reader.h"
#include "cli/run_command.h"

namespace ingot {

// A file of tools: a JSON array, each element a tool in OpenAI's shape with a `command` beside it.
struct ToolFile {
  nlohmann::ordered_json shown;                                           // for the chat template: without the commands
  std::map<std::string, std::vector<std::string>, std::less<>> commands;  // by the function's name
};

// Throws Error that names the file and the place in it.
ToolFile read_tool_file(const std::string& path);

struct ToolCall {
  std::string id, name, arguments;
  bool whole = false;  // the arguments are a JSON object
};

struct ToolResult {
  std::string text;         // for the model
  bool ends_turn = false;   // the user is asked for the next message before the model goes on
  bool skips_rest = false;  // further calls of the answer are not run
};

// Who lets a call run.
enum class ToolConsent { kAsk, kAll, kNone };

class ToolRunner {
 public:
  ToolRunner(const ToolFile& tools, LineReader& reader, ToolConsent consent, const CommandLimits& limits)
      : tools_(tools), reader_(reader), consent_(consent), limits_(limits) {}

  // Prints the call, asks, runs the command with the arguments on its standard input, prints the result.
  ToolResult run(const ToolCall& call);

 private:
  bool may_run(const std::string& name);
  ToolResult run_allowed(const ToolCall& call, const std::vector<std::string>& command);

  const ToolFile& tools_;
  LineReader& reader_;
  const ToolConsent consent_;
  const CommandLimits limits_;
  std::set<std::string> always_;  // the names of tools that run without a question
};

}  // namespace ingot
