// Runs a command to its end: a text on its standard input, what it writes kept up to a limit, and no shell between.
// Used by chat_tools.
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ingot {

struct CommandLimits {
  std::chrono::milliseconds time{30'000};
  size_t output_bytes = 64 << 10;
};

struct CommandResult {
  enum class End { kExit, kSignal, kTimeout, kStopped };
  End end = End::kExit;
  int code = 0;         // the exit code, or the signal's number
  std::string output;   // standard output and standard error, as they came
  bool is_cut = false;  // there was more output than the limit
};

// The command is the leader of a process group. The whole group is killed when the time is up or stopped() says so,
// which is asked some 50 times a second, and what the command leaves behind is killed when it ends. Throws Error when
// the command cannot be started.
CommandResult run_command(const std::vector<std::string>& command, std::string_view input, const CommandLimits& limits,
                          const std::function<bool()>& stopped);

}  // namespace ingot
